"""What a user reads when something is wrong: the exact text, and nothing half-loaded behind it."""

import json
import os
import pathlib
import socket
import subprocess
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import save_file

from tests.python.apps.conftest import BINARIES, Programs

@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    started = Programs(tmp_path_factory.mktemp("programs"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def server(programs: Programs) -> str:
    return programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")["address"]


def towline(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run([BINARIES / "towline", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_an_absent_server_is_named_with_the_command_that_starts_one() -> None:
    address = f"127.0.0.1:{free_port()}"
    for verb in (["ls"], ["pull", "m"]):
        code, out, err = towline(*verb, "--server", address)
        assert (code, out) == (1, "")
        assert last_line(err) == (
            f"towline: error: metadata server at {address}: connection refused; "
            f"start one with `towlined --listen {address}`"
        )


def test_serving_says_that_the_server_is_absent_before_it_reads_the_checkpoint(tmp_path: pathlib.Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    code, _, err = towline("serve", tmp_path / "absent.safetensors", "--server", address)
    assert code == 1
    assert "connection refused" in last_line(err)


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [BINARIES / "towlined", "--listen", address, "--store", "memory:"], capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 1
    assert address in done.stderr and "in use" in done.stderr


def test_an_unknown_model_says_who_would_know(server: str) -> None:
    code, out, err = towline("pull", "nobody/serves-this", "--server", server)
    assert (code, out) == (1, "")
    assert last_line(err) == (
        "towline: error: model 'nobody/serves-this': no replica serves rank 0 now; `towline ls` shows who serves what"
    )


def test_json_carries_the_same_error(server: str) -> None:
    code, out, _ = towline("pull", "absent", "--server", server, "--json")
    assert code == 1
    assert json.loads(out) == {
        "schema": "towline.error/1",
        "error": {
            "code": "not_found",
            "scope": "operation",
            "message": "model 'absent': no replica serves rank 0 now; `towline ls` shows who serves what",
        },
    }


def test_an_empty_fleet_is_no_error(server: str) -> None:
    assert towline("ls", "none-of-this-name", "--server", server)[:2] == (0, "no sources\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pull", "m", "--frm", "x"], "unknown flag --frm; see `towline pull --help`"),
        (["pull"], "model is required; see `towline pull --help`"),
        (["pull", "m", "--deadline", "3x"], "setting 'deadline' is '3x': expected a time such as 250ms, 5s, 2m or never"),
        (["bench", "nothing"], None),
        (["serve", "m", "--rank", "-1"], None),
        ([], "A subcommand is required; see `towline --help`"),
    ],
)
def test_misuse_exits_with_2(arguments: list[str], message: str | None) -> None:
    code, out, err = towline(*arguments)
    assert (code, out) == (2, "")
    assert message is None or last_line(err) == f"towline: error: {message}"


def test_a_name_that_is_no_setting_is_answered_with_the_nearest(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "settings"
    path.write_text("dedline = 5s\n")
    code, _, err = towline("config", "--config", path)
    assert code == 2
    assert "dedline" in err and "deadline" in err and str(path) in err


def test_a_changed_replica_is_found_by_verify(server: str, programs: Programs, tmp_path: pathlib.Path) -> None:
    served, other = tmp_path / "served.safetensors", tmp_path / "other.safetensors"
    weights = {"größe": torch.arange(1000, dtype=torch.float32), "empty": torch.zeros(0), "n" * 3000: torch.ones(7)}
    save_file(weights, served)
    weights["größe"] = weights["größe"].clone()
    weights["größe"][999] = -1
    save_file(weights, other)
    programs.start("towline", "serve", served, "--model", "verified", "--worker-id", "w1", "--server", server)
    code, out, err = towline("verify", served, "--model", "verified", "--server", server)
    assert code == 0, err
    code, out, err = towline("verify", other, "--model", "verified", "--server", server)
    assert code == 1
    assert "worker w1: tensor 'größe': digest: " in out
    assert last_line(err) == (
        f"towline: error: model 'verified': 1 mismatches against '{other}'; stop serving the workers named above"
    )


def test_a_pull_from_a_worker_that_does_not_serve_falls_back_to_disk_only_where_told(
    server: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "disk.safetensors"
    save_file({"w": torch.ones(10)}, path)
    code, out, _ = towline("pull", "m2", "--from", "nobody", "--server", server)
    assert code == 1
    code, out, err = towline("pull", "m2", "--server", server, "--or-load", path, "--json")
    assert code == 0, err
    assert json.loads(out)["path"].startswith("disk, ")
    code, _, err = towline("pull", "m2", "--server", server, "--or-load", tmp_path / "absent")
    assert code == 1
    assert last_line(err).startswith("towline: error: no loading strategy succeeded; peer: model 'm2': ")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], capture_output=True).returncode != 0:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        code, out, err = towline("make-checkpoint", tmp_path / "c", "--size", "16MiB")
        assert (code, out) == (1, "")
        assert "disk" in last_line(err) and str(tmp_path / "c") in last_line(err)
        assert [entry.name for entry in (tmp_path / "c").iterdir()] == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)
