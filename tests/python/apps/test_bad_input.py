"""What a user reads for every kind of bad input, whole: tests/golden/apps/bad_input.txt. TOWLINE_UPDATE_GOLDEN=1 accepts
new texts. What the loader says of files is tests/golden/loader's."""

import json
import os
import pathlib
import re
import socket
import struct
import subprocess
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import save_file

import towline
from tests.python.apps.conftest import BINARIES, Programs

GOLDEN = pathlib.Path("tests/golden/apps/bad_input.txt")


class Texts:
    """The golden file: a title, and below it, indented, the exit code and the last line on stderr."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.found: dict[str, str] = {}
        blocks = re.findall(r"^(\S.*)\n    (.*)$", path.read_text() if path.exists() else "", re.MULTILINE)
        self.expected = dict(blocks)
        self.accepts = "TOWLINE_UPDATE_GOLDEN" in os.environ

    def expect(self, title: str, text: str) -> None:
        assert title not in self.found, f"{title}: there twice"
        self.found[title] = text
        if not self.accepts:
            assert text == self.expected.get(title), f"{title}: TOWLINE_UPDATE_GOLDEN=1 accepts the new text"

    def end(self) -> None:
        if self.accepts:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text("".join(f"{title}\n    {text}\n" for title, text in sorted(self.found.items())))


@pytest.fixture(scope="module")
def texts(root: pathlib.Path) -> Iterator[Texts]:
    texts = Texts(root / GOLDEN)
    yield texts
    texts.end()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("bad")


@pytest.fixture(scope="module")
def programs(folder: pathlib.Path) -> Iterator[Programs]:
    started = Programs(folder)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def server(programs: Programs) -> str:
    return programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")["address"]


@pytest.fixture(scope="module")
def good(programs: Programs, server: str, folder: pathlib.Path) -> pathlib.Path:
    """A checkpoint that worker w1 serves as model `good`."""
    path = folder / "good.safetensors"
    save_file({"w": torch.arange(1000, dtype=torch.float32), "größe": torch.ones(3)}, path)
    programs.start("towline", "serve", path, "--model", "good", "--worker-id", "w1", "--server", server)
    return path


def plain(text: str, folder: pathlib.Path) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return re.sub(r"port \d+", "port PORT", text)


def run(folder: pathlib.Path, *words: object, program: str = "towline") -> str:
    done = subprocess.run([BINARIES / program, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "" or words[0] == "verify", done.stdout
    return f"exit {done.returncode}: {plain(done.stderr.strip().splitlines()[-1], folder)}"


def tensors_file(path: pathlib.Path, header: bytes, data: bytes = b"") -> pathlib.Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_bad_checkpoint(texts: Texts, server: str, folder: pathlib.Path) -> None:
    one = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    files = {
        "corrupt: no JSON": tensors_file(folder / "torn.safetensors", b'{"w":{"dty'),
        "corrupt: not a safetensors file": folder / "other.safetensors",
        "truncated": tensors_file(folder / "cut.safetensors", one, bytes(10)),
        "absent": folder / "absent.safetensors",
        "zero tensors": tensors_file(folder / "none.safetensors", b"{}"),
    }
    (folder / "other.safetensors").write_bytes(b"PK\x03\x04 a zip archive that somebody renamed")
    for title, path in files.items():
        texts.expect(f"serve, {title}", run(folder, "serve", path, "--server", server))
    assert "good" not in run_ls(server)


def run_ls(server: str) -> str:
    return subprocess.run([BINARIES / "towline", "ls", "--server", server], capture_output=True, text=True, timeout=60).stdout


def test_names(texts: Texts, server: str, folder: pathlib.Path) -> None:
    long = "n" * 70_000
    header = json.dumps({long: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path = tensors_file(folder / "long.safetensors", header, b"x")
    text = run(folder, "serve", path, "--model", "m", "--server", server)
    assert len(text) < 1000
    texts.expect("serve, a tensor's name of 70,000 bytes", text)
    texts.expect("serve, a worker id of 2,000 bytes", run(folder, "serve", path, "--worker-id", "w" * 2000, "--server", server))
    texts.expect("pull, a model that nobody serves", run(folder, "pull", "nobody/serves", "--server", server))
    texts.expect("pull, a name that is not ASCII", run(folder, "pull", "größe/模型", "--server", server))
    words = [BINARIES / "towline", "pull", b"\xff\xfe", "--server", server]
    done = subprocess.run(words, capture_output=True, timeout=60)
    texts.expect("pull, a name that is not UTF-8", f"exit {done.returncode}: {done.stderr.decode().strip()}")


def test_a_server_that_is_not_there(texts: Texts, folder: pathlib.Path) -> None:
    for words in (["ls"], ["pull", "m"], ["serve", folder / "absent.safetensors"]):
        texts.expect(f"{words[0]}, no server", run(folder, *words, "--server", free_address()))
    texts.expect("ls, a server that is no address", run(folder, "ls", "--server", "nowhere"))


def test_a_port_in_use(texts: Texts, server: str, good: pathlib.Path, folder: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        texts.expect("towlined, port in use", run(folder, "--listen", address, "--store", "memory:", program="towlined"))
        words = ["serve", good, "--worker-listen", address, "--server", server]
        texts.expect("serve, port of its own endpoint in use", run(folder, *words))
    words = ["serve", good, "--worker-listen", "0.0.0.0:0", "--server", server]
    texts.expect("serve, an endpoint that others could not be told", run(folder, *words))


def test_tensors_that_do_not_match(texts: Texts, server: str, good: pathlib.Path, folder: pathlib.Path) -> None:
    wishes = {
        "size": {"w": torch.zeros(999)},
        "dtype": {"w": torch.zeros(1000, dtype=torch.int32)},
        "shape": {"w": torch.zeros(10, 100)},
        "name, all of them": {"v": torch.zeros(1000)},
    }
    for title, into in wishes.items():
        with pytest.raises(towline.Error) as refused:
            towline.pull("good", into=into, server=server)
        texts.expect(f"pull, another {title}", f"{refused.value.code}: {plain(str(refused.value), folder)}")
        assert all(not tensor.any() for tensor in into.values()), "nothing half-loaded"
    with pytest.raises(towline.Error) as refused:
        towline.pull("good", into={"w": torch.zeros(1000), "v": torch.zeros(2)}, require_exact_match=True, server=server)
    texts.expect("pull, another name, exact match", f"{refused.value.code}: {plain(str(refused.value), folder)}")
    with pytest.raises(towline.Error) as refused:
        towline.serve({}, model="m", server=server)
    texts.expect("serve, zero tensors of this process", f"{refused.value.code}: {plain(str(refused.value), folder)}")


def test_a_replica_that_differs_from_the_file(texts: Texts, server: str, good: pathlib.Path, folder: pathlib.Path) -> None:
    changed = {
        "bytes": {"w": torch.zeros(1000), "größe": torch.ones(3)},
        "tensors": {"w": torch.arange(1000, dtype=torch.float32)},
    }
    for title, weights in changed.items():
        save_file(weights, folder / f"{title}.safetensors")
        words = ["verify", folder / f"{title}.safetensors", "--model", "good", "--server", server]
        texts.expect(f"verify, other {title}", run(folder, *words))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk(texts: Texts, tmp_path: pathlib.Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], capture_output=True).returncode != 0:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        text = run(tmp_path, "make-checkpoint", tmp_path / "c", "--size", "16MiB")
        assert [entry.name for entry in (tmp_path / "c").iterdir()] == [], "nothing half-written"
        texts.expect("make-checkpoint, disk full", text)
    finally:
        subprocess.run(["umount", tmp_path], check=True)
