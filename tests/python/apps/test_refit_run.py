"""`towline refit run`: real processes, several steps, every byte compared; and what a death does."""

import json
import pathlib
import subprocess
from typing import Any

import pytest

from tests.python.apps.conftest import BINARIES


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("refit") / "llama"
    subprocess.run([BINARIES / "towline", "make-checkpoint", path, "--size", "32MiB", "--shards", "2"], check=True, timeout=60)
    return path


def run(checkpoint: pathlib.Path, trainer: str, engine: str, *words: str) -> list[dict[str, Any]]:
    command = [BINARIES / "towline", "refit", "run", "--checkpoint", checkpoint, "--trainer", trainer, "--engine", engine, "--json"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "towline.refit.run/1"
    return document["rows"]


def outcomes(rows: list[dict[str, Any]]) -> list[tuple[object, object, bool]]:
    return [(row["step"], row["rank"], row["error"] is None) for row in rows]


@pytest.mark.parametrize(("trainer", "engine"), [("fsdp:4", "tp:2"), ("tp:2,pp:2", "tp:4"), ("tp:4", "tp:1"), ("fsdp:3,rep:2", "tp:2")])
def test_each_step_arrives_whole(checkpoint: pathlib.Path, trainer: str, engine: str) -> None:
    rows = run(checkpoint, trainer, engine, "--steps", "2")
    ranks = int(engine.removeprefix("tp:"))
    assert outcomes(rows) == [(step, rank, True) for step in range(2) for rank in range(ranks)]
    assert all(0 < row["compared_bytes"] <= row["bytes"] for row in rows), "a full pull reads more than it gives"
    assert sum(row["slowest"] for row in rows) >= 2


@pytest.mark.parametrize("reads", ["plain", "packed"])
def test_each_form_of_reading_arrives_whole(checkpoint: pathlib.Path, reads: str) -> None:
    rows = run(checkpoint, "fsdp:3", "tp:2", "--steps", "2", "--reads", reads)
    assert outcomes(rows) == [(step, rank, True) for step in range(2) for rank in range(2)]


def test_what_is_packed_at_the_source_needs_neither_whole_tensors_nor_a_cut(checkpoint: pathlib.Path) -> None:
    rows = {form: run(checkpoint, "fsdp:2", "tp:4", "--steps", "1", "--reads", form)[0] for form in ("plain", "packed")}
    assert rows["plain"]["bytes"] > rows["plain"]["compared_bytes"], "its rows are so short that whole tensors are cheaper"
    assert rows["packed"]["bytes"] == rows["packed"]["compared_bytes"]
    assert rows["packed"]["tail_seconds"] < 1e-3


def test_a_dead_trainer_rank_with_a_replica_is_read_around(checkpoint: pathlib.Path) -> None:
    rows = run(checkpoint, "fsdp:2,rep:2", "tp:2", "--steps", "2", "--kill-source")
    assert outcomes(rows) == [(step, rank, True) for step in (0, 1, 1) for rank in range(2)]
    assert [row["detoured_bytes"] > 0 for row in rows] == [False, False, True, True, False, False]


def test_a_dead_trainer_rank_installs_nothing_and_is_read_when_it_is_back(checkpoint: pathlib.Path) -> None:
    rows = run(checkpoint, "fsdp:4", "tp:2", "--steps", "2", "--kill-source")
    assert outcomes(rows[:2]) == [(0, 0, True), (0, 1, True)]
    assert [row["step"] for row in rows[2:]] == [1, 1, 1, 1]
    for row in rows[2:4]:
        assert row["error"] is None or "only trainer rank 'fsdp3' held it" in str(row["error"])
    assert outcomes(rows[4:]) == [(1, 0, True), (1, 1, True)]


def test_a_dead_engine_rank_does_not_disturb_the_others(checkpoint: pathlib.Path) -> None:
    rows = run(checkpoint, "fsdp:4", "tp:2", "--steps", "2", "--kill-reader")
    assert outcomes(rows[2:]) == [(1, 0, True), (1, 1, False), (1, 0, True), (1, 1, True)]
    assert rows[3]["error"] == "killed"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "refit run: give --checkpoint, --trainer and --engine"),
        (["--checkpoint", "x", "--trainer", "fsdp:2", "--engine", "tp:2", "--kill-source", "--steps", "1"], 2,
         "refit run: a process is killed at step 1; give more --steps"),
        (["--checkpoint", "absent.safetensors", "--trainer", "fsdp:2", "--engine", "tp:2"], 1,
         "file 'absent.safetensors': cannot be opened: no such file or directory (2)"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(words: list[str], code: int, message: str) -> None:
    done = subprocess.run([BINARIES / "towline", "refit", "run", *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"towline: error: {message}\n")


def test_a_worker_says_what_it_cannot_do(checkpoint: pathlib.Path) -> None:
    words = ["--checkpoint", checkpoint, "--trainer", "fsdp:2", "--engine", "tp:2"]
    command = [BINARIES / "towline", "refit", "trainer", *words, "--rank", "2"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "towline: error: rank 2 of a trainer of 2 ranks (fsdp2)\n")
