"""A metadata server of its own for each test module."""

import json
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator

import pytest

READY_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a running towlined."""
    folder = tmp_path_factory.mktemp("towlined")
    ready = folder / "ready.json"
    program = pathlib.Path(os.environ["TOWLINE_BIN"]) / "towlined"
    process = subprocess.Popen([program, "--listen", "127.0.0.1:0", "--store", "memory:", "--ready-file", ready])
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline, "towlined did not become ready"
            time.sleep(0.01)
        yield json.loads(ready.read_text())["address"]
    finally:
        process.terminate()
        assert process.wait(10) == 0
