"""What must not take the interpreter down: failed opens, forks, threads that outlive it."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import towline


def run(script: str, server: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A program of its own; `server` is set in it."""
    program = f"import os, sys, threading, time, torch, towline\nserver = {server!r}\n" + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "settings", [{"transport": "in_memory"}, {"server": "nohostport"}, {"window": "many"}], ids=lambda value: next(iter(value))
)
def test_a_replica_that_cannot_be_opened_is_an_error(settings: "dict[str, str]") -> None:
    with pytest.raises(towline.Error):
        towline.Replica(**settings)


def test_a_transport_that_cannot_be_opened_is_an_error(server: str) -> None:
    ended = run(
        """
        try:
            towline.Replica(server=server)
        except towline.Error as error:
            print("refused", error.code)
        """,
        server,
        UCX_TLS="bogus",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("refused")


def test_a_fork_leaves_the_parents_replica_alone(server: str) -> None:
    ended = run(
        """
        replica = towline.serve({"w": torch.ones(8)}, model="forked", server=server)
        child = os.fork()
        if child == 0:
            for call in (lambda: replica.pull("forked"), replica.withdraw, lambda: replica.tensors):
                try:
                    call()
                except towline.Error as error:
                    assert "forked from" in str(error), error
                else:
                    os._exit(3)
            sys.exit(0)  # with the interpreter's own end, which lets the replica go
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        with towline.pull("forked", server=server) as reader:
            assert torch.equal(reader.tensors["w"], torch.ones(8))
        replica.close()
        print("both ended")
        """,
        server,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "both ended\n"


def test_an_interpreter_may_end_while_a_thread_pulls(server: str) -> None:
    ended = run(
        """
        replica = towline.serve({"w": torch.ones(4 << 20)}, model="ends", server=server)
        def pull_again():
            while True:
                with towline.pull("ends", server=server):
                    pass
        threading.Thread(target=pull_again, daemon=True).start()
        time.sleep(0.5)
        print("leaving")
        """,
        server,
    )
    assert ended.stdout == "leaving\n"
    assert ended.returncode == 0, ended.stderr


def test_what_is_served_is_not_written_meanwhile(server: str) -> None:
    with towline.Replica(server=server) as replica:
        replica.register({"w": torch.ones(8)})
        replica.serve("busy")
        for call in (lambda: replica.pull("busy"), lambda: replica.register({"v": torch.ones(1)}), lambda: replica.serve("b")):
            with pytest.raises(towline.Error, match="withdraw it first"):
                call()
        replica.withdraw()
        replica.register({"v": torch.ones(1)})


def test_nothing_is_not_served(server: str) -> None:
    with towline.Replica(server=server) as replica, pytest.raises(towline.Error, match="nothing is registered"):
        replica.serve("nothing")
