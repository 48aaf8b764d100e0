"""towline.transfer over an agent that really copies, within one process."""

import ctypes
from typing import Any

import pytest
import torch

import towline
from towline.transfer import Descriptor, Manager


class CopyingAgent:
    """NIXL's methods over memcpy; each transfer is pending for some polls."""

    def __init__(self, polls: int = 2) -> None:
        self.polls = polls
        self.registered: list[Any] = []
        self.waiting: dict[int, int] = {}

    def register_memory(self, regions: list[Any], mem_type: "str | None" = None, backends: object = None) -> int:
        self.registered.append(regions)
        return len(self.registered)

    def deregister_memory(self, handle: int) -> None:
        self.registered[handle - 1] = None

    def get_agent_metadata(self) -> bytes:
        return b"metadata"

    def add_remote_agent(self, metadata: bytes) -> bytes:
        assert metadata == b"metadata"
        return b"peer"

    def prep_xfer_dlist(self, agent_name: str, xfer_list: list[Any], mem_type: str, backends: object) -> list[Any]:
        return xfer_list

    def make_prepped_xfer(self, operation: str, **sides: Any) -> tuple[Any, Any]:
        assert operation == "READ"
        return sides["local_xfer_side"], sides["remote_xfer_side"]

    def transfer(self, handle: "tuple[Any, Any]") -> str:
        self.waiting[id(handle)] = self.polls
        return "PROC"

    def check_xfer_state(self, handle: "tuple[Any, Any]") -> str:
        self.waiting[id(handle)] -= 1
        if self.waiting[id(handle)] > 0:
            return "PROC"
        for (local, size, _), (remote, _, _) in zip(*handle):
            ctypes.memmove(local, remote, size)
        return "DONE"

    def release_xfer_handle(self, handle: "tuple[Any, Any]") -> None:
        del self.waiting[id(handle)]


def weights() -> "dict[str, torch.Tensor]":
    torch.manual_seed(3)
    return {"a": torch.randn(1000, 10), "b": torch.randn(7).to(torch.bfloat16), "empty": torch.empty(0)}


def test_bytes_land_in_the_registered_tensors() -> None:
    source, target = weights(), {name: torch.zeros_like(one) for name, one in weights().items()}
    counted: list[str] = []
    agent = CopyingAgent()
    with Manager(agent, on_receive=counted.append) as sender, Manager(CopyingAgent(), on_receive=counted.append) as reader:
        metadata = sender.register(source)
        reader.register(target)
        received = reader.receive(metadata, sender.descriptors(), timeout=10)
        assert (received.bytes, received.tensor_count) == (40014, 3)
        assert all(torch.equal(source[name], target[name]) for name in source)
        assert counted == ["complete"]
        assert len(agent.registered[0]) == 2, "the empty one has no region"
    assert agent.registered == [None]
    with pytest.raises(RuntimeError, match="shut down"):
        sender.register(source)
    sender.close()


def test_a_mismatch_is_an_error_of_ours_and_writes_nothing() -> None:
    target = {"a": torch.zeros(4)}
    with Manager(CopyingAgent()) as reader:
        reader.register(target)
        with pytest.raises(towline.Error, match="'a': size mismatch") as caught:
            reader.receive("peer", [Descriptor("a", 1, 8, 0, "torch.float32")])
    assert caught.value.code == "failed_precondition" and not target["a"].any()


def test_a_transfer_that_does_not_end_is_a_timeout() -> None:
    source = {"a": torch.ones(4)}
    failed: list[str] = []
    with Manager(CopyingAgent(polls=10**9), on_error=failed.append) as reader:
        reader.register({"a": torch.zeros(4)})
        with pytest.raises(TimeoutError) as caught:
            reader.receive("peer", [Descriptor("a", source["a"].data_ptr(), 16, 0, "torch.float32")], timeout=0.05)
    assert isinstance(caught.value, towline.Error) and failed == ["timeout"]


def test_registering_again_lets_go_of_what_is_not_wanted_any_more() -> None:
    agent = CopyingAgent()
    with Manager(agent) as manager:
        first, second = {"a": torch.zeros(8)}, {"b": torch.zeros(8)}
        manager.register(first)
        manager.register(second)
        assert agent.registered[0] is None and agent.registered[1] is not None


class StuckAgent(CopyingAgent):
    """Never says how a transfer ended and never lets go of it, until the peer is removed."""

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0
        self.removed: list[str] = []

    def check_xfer_state(self, handle: "tuple[Any, Any]") -> str:
        self.checks += 1
        raise RuntimeError("no state")

    def release_xfer_handle(self, handle: "tuple[Any, Any]") -> None:
        raise RuntimeError("busy")

    def remove_remote_agent(self, name: str) -> None:
        self.removed.append(name)


def test_what_may_still_be_written_is_refused_until_its_peer_is_removed() -> None:
    source = Descriptor("a", torch.ones(4).data_ptr(), 16, 0, "torch.float32")
    agent = StuckAgent()
    manager = Manager(agent)
    target = {"a": torch.zeros(4)}
    manager.register(target)
    with pytest.raises(RuntimeError, match="no state"):
        manager.receive("peer", [source], timeout=0.05)
    with pytest.raises(towline.Error, match="may still write") as refused:
        manager.receive("peer", [source], timeout=0.05)
    assert refused.value.code == "unavailable"
    assert agent.checks < 10_000, "one that was given up is polled, as long as it is given to end, and not spun on"
    assert manager.remove_peer("peer") and agent.removed == ["peer"]
    with pytest.raises(RuntimeError, match="no state"):
        manager.receive("peer", [source], timeout=0.05)  # posted again
    manager.close()
    assert agent.removed == ["peer", "peer"], "closed before the memory is given back"


def test_metadata_is_loaded_for_one_receive() -> None:
    source = weights()
    agent = StuckAgent()
    agent.check_xfer_state = CopyingAgent.check_xfer_state.__get__(agent)  # type: ignore[method-assign]
    agent.release_xfer_handle = CopyingAgent.release_xfer_handle.__get__(agent)  # type: ignore[method-assign]
    with Manager(CopyingAgent()) as sender, Manager(agent) as reader:
        metadata = sender.register(source)
        reader.register({name: torch.zeros_like(one) for name, one in source.items()})
        reader.receive(metadata, sender.descriptors(), timeout=10)
        assert agent.removed == ["peer"]


def test_a_pool_is_found_by_the_query() -> None:
    base = torch.zeros(1024, dtype=torch.uint8)
    agent = CopyingAgent()
    with Manager(agent) as one:
        one.register({"x": base[:16], "y": base[512:600]}, pool=True, query=lambda address: (base.data_ptr(), 1024))
        assert agent.registered == [[(base.data_ptr(), 1024, 0, "")]]
        with pytest.raises(ValueError):
            one.register({"x": base[:16]}, pool=True, query=lambda address: (address,))
        with pytest.raises(towline.Error, match="pass a query"):
            one.register({"x": base[:16]}, pool=True)
        with pytest.raises(ValueError, match="'t': it is not contiguous"):
            one.register({"t": torch.zeros(3, 3).t()})
