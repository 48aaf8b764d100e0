"""The main job, as scripts/quickstart runs it: separate processes, real transports, real files."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

STOP_SECONDS_MAX = 15.0


def command(root: pathlib.Path, *arguments: object) -> list[str]:
    binaries = os.environ["TOWLINE_BIN"]
    return [sys.executable, str(root / "scripts/main_job.py"), "--bin", binaries, *map(str, arguments)]


def members(group: int) -> list[str]:
    """Command lines of the processes of a process group that are still there."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group and (line := (folder / "cmdline").read_bytes()):
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def left_of(group: int) -> list[str]:
    """As members(), once all have had the time that ending takes."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while (left := members(group)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def run(root: pathlib.Path, *arguments: object) -> tuple[int, str, str]:
    process = subprocess.Popen(
        command(root, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    out, err = process.communicate(timeout=300)
    assert left_of(process.pid) == []
    return process.returncode, out, err


def test_both_models_reach_three_replicas_and_nothing_is_left(root: pathlib.Path) -> None:
    code, out, err = run(root, "--size", "16MiB")
    assert code == 0, err
    for model in ("all-MiniLM-L6-v2", "llama-16MiB"):
        assert f"{model}: " in out
    rows = re.findall(r"(disk -> replica 1|replica 1 -> 2|replica 2 -> 3) \(.*?\)  +([\d,]+)  +[\d.]+  +[\d.]+  +\d+%  (\d+) of (\d+) tensors", out)
    assert [row[0] for row in rows] == ["disk -> replica 1", "replica 1 -> 2", "replica 2 -> 3"] * 2
    assert all(verified == count != "0" for _, _, verified, count in rows)
    assert {rows[0][1]} == {row[1] for row in rows[:3]}, "the replicas hold equally many bytes"
    assert "The same by hand" in out and "memcpy on this machine" in out


def test_a_folder_without_a_checkpoint_is_an_error_that_names_it(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    code, out, err = run(root, tmp_path)
    assert (code, out) == (1, "")
    assert str(tmp_path) in err


def test_a_truncated_checkpoint_is_refused_whole(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cut.safetensors"
    save_file({"w": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:-10])
    code, out, err = run(root, path)
    assert (code, out) == (1, "")
    assert "cut.safetensors" in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(root: pathlib.Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        command(root, "--size", "16MiB"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "pulls from" in line:
            break
    process.send_signal(how)
    process.stderr.read()
    assert process.wait(STOP_SECONDS_MAX) != 0
    assert left_of(process.pid) == []
