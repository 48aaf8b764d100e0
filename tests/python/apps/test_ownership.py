"""One worker id, one process; what is refused for good is said at once; a slow server is not an absent one."""

import json
import pathlib
import signal
import subprocess
import threading
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


def towline(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run([BINARIES / "towline", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def server(programs: Programs, *arguments: str) -> str:
    return programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:", *arguments)["address"]


def test_a_live_replicas_worker_id_is_refused(programs: Programs, checkpoint: pathlib.Path) -> None:
    address = server(programs)
    served = ("serve", checkpoint, "--model", "m", "--worker-id", "w1", "--server", address)
    first = programs.start("towline", *served)
    code, out, err = towline(*served, "--json")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "already_exists"
    assert "worker id 'w1': another process (" in err and "choose another, or stop that one first" in err
    code, out, _ = towline("pull", "m", "--server", address, "--json")
    assert code == 0 and json.loads(out)["from_worker_id"] == "w1"
    assert [source["source_id"] for source in json.loads(towline("ls", "--server", address, "--json")[1])["sources"]] == [
        first["source_id"]
    ]


def test_a_killed_replica_can_be_started_again_at_once(programs: Programs, checkpoint: pathlib.Path) -> None:
    address = server(programs)
    served = ("towline", "serve", checkpoint, "--model", "m", "--worker-id", "w1", "--server", address)
    programs.start(*served)
    programs.processes[-1].kill()
    programs.processes.pop().wait()
    programs.folder.joinpath("1.ready").unlink()
    programs.start(*served)
    assert towline("pull", "m", "--server", address)[0] == 0


def test_a_replica_whose_id_was_taken_while_it_slept_ends_and_says_so(
    programs: Programs, checkpoint: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    address = server(programs, "--heartbeat-timeout", "1s", "--reaper-interval", "200ms")
    ready = tmp_path / "sleeper.ready"
    served = ("serve", checkpoint, "--model", "m", "--worker-id", "w1", "--server", address, "--heartbeat-interval", "200ms")
    command = [BINARIES / "towline", *map(str, served), "--ready-file", ready]
    sleeper = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not ready.exists():
        assert sleeper.poll() is None
        time.sleep(0.01)
    sleeper.send_signal(signal.SIGSTOP)
    while '"stale"' not in towline("ls", "--server", address, "--json")[1]:
        time.sleep(0.05)
    second = programs.start("towline", *served)
    sleeper.send_signal(signal.SIGCONT)
    _, err = sleeper.communicate(timeout=15)
    assert sleeper.returncode == 1
    assert "worker id 'w1' of model 'm': another process (" in err and "has taken it over" in err
    assert not ready.exists()
    pulled = json.loads(towline("pull", "m", "--server", address, "--json")[1])
    assert pulled["from_worker_id"] == "w1" and pulled["source_id"] is None
    assert second["worker_id"] == "w1"


@pytest.mark.parametrize(
    "flags",
    [("--worker-id", ""), ("--worker-id", "x" * 5000), ("--model", ""), ("--worker-id", b"\xff"), ("--model", b"\xff")],
)
def test_ids_that_cannot_be_are_refused_at_once(
    flags: tuple[str, str | bytes], programs: Programs, checkpoint: pathlib.Path
) -> None:
    address = server(programs)
    started = time.monotonic()
    done = subprocess.run(
        [BINARIES / "towline", "serve", checkpoint, *flags, "--server", address, "--json"], capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "invalid_argument"
    assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(b"towline: error: ")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("verb", ["pull", "ls"])
def test_a_name_that_is_not_utf8_is_refused_without_a_line_of_a_librarys(verb: str, programs: Programs) -> None:
    done = subprocess.run(
        [BINARIES / "towline", verb, b"m\xff\x1b", "--server", server(programs)], capture_output=True, timeout=60
    )
    assert done.returncode in (1, 2)
    assert done.stderr.count(b"\n") == 1 and b"not UTF-8" in done.stderr and b"\x1b" not in done.stderr


def test_a_server_that_pauses_is_waited_for(programs: Programs) -> None:
    address = server(programs)
    paused = programs.processes[-1]
    paused.send_signal(signal.SIGSTOP)
    threading.Timer(1.5, paused.send_signal, [signal.SIGCONT]).start()
    started = time.monotonic()
    code, out, err = towline("ls", "--server", address)
    assert (code, out, err) == (0, "no sources\n", "")
    assert time.monotonic() - started > 1


def test_a_server_that_stays_silent_is_not_called_absent(programs: Programs) -> None:
    address = server(programs)
    programs.processes[-1].send_signal(signal.SIGSTOP)
    try:
        code, _, err = towline("ls", "--server", address, "--rpc-deadline", "600ms")
    finally:
        programs.processes[-1].send_signal(signal.SIGCONT)
    assert code == 1
    assert "no answer in time" in err and "start one" not in err


def test_a_workers_endpoint_is_no_metadata_server(programs: Programs, checkpoint: pathlib.Path) -> None:
    replica = programs.start("towline", "serve", checkpoint, "--server", server(programs))
    code, _, err = towline("ls", "--server", replica["address"])
    assert code == 1
    assert "it is no metadata server" in err


def test_a_checkpoint_without_tensors_is_not_served(programs: Programs, tmp_path: pathlib.Path) -> None:
    save_file({}, tmp_path / "empty.safetensors")
    code, out, err = towline("serve", tmp_path / "empty.safetensors", "--server", server(programs), "--json")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "invalid_argument"
    assert "it holds no tensors" in err


def test_a_pull_from_a_worker_that_is_gone_says_what_can_be_done(programs: Programs, checkpoint: pathlib.Path) -> None:
    address = server(programs)
    programs.start("towline", "serve", checkpoint, "--model", "m", "--worker-id", "w1", "--server", address)
    programs.processes[-1].kill()
    programs.processes.pop().wait()
    code, _, err = towline("pull", "m", "--server", address)
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("towline: error: model 'm': worker w1: ") and "`--or-load CHECKPOINT` reads it from disk" in last
