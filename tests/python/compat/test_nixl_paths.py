"""What the 46 rows leave out: the agent's life, exceptions, handles, host buffers, peers, the runner."""

import os
import pathlib
import subprocess
import sys
import threading
import time
import types
from typing import Any
from unittest import mock

import pytest
import torch

from modelexpress import accelerators, envs, nixl_transfer
from modelexpress.types import TensorDescriptor


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MX_POOL_REG", "MX_ARENA_SINGLE_MR", "MX_NIXL_BACKEND", "NIXL_UCX_TLS", "UCX_TLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda *arguments, **keywords: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *arguments, **keywords: None)


def manager() -> Any:
    made = nixl_transfer.NixlTransferManager(agent_name="reader", device_id=2)
    made._agent = mock.MagicMock()
    made._agent.get_agent_metadata.return_value = b"metadata"
    made._agent.check_xfer_state.return_value = "DONE"
    made._agent.add_remote_agent.return_value = b"source"
    made._tensors = {"w": torch.zeros(4)}
    return made


SOURCE = [TensorDescriptor("w", 0x9000, 16, 3, "torch.float32")]


def receive(made: Any, **keywords: Any) -> Any:
    return made.receive_from_source(b"blob", SOURCE, remote_agent_name="source", **keywords)


# --- Exceptions ---


class Odd(Exception):
    pass


@pytest.mark.parametrize("call", ["prep_xfer_dlist", "make_prepped_xfer", "transfer", "check_xfer_state"])
def test_what_the_agent_raises_comes_out_as_it_is(call: str) -> None:
    made, raised = manager(), Odd("of the agent")
    getattr(made._agent, call).side_effect = raised
    with pytest.raises(Odd) as caught:
        receive(made)
    assert caught.value is raised


def test_what_a_callback_raises_comes_out_and_nothing_was_posted() -> None:
    made = manager()
    with pytest.raises(Odd):
        receive(made, on_transfer_start=mock.Mock(side_effect=Odd))
    made._agent.transfer.assert_not_called()
    made._agent.release_xfer_handle.assert_called_once()


def test_a_synchronise_that_raises_counts_no_receive(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = mock.MagicMock()
    monkeypatch.setattr(nixl_transfer, "transfer_metrics", counted)
    monkeypatch.setattr(torch.cuda, "synchronize", mock.Mock(side_effect=Odd))
    with pytest.raises(Odd):
        receive(manager())
    counted.record_nixl_receive.assert_not_called()


def test_registering_passes_on_what_the_agent_raises() -> None:
    made = manager()
    made._agent.register_memory.side_effect = Odd
    with pytest.raises(Odd):
        made.register_tensors({"w": torch.zeros(4)})


def test_a_destination_that_is_not_contiguous_is_refused() -> None:
    made = manager()
    wide = torch.zeros(4, 2)
    with pytest.raises(RuntimeError, match="Tensor 'w' is not contiguous"):
        receive(made, destination_tensors={"w": wide[:, 0]})
    assert not made._agent.transfer.called and not wide.any()


def test_a_tensor_that_is_not_contiguous_changes_nothing() -> None:
    made = manager()
    made.register_tensors({"w": torch.zeros(4)})
    with pytest.raises(RuntimeError, match="Tensor 't' is not contiguous"):
        made.register_tensors({"ok": torch.zeros(1), "t": torch.zeros(3, 3).t()})
    assert list(made._tensors) == ["w"]
    assert [one.name for one in made.tensor_descriptors] == ["w"]


def test_without_an_agent_every_call_says_so() -> None:
    made = nixl_transfer.NixlTransferManager(agent_name="a", device_id=0)
    for call in (
        lambda: made.register_tensors({}),
        lambda: made.register_arena(mock.Mock(), {}),
        lambda: made.receive_from_source(b"", []),
        lambda: made._wait_for_xfer("h", None, "x"),
        lambda: made.post_read_batch("p", [(1, 2, 3, 0)]),
        lambda: made.register_dram_buffer(None),
    ):
        with pytest.raises(RuntimeError, match="NIXL agent not initialized"):
            call()
    assert made.remove_remote_agent("nobody") is False
    assert not made.is_healthy()


# --- Handles and health ---


@pytest.mark.parametrize("status", ["DONE", "ERR", "PROC"])
def test_a_handle_is_released_once_however_it_ends(status: str) -> None:
    made = manager()
    made._agent.check_xfer_state.return_value = status
    handle = made._agent.make_prepped_xfer.return_value
    try:
        receive(made, timeout_seconds=0.01)
    except (RuntimeError, TimeoutError):
        assert status != "DONE"
    made._agent.release_xfer_handle.assert_called_once_with(handle)
    assert (made.data_plane_error is None) == (status == "DONE")


def test_a_release_that_fails_does_not_hide_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    made = manager()
    made._agent.check_xfer_state.return_value = "PROC"
    made._agent.release_xfer_handle.side_effect = Odd("repost active")
    with pytest.raises(TimeoutError):
        receive(made, timeout_seconds=0.01)
    assert "release_xfer_handle failed, handle leaked" in caplog.text


def test_memory_that_the_agent_may_still_write_is_not_received_into_again() -> None:
    made = manager()
    made._agent.check_xfer_state.return_value = "PROC"
    made._agent.release_xfer_handle.side_effect = Odd
    with pytest.raises(TimeoutError):
        receive(made, timeout_seconds=0.01)
    kept = made.data_plane_error
    with pytest.raises(RuntimeError, match="may still write its memory"):
        receive(made)
    assert made.data_plane_error == kept, "nothing went onto the wire"
    made._agent.check_xfer_state.return_value = "DONE"
    made._agent.release_xfer_handle.side_effect = None
    assert receive(made)[1] == 1, "the agent said at last that it has ended"


def test_a_peer_that_is_closed_cannot_write_any_more() -> None:
    made = manager()
    made._agent.check_xfer_state.return_value = "PROC"
    made._agent.release_xfer_handle.side_effect = Odd
    with pytest.raises(TimeoutError):
        receive(made, timeout_seconds=0.01)
    assert made.remove_remote_agent("source") is True
    made._agent.check_xfer_state.return_value = "DONE"
    assert receive(made)[1] == 1


def test_what_a_poll_raises_is_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = mock.MagicMock()
    monkeypatch.setattr(nixl_transfer, "transfer_metrics", counted)
    made = manager()
    made._agent.check_xfer_state.side_effect = Odd
    with pytest.raises(Odd):
        receive(made)
    assert counted.mock_calls == []


def test_a_receive_that_moves_nothing_says_nothing_of_health() -> None:
    made = manager()
    made._agent.check_xfer_state.return_value = "ERR"
    with pytest.raises(RuntimeError):
        receive(made)
    assert made.receive_from_source(b"", [TensorDescriptor("x", 1, 1, 0, "torch.uint8")], remote_agent_name="p") == (0, 0, 0.0)
    assert made.data_plane_error is not None


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("call", ["release_xfer_handle", "check_xfer_state"])
def test_what_ends_programs_is_not_swallowed(call: str, interrupt: "type[BaseException]") -> None:
    made = manager()
    getattr(made._agent, call).side_effect = interrupt
    with pytest.raises(interrupt):
        receive(made)


def test_an_interrupted_release_leaves_no_handle() -> None:
    made = manager()
    made._agent.make_prepped_xfer.side_effect = ["a", "b", "c"]
    made._agent.release_xfer_handle.side_effect = [KeyboardInterrupt, None, None]
    posted = [made.post_read_batch("p", [(1, 2, 8, 0)]) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        made.await_read_batches(posted)
    assert [call.args[0] for call in made._agent.release_xfer_handle.call_args_list] == ["a", "b", "c"]


@pytest.mark.parametrize("call", ["check_xfer_state", "release_xfer_handle", "transfer"])
def test_a_call_from_within_a_call_is_refused(call: str) -> None:
    made = manager()
    refused: list[str] = []

    def nested(*arguments: object) -> str:
        for again in (lambda: receive(made), made.shutdown, lambda: made.register_tensors({"v": torch.zeros(1)})):
            with pytest.raises(RuntimeError, match="one at a time") as caught:
                again()
            refused.append(str(caught.value))
        return "DONE"

    getattr(made._agent, call).side_effect = nested
    assert receive(made)[1] == 1
    assert len(refused) == 3
    made._agent.deregister_memory.assert_not_called()


def test_two_threads_do_not_meet_in_one_manager() -> None:
    made = manager()
    made._agent.check_xfer_state.side_effect = lambda handle: time.sleep(0.001) or "DONE"
    ended = {"ok": 0, "refused": 0}

    def work() -> None:
        for _ in range(50):
            try:
                receive(made)
                ended["ok"] += 1
            except RuntimeError as error:
                assert "one at a time" in str(error)
                ended["refused"] += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended["ok"] > 0 and sum(ended.values()) == 200


@pytest.mark.parametrize("answer", [(4096, 4096), (0, 8)], ids=["elsewhere", "too short"])
def test_a_tensor_that_the_drivers_answer_does_not_hold_is_registered_by_itself(
    monkeypatch: pytest.MonkeyPatch, answer: "tuple[int, int]"
) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    success = driver.CUresult.CUDA_SUCCESS
    monkeypatch.setenv("MX_POOL_REG", "1")
    monkeypatch.setattr(driver, "cuMemGetAddressRange", lambda address: (success, address + answer[0], answer[1]))
    made, tensor = manager(), torch.zeros(4)
    made.register_tensors({"w": tensor})
    (regions,), _ = made._agent.register_memory.call_args
    assert regions[0] is tensor or (tensor.data_ptr(), 16, 2, "") in regions


def test_a_registration_that_fails_leaves_the_catalogue() -> None:
    made = manager()
    made.register_tensors({"w": torch.zeros(4)})
    made._agent.register_memory.side_effect = Odd
    with pytest.raises(Odd):
        made.register_tensors({"v": torch.zeros(4)})
    assert list(made._tensors) == ["w"] and made.nixl_metadata == b"metadata"


def test_a_success_makes_it_healthy_again() -> None:
    made = manager()
    made.register_tensors({"w": torch.zeros(4)})
    made._agent.check_xfer_state.return_value = "FAIL"
    with pytest.raises(RuntimeError):
        receive(made)
    assert not made.is_healthy() and made.data_plane_error == "Transfer failed with status FAIL"
    made._agent.check_xfer_state.return_value = "SUCCESS"
    receive(made)
    assert made.is_healthy()


def test_waiting_lets_other_threads_run() -> None:
    made = manager()
    made._agent.check_xfer_state.return_value = "PROC"
    ticks = 0
    done = threading.Event()

    def wait() -> None:
        with pytest.raises(TimeoutError):
            made._wait_for_xfer("h", 0.5, "slow")
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not done.wait(0.01):
        ticks += 1
    thread.join()
    assert ticks > 5


def test_no_timeout_waits_until_the_end() -> None:
    made = manager()
    made._agent.check_xfer_state.side_effect = ["PROC"] * 20 + ["DONE"]
    assert receive(made)[1] == 1


# --- Ranges and host buffers ---


def test_ranges_are_read_together_and_always_released() -> None:
    made = manager()
    made._agent.make_prepped_xfer.side_effect = ["first", "second"]
    posted = [made.post_read_batch("p", [(1, 2, 8, 5), (3, 4, 0, 5)]), None, made.post_read_batch("p", [(7, 8, 4, 5)])]
    assert posted[0].num_ranges == 1 and made.post_read_batch("p", [(1, 2, 0, 0)]) is None
    assert made.await_read_batches(posted)[:2] == (12, 2)
    assert [call.args[0] for call in made._agent.release_xfer_handle.call_args_list] == ["first", "second"]
    assert made.await_read_batches([None]) == (0, 0, 0.0)


def test_ranges_that_time_out_name_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    made = manager()
    made._agent.check_xfer_state.return_value = "PROC"
    with pytest.raises(TimeoutError, match="NIXL reshard READ batch timed out with 1 transfer"):
        made.execute_read_batch("p", [(1, 2, 8, 0)], timeout_seconds=0.0)
    made._agent.release_xfer_handle.assert_called_once()


def given_up_into(made: Any, address: int) -> None:
    """A read of 8 bytes that timed out, and that the agent did not let go of."""
    made._agent.check_xfer_state.return_value = "PROC"
    made._agent.release_xfer_handle.side_effect = Odd
    with pytest.raises(TimeoutError):
        made.execute_read_batch("p", [(1, address, 8, 0)], timeout_seconds=0.0)


def test_ranges_that_may_still_be_written_are_not_read_into_again() -> None:
    made = manager()
    given_up_into(made, 0x1000)
    posts = made._agent.transfer.call_count
    with pytest.raises(RuntimeError, match="an earlier receive was given up and may still write there"):
        made.post_read_batch("p", [(1, 0x1007, 1, 0)])
    assert made._agent.transfer.call_count == posts, "nothing was posted"
    made._agent.check_xfer_state.side_effect = lambda handle: "PROC"
    assert made.post_read_batch("p", [(1, 0x1008, 8, 0)]) is not None, "its neighbours are free"
    made._agent.check_xfer_state.side_effect = None
    made._agent.check_xfer_state.return_value = "DONE"
    made._agent.release_xfer_handle.side_effect = None
    assert made.execute_read_batch("p", [(1, 0x1000, 8, 0)])[:2] == (8, 1), "the agent said at last that it has ended"


def test_a_tensor_is_not_received_over_ranges_that_may_still_be_written() -> None:
    made = manager()
    given_up_into(made, made._tensors["w"].data_ptr())
    with pytest.raises(RuntimeError, match="tensor 'w': an earlier receive was given up"):
        receive(made)
    assert made.remove_remote_agent("p") is True
    made._agent.check_xfer_state.return_value = "DONE"
    assert receive(made)[1] == 1, "a closed peer writes nothing any more"


def test_a_host_buffer_that_may_still_be_written_is_not_filled_again() -> None:
    made, buffer = manager(), torch.zeros(8, dtype=torch.uint8)
    made._agent.check_xfer_state.return_value = "PROC"
    made._agent.release_xfer_handle.side_effect = Odd
    with pytest.raises(TimeoutError):
        made.receive_dram_into_buffer("p", 1, buffer, 8, timeout_seconds=0.0)
    with pytest.raises(RuntimeError, match="may still write there"):
        made.receive_dram_into_buffer("p", 1, buffer, 8)


@pytest.mark.parametrize(
    ("buffer", "words"),
    [(torch.zeros(4), "must use torch.uint8"), (torch.zeros(4, 4, dtype=torch.uint8).t(), "must be contiguous")],
)
def test_a_host_buffer_is_checked(buffer: torch.Tensor, words: str) -> None:
    with pytest.raises(RuntimeError, match=f"NIXL DRAM buffer {words}"):
        manager().register_dram_buffer(buffer)
    with pytest.raises(RuntimeError, match=f"NIXL DRAM destination {words}"):
        manager().receive_dram_into_buffer("p", 0, buffer, 1)


def test_a_host_buffer_is_filled_from_the_peer() -> None:
    made, buffer = manager(), torch.zeros(16, dtype=torch.uint8)
    assert made.register_dram_buffer(buffer) is made._agent.register_memory.return_value
    with pytest.raises(ValueError, match="exceeds destination buffer"):
        made.receive_dram_into_buffer("p", 0x9000, buffer, 17)
    with pytest.raises(ValueError):
        made.receive_dram_into_buffer("p", 0x9000, buffer, -1)
    assert made.receive_dram_into_buffer("p", 0x9000, buffer, 0) == 0.0
    assert made.receive_dram_into_buffer("p", 0x9000, buffer, 16, remote_device_id=1) > 0
    sides = [call.kwargs for call in made._agent.prep_xfer_dlist.call_args_list]
    assert [side["mem_type"] for side in sides] == ["DRAM", "DRAM"]
    assert sides[1]["xfer_list"] == [(buffer.data_ptr(), 16, 0)]


# --- Life ---


def fake_nixl(monkeypatch: pytest.MonkeyPatch, seen: "dict[str, Any]") -> None:
    def agent(name: str, config: object) -> mock.MagicMock:
        seen.update(name=name, config=config, tls=os.environ.get("UCX_TLS"))
        return mock.MagicMock()

    api = types.ModuleType("nixl._api")
    api.nixl_agent = agent  # type: ignore[attr-defined]
    api.nixl_agent_config = lambda **keywords: keywords  # type: ignore[attr-defined]
    package = types.ModuleType("nixl")
    package._api = api  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nixl", package)
    monkeypatch.setitem(sys.modules, "nixl._api", api)


def test_without_nixl_it_cannot_be_initialized() -> None:
    with pytest.raises(RuntimeError, match="NIXL is not available"):
        nixl_transfer.NixlTransferManager(agent_name="a", device_id=0).initialize()


@pytest.mark.parametrize(
    ("environment", "during"),
    [({}, None), ({"UCX_TLS": "tcp"}, None), ({"UCX_TLS": "rc,tcp"}, "rc,tcp"), ({"NIXL_UCX_TLS": "shm"}, "shm")],
)
def test_initialize_changes_ucx_tls_for_the_agents_creation_alone(
    monkeypatch: pytest.MonkeyPatch, environment: "dict[str, str]", during: "str | None"
) -> None:
    seen: dict[str, Any] = {}
    fake_nixl(monkeypatch, seen)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = nixl_transfer.NixlTransferManager(agent_name="a", device_id=0, listen_port=7777)
    made.initialize()
    agent = made._agent
    made.initialize()
    assert made._agent is agent, "once"
    assert seen["tls"] == during and os.environ.get("UCX_TLS") == environment.get("UCX_TLS")
    assert seen["config"] == {"backends": ["UCX"], "enable_listen_thread": True, "listen_port": 7777}
    made.shutdown()
    made.shutdown()


def test_a_backend_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_NIXL_BACKEND", " libfabric ")
    assert nixl_transfer.NixlTransferManager(agent_name="a", device_id=0).backends == ["LIBFABRIC"]
    monkeypatch.setenv("MX_NIXL_BACKEND", "mooncake")
    with pytest.raises(ValueError, match="MX_NIXL_BACKEND="):
        nixl_transfer.NixlTransferManager(agent_name="a", device_id=0)


def test_shutdown_closes_peers_then_registrations_in_reverse() -> None:
    made = manager()
    agent = made._agent
    agent.register_memory.side_effect = ["first", "second"]
    made.register_tensors({"w": torch.zeros(4)})
    made.register_tensors({"v": torch.zeros(4)})
    assert made.add_remote_agent(b"blob") == "source"
    agent.reset_mock()
    made.shutdown()
    assert [call[0] for call in agent.method_calls] == ["remove_remote_agent", "deregister_memory", "deregister_memory"]
    assert [call.args[0] for call in agent.deregister_memory.call_args_list] == ["second", "first"]
    assert made.tensor_descriptors == [] and made.nixl_metadata == b""


def test_a_peer_that_does_not_answer_is_not_tracked() -> None:
    made = manager()
    made._agent.check_remote_metadata.return_value = False
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="Timed out waiting for remote metadata from p"):
        made.fetch_remote_and_wait("p", "127.0.0.1", 1234, timeout_seconds=0.05)
    assert time.monotonic() - start < 5 and made.disconnect_remote_agents() == 0
    made._agent.check_remote_metadata.return_value = True
    made.fetch_remote_and_wait("p", "[::1]", 1234)
    assert made.disconnect_remote_agents() == 1
    for host in ("no such host.invalid", "a" * 64, "a..b"):
        with pytest.raises(RuntimeError, match="cannot be resolved"):
            made.fetch_remote_and_wait("p", host, 1)
    with pytest.raises(RuntimeError, match="no port"):
        made.fetch_remote_and_wait("p", "127.0.0.1", 65536)
    made.fetch_remote_and_wait("p", "[fe80::1%lo]", 1)
    assert made._agent.fetch_remote_metadata.call_args.args == ("p", "fe80::1%lo", 1)
    assert made.remove_remote_agent(["unhashable"]) is False


def test_a_peer_that_refuses_to_go_is_false() -> None:
    made = manager()
    made._agent.remove_remote_agent.side_effect = Odd
    made.add_remote_agent(b"blob")
    assert made.remove_remote_agent("source") is False and made.disconnect_remote_agents() == 0


def test_a_backend_without_pools_says_so_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("MX_POOL_REG", "1")
    made, tensor = manager(), torch.zeros(4)
    made._accelerator = accelerators.XpuBackend()
    made.register_tensors({"w": tensor})
    assert made._agent.register_memory.call_args.args[0][0] is tensor
    assert sum("xpu" in record.message for record in caplog.records) == 1


# --- Switches and the runner ---


def test_switches_are_read_at_each_use(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("MX_METADATA_PORT", raising=False)
    assert envs.MX_METADATA_PORT == 5555
    monkeypatch.setenv("MX_METADATA_PORT", "6000")
    assert envs.MX_METADATA_PORT == 6000
    monkeypatch.setenv("MX_METADATA_PORT", "many")
    assert envs.MX_METADATA_PORT == 5555 and "MX_METADATA_PORT='many'" in caplog.text
    for text, seconds in (("900", 900.0), ("0", 300.0), ("inf", 300.0), ("x", 300.0)):
        monkeypatch.setenv("MX_TRANSFER_TIMEOUT", text)
        assert envs.rdma_transfer_timeout() == seconds
    monkeypatch.delenv("MX_TRANSFER_TIMEOUT")
    assert envs.rdma_transfer_timeout() == 300.0, "the default of 900 does not leak into the RDMA path"
    with pytest.raises(AttributeError):
        envs.MX_NOTHING


def test_any_test_file_runs_with_the_faces_in_place(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "test_theirs.py"
    file.write_text(
        "from modelexpress import nixl_transfer\nimport modelexpress.types\n"
        "def test_it():\n    assert nixl_transfer.NixlTransferManager(agent_name='a', device_id=0).backends == ['UCX']\n"
        "def test_not():\n    assert False\n"
    )

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "towline.compat", *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=tmp_path
        )

    assert run("pytest", "-q", file, "-k", "test_it").returncode == 0
    failing = run("pytest", "-q", file)
    assert failing.returncode == 1 and "1 failed, 1 passed" in failing.stdout
    assert run("unittest").returncode == 2
    assert run("--help").returncode == 0


def test_the_original_is_not_replaced_under_its_users(tmp_path: pathlib.Path) -> None:
    (tmp_path / "modelexpress").mkdir()
    (tmp_path / "modelexpress/__init__.py").write_text("")
    script = "import modelexpress\nfrom towline import compat\ncompat.activate()"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 1 and "activate towline.compat before it" in ended.stderr
