"""What towlined and replicas say of themselves when Prometheus scrapes them."""

import pathlib
import re
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
import torch
from safetensors.torch import save_file

from tests.python.apps.conftest import BINARIES, Programs

ENDPOINT = ("--metrics-listen", "127.0.0.1:0", "--metrics-scheme", "tp8 pool")
SCHEME = 'scheme="tp8 pool"'
SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.arange(1000.0), "b": torch.ones(3)}, path)
    return path


def scrape(address: str) -> dict[str, dict[str, float]]:
    """Family -> labels without the scheme -> value; each sample carries the scheme."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        page = response.read().decode()
    found: dict[str, dict[str, float]] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        labels = sorted(sample[2].split(","))
        assert SCHEME in labels, line
        labels.remove(SCHEME)
        found.setdefault(sample[1], {})[",".join(labels)] = float(sample[3])
    return found


def server(programs: Programs) -> dict[str, str]:
    return programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:", "--reaper-interval", "1h", *ENDPOINT)


def test_a_pull_is_counted_once_by_each_of_the_three(programs: Programs, checkpoint: pathlib.Path) -> None:
    metadata = server(programs)
    common = ("--server", metadata["address"], "--heartbeat-interval", "1h", *ENDPOINT)
    source = programs.start("towline", "serve", checkpoint, "--model", "m", *common)
    replica = programs.start("towline", "pull", "m", "--serve", *common)

    loaded = scrape(source["metrics_address"])
    assert loaded["mx_build_info"] == {'component="client",version="0.1.0"': 1}
    assert loaded["mx_load_seconds_count"] == {'engine="other",model="m",model_role="main",outcome="success"': 1}
    assert loaded["mx_load_phase_seconds_count"] == {
        'engine="other",model="m",phase="chain"': 1,
        'engine="other",model="m",phase="publish"': 1,
    }
    assert "mx_p2p_list_sources_total" not in loaded, "it pulled nothing"

    pulled = scrape(replica["metrics_address"])
    assert pulled["mx_p2p_list_sources_total"] == {'policy="newest",result="ok"': 1}
    assert pulled["mx_p2p_source_selections_total"] == {'policy="newest"': 1}
    assert pulled["mx_p2p_source_attempts_total"] == {'policy="newest",result="success"': 1}
    assert pulled["mx_p2p_transfer_seconds_count"] == {'outcome="success",policy="newest"': 1}
    assert pulled["mx_p2p_candidates_sum"] == {
        f'policy="newest",stage="{stage}"': 1 for stage in ("listed", "rank_matched", "accelerator_matched")
    }
    assert pulled["mx_nixl_receive_total"] == {'result="complete"': 1}
    assert pulled["towline_transfer_bytes_total"] == {"": 4012}
    assert pulled["mx_load_seconds_count"] == {'engine="other",model="m",model_role="main",outcome="success"': 1}

    counted = scrape(metadata["metrics_address"])
    assert counted["mx_build_info"] == {'backend="memory",component="server",version="0.1.0"': 1}
    assert counted["mx_grpc_requests_total"] == {
        'method="PublishMetadata",outcome="ok"': 2,  # the source and the replica
        'method="UpdateStatus",outcome="ok"': 2,  # their first heartbeats
        'method="ListSources",outcome="ok"': 2,  # serve asks whether there is a server; pull
        'method="GetMetadata",outcome="ok"': 1,
        'method="GetMetadata",outcome="not_found"': 2,  # before they publish: is the worker id another's?
    }
    assert counted["mx_grpc_request_seconds_count"]['method="GetMetadata"'] == 3
    assert counted["mx_grpc_requests_in_flight"] == {"": 0}
    assert counted["mx_backend_ops_total"]['op="commit",result="ok",store="p2p"'] == 4


def test_health_is_answered_and_other_paths_are_not(programs: Programs) -> None:
    address = server(programs)["metrics_address"]
    with urllib.request.urlopen(f"http://{address}/healthz", timeout=30) as response:
        assert response.read() == b"ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{address}/", timeout=30)


def test_without_the_setting_there_is_no_endpoint(programs: Programs) -> None:
    assert programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:")["metrics_address"] is None


def test_an_address_in_use_is_logged_and_the_programs_serve(programs: Programs, checkpoint: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        metadata = programs.start("towlined", "--listen", "127.0.0.1:0", "--store", "memory:", "--metrics-listen", address)
        source = programs.start("towline", "serve", checkpoint, "--server", metadata["address"], "--metrics-listen", address)
    assert metadata["metrics_address"] is None and source["metrics_address"] is None
    listed = subprocess.run([BINARIES / "towline", "ls", "--server", metadata["address"]], capture_output=True, timeout=60)
    assert listed.returncode == 0 and b"ready" in listed.stdout


def test_what_is_no_address_is_misuse() -> None:
    command = [BINARIES / "towlined", "--listen", "127.0.0.1:0", "--store", "memory:", "--metrics-listen", "9400"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "towlined: error: metrics address '9400': not HOST:PORT; write it like 127.0.0.1:9310\n"
