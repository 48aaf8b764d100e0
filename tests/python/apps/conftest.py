"""Programs of a test's own."""

import json
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator

import pytest

BINARIES = pathlib.Path(os.environ["TOWLINE_BIN"])
READY_SECONDS_MAX = 30.0


class Programs:
    """Programs of this test's own, ended in the reverse order."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, program: str, *arguments: object, **environment: str) -> dict[str, str]:
        ready = self.folder / f"{len(self.processes)}.ready"
        command = [BINARIES / program, *map(str, arguments), "--ready-file", ready]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
        self.processes.append(process)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline, f"{program} did not become ready"
            time.sleep(0.01)
        return json.loads(ready.read_text())

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            assert process.wait(15) == 0


@pytest.fixture
def programs(tmp_path: pathlib.Path) -> Iterator[Programs]:
    started = Programs(tmp_path)
    yield started
    started.stop()
