"""A pull goes on with the next source when one does not answer."""

import json
import os
import pathlib
import signal
import subprocess

import torch
from safetensors.torch import save_file

from tests.python.apps.conftest import BINARIES, Programs


def test_a_source_that_is_stopped_leaves_time_for_the_next(programs: Programs, tmp_path: pathlib.Path) -> None:
    checkpoint = tmp_path / "m.safetensors"
    save_file({"w": torch.arange(100_000.0)}, checkpoint)
    server = programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")["address"]
    # Over TCP a stopped process gives nothing; the second is the newer one, which is tried first.
    for worker, interval in (("good", "1h"), ("stopped", "1s")):
        programs.start(
            "towline", "serve", checkpoint, "--model", "m", "--worker-id", worker, "--server", server,
            "--heartbeat-interval", interval, UCX_TLS="tcp",
        )  # fmt: skip
    stopped = programs.processes[-1]
    stopped.send_signal(signal.SIGSTOP)
    try:
        pulled = subprocess.run(
            [BINARIES / "towline", "pull", "m", "--server", server, "--deadline", "60s", "--json"],
            env={**os.environ, "UCX_TLS": "tcp"}, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
    finally:
        stopped.send_signal(signal.SIGCONT)
    assert pulled.returncode == 0, pulled.stderr
    assert json.loads(pulled.stdout)["from_worker_id"] == "good"
    assert "worker stopped could not serve" in pulled.stderr
