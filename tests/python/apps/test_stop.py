"""SIGINT and SIGTERM end every verb promptly, with the documented code, and with nothing left behind."""

import json
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import save_file

from tests.python.apps.conftest import BINARIES, Programs

# The promise is about a second; the rest is a busy machine.
STOP_SECONDS_MAX = 5.0
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.arange(4096.0)}, path)
    return path


@pytest.fixture
def silent() -> object:
    """An address that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def launch(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [BINARIES / "towline", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def stop(process: "subprocess.Popen[str]", how: signal.Signals) -> tuple[int, str, str]:
    process.send_signal(how)
    out, err = process.communicate(timeout=STOP_SECONDS_MAX)
    return process.returncode, out, err


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def blocks_signals(process: "subprocess.Popen[str]") -> bool:
    """Whether the program has come as far as to take signals itself."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk:")).split()[1], 16)
    return bool(blocked >> (signal.SIGINT - 1) & 1)


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("verb", ["ls", "pull", "serve", "verify"])
def test_a_verb_that_waits_for_the_server_is_cut_short(
    verb: str, how: signal.Signals, silent: str, checkpoint: pathlib.Path
) -> None:
    subject = {"ls": [], "pull": ["m"], "serve": [checkpoint], "verify": [checkpoint]}[verb]
    process = launch(verb, *subject, "--server", silent, "--json")
    wait_until(lambda: blocks_signals(process))
    code, out, err = stop(process, how)
    assert code == 1
    message = f"{verb}: stopped by {how.name} before it was done; what it had begun is undone"
    assert json.loads(out) == {
        "schema": "towline.error/1",
        "error": {"code": "cancelled", "scope": "operation", "message": message},
    }
    assert err.splitlines()[-1] == f"towline: error: {message}"


@pytest.mark.parametrize("how", SIGNALS)
def test_a_pull_from_a_source_that_stopped_is_cut_short(
    how: signal.Signals, programs: Programs, checkpoint: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    server = programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")["address"]
    programs.start("towline", "serve", checkpoint, "--model", "m", "--server", server, UCX_TLS="tcp")
    source = programs.processes[-1]
    ready = tmp_path / "pulled.ready"
    source.send_signal(signal.SIGSTOP)
    try:
        process = launch("pull", "m", "--server", server, "--ready-file", ready)
        wait_until((tmp_path / "pulled.ready.tmp").exists)
        code, out, err = stop(process, how)
    finally:
        source.send_signal(signal.SIGCONT)
    assert (code, out) == (1, "")
    assert f"pull: stopped by {how.name}" in err
    assert list(tmp_path.glob("pulled.ready*")) == []


def test_serving_that_is_not_published_yet_is_cut_short_and_leaves_no_ready_file(
    programs: Programs, checkpoint: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")
    server, address = programs.processes[-1], json.loads((tmp_path / "0.ready").read_text())["address"]
    ready = tmp_path / "served.ready"
    ready.write_text("of an earlier run")
    server.send_signal(signal.SIGSTOP)
    try:
        process = launch("serve", checkpoint, "--server", address, "--ready-file", ready)
        wait_until((tmp_path / "served.ready.tmp").exists)
        code, out, err = stop(process, signal.SIGTERM)
    finally:
        server.send_signal(signal.SIGCONT)
    assert (code, out) == (1, "")
    assert "serve: stopped by SIGTERM" in err
    assert list(tmp_path.glob("served.ready*")) == []


@pytest.mark.parametrize("how", SIGNALS)
def test_a_bench_is_cut_short_and_removes_its_files(how: signal.Signals, tmp_path: pathlib.Path) -> None:
    process = launch("bench", "load", "--folder", tmp_path, "--bytes", "256MiB")
    wait_until(lambda: any(tmp_path.glob("towline-bench-*/*")))
    code, out, err = stop(process, how)
    assert (code, out) == (1, "")
    assert f"bench: stopped by {how.name}" in err
    assert list(tmp_path.iterdir()) == []


def test_writing_a_checkpoint_is_cut_short_and_leaves_no_part_of_it(tmp_path: pathlib.Path) -> None:
    process = launch("make-checkpoint", tmp_path / "c", "--size", "1GiB")
    wait_until(lambda: any((tmp_path / "c").glob("*.part")))
    code, out, _ = stop(process, signal.SIGINT)
    assert (code, out) == (1, "")
    assert list((tmp_path / "c").iterdir()) == []


def test_a_second_signal_ends_it_at_once(silent: str) -> None:
    process = launch("ls", "--server", silent)
    wait_until(lambda: blocks_signals(process))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=STOP_SECONDS_MAX)
    assert process.returncode in (-signal.SIGTERM, -signal.SIGINT)  # whichever was taken second


@pytest.mark.parametrize("how", SIGNALS)
def test_serving_ends_in_order(how: signal.Signals, programs: Programs, checkpoint: pathlib.Path) -> None:
    server = programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")["address"]
    programs.start("towline", "serve", checkpoint, "--model", "m", "--server", server)
    programs.processes[-1].send_signal(how)
    assert programs.processes[-1].wait(15) == 0
    programs.processes.pop()
    listed = subprocess.run([BINARIES / "towline", "ls", "--server", server, "--json"], capture_output=True, timeout=30)
    assert [source["status"] for source in json.loads(listed.stdout)["sources"]] == ["stale"]


def test_a_signal_at_any_time_from_the_start_on_ends_it(silent: str) -> None:
    for delay_ms in range(0, 60, 4):
        process = launch("pull", "m", "--server", silent)
        time.sleep(delay_ms / 1000)
        code, out, _ = stop(process, signal.SIGTERM)
        assert code in (1, -signal.SIGTERM) and out == "", delay_ms  # by the signal: our code had not begun
