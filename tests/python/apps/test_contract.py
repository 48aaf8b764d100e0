"""What docs/cli.md promises of every verb: streams, exit codes, one document, and the flags that there are."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import save_file

from tests.python.apps.conftest import BINARIES, Programs


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.arange(4096.0)}, path)
    return path


@pytest.fixture
def server(programs: Programs) -> str:
    return programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")["address"]


def towline(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run([BINARIES / "towline", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


PRINTING = [["config"], ["config", "--json"], ["info"], ["--help"], ["--version"], ["pull", "--help"]]


@pytest.mark.parametrize("words", PRINTING)
def test_a_result_that_cannot_be_written_is_a_failure(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARIES / "towline", *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        "towline: error: standard output: the result cannot be written: no space left on device (28); send it elsewhere\n"
    )


def test_a_closed_standard_output_is_a_failure() -> None:
    done = subprocess.run(["sh", "-c", '"$0" config >&-', BINARIES / "towline"], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "standard output: the result cannot be written" in done.stderr


@pytest.mark.parametrize("words", PRINTING)
def test_a_reader_that_went_away_is_a_quiet_failure(words: list[str]) -> None:
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run([BINARIES / "towline", *words], stdout=start, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(start)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    "words",
    [
        ["make-checkpoint", "/nonexistent", "--shards", "0"],
        ["make-checkpoint", "/nonexistent", "--shards", "1001"],
        ["serve", "m", "--rank", "99999999999"],
        ["pull", "m", "--rank", "4294967296"],
        ["verify", "m", "--rank", "99999999999"],
        ["ls", "--server", "127.0.0.1"],
        ["ls", "--server", ""],
        ["pull", "m", "--server", "127.0.0.1:99999"],
        ["bench", "memcpy", "--bytes", "0"],
        ["bench", "memcpy", "--repeat", "0"],
        ["pull", "m", "--window", "0"],
        ["serve", "m", "--heartbeat-interval", "0"],
        ["serve", "m", "--heartbeat-interval", "99ms"],
        ["pull", "m", "--worker-id", "w"],
        ["pull", ""],
        ["serve", "m", "--metrics-listen", "9400"],
        ["config", "--config", "/"],
        ["nosuch"],
        ["--json"],
        ["ls", "--json=5"],
        ["ls", "--help=5"],
        ["--help=5"],
    ],
)
def test_misuse_is_2_and_one_line_whoever_finds_it(words: list[str]) -> None:
    code, out, err = towline(*words)
    assert (code, err.count("\n")) == (2, 1), err
    assert err.startswith("towline: error: ")
    assert out == "" or "--json" in words
    code, out, _ = towline(*words, *(["--json"] if "--json" not in words else []))
    assert code == 2
    assert json.loads(out)["error"]["code"] == "invalid_argument"


@pytest.mark.parametrize("flag", ["--heartbeat-timeout", "--reaper-interval"])
def test_intervals_of_the_server_have_a_least_value(flag: str) -> None:
    done = subprocess.run([BINARIES / "towlined", flag, "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "expected 100ms or more" in done.stderr


def test_the_servers_help_that_cannot_be_written_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([BINARIES / "towlined", "--help"], stdout=full, timeout=60).returncode == 1


def test_the_server_ends_in_order_whenever_it_is_stopped(tmp_path: pathlib.Path) -> None:
    command = [BINARIES / "towlined", "--listen", "127.0.0.1:0", "--store", "memory:"]
    for delay_ms in range(0, 60, 6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay_ms / 1000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) in (0, -signal.SIGTERM), delay_ms  # by the signal: our code had not begun


def test_an_unknown_verb_is_named_with_the_nearest() -> None:
    assert towline("pul")[2] == "towline: error: unknown verb 'pul'; did you mean 'pull'?; see `towline --help`\n"
    assert towline("nosuch")[2] == "towline: error: unknown verb 'nosuch'; see `towline --help`\n"


def test_a_setting_that_is_there_twice_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "settings"
    path.write_text("deadline = 5s\ndeadline = 6s\n")
    code, _, err = towline("config", "--config", path)
    assert (code, err) == (2, f"towline: error: {path}:2: 'deadline' is set in line 1 already; keep one of the two\n")


def test_a_ready_file_that_cannot_be_written_is_found_before_anything_is_loaded(tmp_path: pathlib.Path) -> None:
    code, _, err = towline("serve", tmp_path / "absent", "--ready-file", tmp_path / "no" / "ready")
    assert code == 1
    assert "ready file" in err and "is its folder there and writable?" in err


def test_a_dry_run_of_what_nobody_serves_fails_as_the_pull_would(server: str) -> None:
    real = towline("pull", "nosuch", "--server", server)
    assert towline("pull", "nosuch", "--server", server, "--dry-run") == real
    assert real[0] == 1


def test_a_dry_run_prints_the_plan(server: str, programs: Programs, checkpoint: pathlib.Path) -> None:
    programs.start("towline", "serve", checkpoint, "--model", "m", "--worker-id", "w1", "--server", server)
    code, out, _ = towline("pull", "m", "--server", server, "--dry-run", "--window", "1MiB", "--json")
    assert code == 0
    document = json.loads(out)
    assert re.fullmatch("[0-9a-f]{16}", document["candidates"][0].pop("source_id"))
    assert document == {
        "schema": "towline.pull.plan/1",
        "model": "m",
        "rank": 0,
        "candidates": [
            {
                "worker_id": "w1",
                "transport": "ucx",
                "tensor_count": 1,
                "bytes": 16384,
                "digest_count": 1,
                "read_count": 1,
                "post_count": 1,
                "obstacle": None,
            }
        ],
        "window_bytes": 1 << 20,
        "verify": True,
        "or_load": None,
    }
    code, out, _ = towline("pull", "nosuch", "--server", server, "--dry-run", "--or-load", checkpoint)
    assert code == 0
    assert out.splitlines()[0] == "no replica serves it now" and out.splitlines()[-1] == f"else from disk: {checkpoint}"


def test_a_worker_says_where_others_reach_it(server: str, programs: Programs, checkpoint: pathlib.Path) -> None:
    words = ["serve", checkpoint, "--model", "m", "--worker-advertise", "localhost", "--server", server]
    assert re.fullmatch(r"localhost:[1-9]\d*", programs.start("towline", *words)["address"])


def test_a_mismatch_is_one_document(server: str, programs: Programs, tmp_path: pathlib.Path) -> None:
    served, other = tmp_path / "served.safetensors", tmp_path / "other.safetensors"
    save_file({"w": torch.zeros(10)}, served)
    save_file({"w": torch.ones(10)}, other)
    programs.start("towline", "serve", served, "--model", "m", "--worker-id", "w1", "--server", server)
    code, out, err = towline("verify", other, "--model", "m", "--server", server, "--json")
    assert code == 1
    document = json.loads(out)
    assert document["schema"] == "towline.verify/1" and document["verified"] is False
    assert [mismatch["what"] for mismatch in document["workers"][0]["mismatches"]] == ["digest"]
    assert document["workers"][0]["error"] is None
    assert "1 mismatches against" in err


def test_verify_goes_on_past_a_worker_that_is_gone(server: str, programs: Programs, checkpoint: pathlib.Path) -> None:
    for worker in ("w1", "gone", "w3"):
        programs.start(
            "towline", "serve", checkpoint, "--model", "m", "--worker-id", worker, "--server", server, UCX_TLS="tcp"
        )
    killed = programs.processes.pop(2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = subprocess.run(
        [BINARIES / "towline", "verify", checkpoint, "--model", "m", "--server", server, "--json"],
        env={**os.environ, "UCX_TLS": "tcp"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    workers = {worker["worker_id"]: worker for worker in json.loads(done.stdout)["workers"]}
    assert {name: worker["verified_count"] for name, worker in workers.items()} == {"w1": 1, "gone": 0, "w3": 1}
    assert workers["w1"]["error"] is None and workers["gone"]["error"]
    last = done.stderr.splitlines()[-1]
    assert "model 'm': 1 of 3 workers could not be read, the first of them gone: " in last
    assert last.endswith("; see its log, or start it again")


def test_names_cannot_command_the_terminal(server: str, programs: Programs, checkpoint: pathlib.Path) -> None:
    name = "m\x1b[31m\r\nx"
    programs.start("towline", "serve", checkpoint, "--model", name, "--worker-id", "w\x07", "--server", server)
    for words in (["ls"], ["pull", name], ["pull", name, "--dry-run"], ["verify", checkpoint, "--model", name]):
        code, out, err = towline(*words, "--server", server)
        assert code == 0, err
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out + err.replace("\r", "")), (words, out, err)
    assert r"m\x1b[31m\r\nx" in towline("ls", "--server", server)[1]


def flags_of_help(verb: str) -> set[str]:
    code, out, _ = towline(verb, "--help")
    assert code == 0
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", out, re.MULTILINE))


def flags_of_page(root: pathlib.Path) -> dict[str, set[str]]:
    """By verb, those of its section: in table rows' first column."""
    page = (root / "docs/cli.md").read_text()
    sections = re.split(r"^## `towline ", page, flags=re.MULTILINE)[1:]
    found = {}
    for section in sections:
        verb = re.match(r"[a-z-]+", section)
        assert verb is not None
        rows = re.findall(r"^\| (`--[^|]*)\|", section.split("\n## ")[0], re.MULTILINE)
        found[verb[0]] = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row)}
    return found


def test_the_page_and_the_program_have_the_same_flags(root: pathlib.Path) -> None:
    page = flags_of_page(root)
    settings = {"--" + row["name"].replace("_", "-") for row in json.loads(towline("config", "--json")[1])["settings"]}
    everywhere = {"--json", "--help", "--config", "--log-level", "--log-format"}
    verbs = {"serve", "load", "pull", "ls", "verify", "info", "config", "make-checkpoint", "refit", "bench"}
    assert set(page) == verbs
    for verb in verbs - {"config"}:
        assert page[verb] == flags_of_help(verb) - everywhere, verb
    assert flags_of_help("config") - everywhere == settings - everywhere
