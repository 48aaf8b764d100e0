"""The refit face: a receiver that is set up from outside, over the in-memory transport. Rows of reshard.md 7."""

import json
import logging
import types
from typing import Any

import pytest
import torch

from modelexpress.refit import reshard
from modelexpress.refit.reshard import receiver as receiver_module
from modelexpress.refit.reshard import transfer_plan as transfer_plan_module
from modelexpress.refit.reshard.receiver import ReshardReceiver
from modelexpress.refit.reshard.slice_plan import PullSegment, Shard
from modelexpress.refit.reshard.transfer_plan import ConvertSource, FullPullSource, SourceInfo, TransferPlan
from modelexpress.refit.reshard.transport import InMemoryReferenceTransport, ReadDescriptor


class CountingTransport(InMemoryReferenceTransport):
    def __init__(self) -> None:
        super().__init__()
        self.batch_sizes: list[int] = []

    def read(self, descriptors: Any) -> None:
        self.batch_sizes.append(len(descriptors))
        super().read(descriptors)


class Receiver(ReshardReceiver):
    """As a test of the client's makes one: without the constructor, all state from outside."""

    def __init__(self) -> None:
        self.sources = {
            "exact": torch.arange(8, dtype=torch.float32),
            "strided": torch.arange(16, dtype=torch.float32).reshape(4, 4) + 100,
            "router": torch.tensor([1.5, -2.0, 3.25, 4.0], dtype=torch.bfloat16),
        }
        self._device = torch.device("cpu")
        self._timeout = 5.0
        self._transport = CountingTransport()
        self._global_rank = 3
        self._cached_descriptors = None
        self._recv_buffers = {
            "p.exact": torch.zeros(8),
            "p.strided": torch.zeros(4, 2),
            "p.router": torch.zeros(4),
        }
        self._param_ptr = {name: buffer.data_ptr() for name, buffer in self._recv_buffers.items()}
        self._full_staging = {"strided": torch.zeros(16)}
        self._full_staging_ptr = {"strided": self._full_staging["strided"].data_ptr()}
        self._staging = {"p.router": torch.zeros(4, dtype=torch.bfloat16)}
        self._staging_ptr = {"p.router": self._staging["p.router"].data_ptr()}
        self._plan = self.plan()
        self._install_order: list[int] = []
        self.installed: Any = None

    def plan(self) -> TransferPlan:
        copy = types.SimpleNamespace(
            param_name="p.strided", op_chain=(("narrow", (1, 0, 2), ()),), dest_shape=(4, 2), dest_stride=(2, 1), dest_offset=0
        )
        address = {name: source.data_ptr() for name, source in self.sources.items()}
        strided = [PullSegment("s", address["strided"], "strided", 0, 64)]
        return TransferPlan(
            segments=[PullSegment(session="s", src_addr=address["exact"], param_name="p.exact", dst_byte=0, nbytes=32)],
            full_pulls=[FullPullSource("strided", (4, 4), torch.float32, 4, strided, [copy])],
            converts=[
                ConvertSource("p.router", (4,), torch.bfloat16, [PullSegment("s", address["router"], "p.router", 0, 8)])
            ],
        )

    def _install(self, recv_buffers: Any) -> None:
        self._install_order.append(len(self._transport.batch_sizes))
        self.installed = recv_buffers


@pytest.fixture(params=["1", "0"], ids=["fused", "phased"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MX_RESHARD_FUSED_WIRE", request.param)
    return request.param


def test_fused_is_one_read_and_phased_three(wire: str) -> None:
    receiver = Receiver()
    receiver.update_weights(step=1)
    assert receiver._transport.batch_sizes == ([3] if wire == "1" else [1, 1, 1])
    assert receiver._install_order == [1 if wire == "1" else 3], "after every read, and once"
    assert receiver.installed is receiver._recv_buffers


def test_the_values_are_the_expected_ones(wire: str) -> None:
    receiver = Receiver()
    receiver.update_weights(step=1)
    assert torch.equal(receiver._recv_buffers["p.exact"], receiver.sources["exact"])
    assert torch.equal(receiver._recv_buffers["p.strided"], receiver.sources["strided"][:, :2])
    assert torch.equal(receiver._recv_buffers["p.router"], receiver.sources["router"].float())


def test_all_three_groups_are_counted(wire: str) -> None:
    metrics = Receiver().update_weights(step=7)
    assert {name: metrics[name] for name in ("step", "segments", "bytes_received", "full_pull_sources", "converts", "fallback")} == {
        "step": 7, "segments": 3, "bytes_received": 104, "full_pull_sources": 1, "converts": 1, "fallback": 0
    }  # fmt: skip
    wires = {name for name in metrics if name.startswith("wire_")}
    assert wires == ({"wire_fused_s"} if wire == "1" else {"wire_exact_s", "wire_full_s", "wire_convert_s"})
    assert metrics["reslice_copies"] == 1.0


def test_empty_groups_are_not_read(wire: str) -> None:
    receiver = Receiver()
    assert receiver._plan is not None
    receiver._plan.full_pulls = []
    receiver._plan.converts = []
    metrics = receiver.update_weights(step=1)
    assert receiver._transport.batch_sizes == [1] and metrics["segments"] == 1
    assert "reslice_s" not in metrics and "convert_s" not in metrics


# --- descriptors, ceiling, records ---


def test_descriptors_are_kept_until_the_wire_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    receiver.update_weights(step=1)
    first = receiver._cached_descriptors
    for buffer in receiver._recv_buffers.values():
        buffer.zero_()
    receiver.update_weights(step=2)
    assert receiver._cached_descriptors is first and torch.equal(receiver._recv_buffers["p.exact"], receiver.sources["exact"])
    monkeypatch.setenv("MX_RESHARD_FUSED_WIRE", "0")
    receiver.update_weights(step=3)
    assert receiver._cached_descriptors is not None and receiver._cached_descriptors[0] is False
    monkeypatch.setenv("MX_RESHARD_CACHE_DESCRIPTORS", "0")
    before = receiver._cached_descriptors
    receiver.update_weights(step=4)
    assert receiver._cached_descriptors is before


def check_ceiling(wire_bytes: int, **stages: float) -> None:
    ReshardReceiver._check_throughput_ceiling(types.SimpleNamespace(_global_rank=2), 5, wire_bytes, stages)  # type: ignore[arg-type]


def test_a_rate_that_no_wire_has_is_refused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    check_ceiling(40_611_246_080, wire_fused_s=0.84)  # no ceiling by itself
    for text in ("nan", "inf", "-inf", "many"):
        monkeypatch.setenv("MX_RESHARD_MAX_GBPS", text)
        check_ceiling(40_611_246_080, wire_fused_s=0.84)
        assert receiver_module._max_gbps() == 0
    monkeypatch.setenv("MX_RESHARD_MAX_GBPS", "190.8")
    caplog.clear()
    with pytest.raises(RuntimeError, match="without moving the payload.*failed, not fast"):
        check_ceiling(40_611_246_080, wire_fused_s=0.84)
    record = json.loads(caplog.messages[-1].removeprefix("MX_REFIT_IMPOSSIBLE_THROUGHPUT "))
    assert (record["rank"], record["implied_gbps"], record["ceiling_gbps"]) == (2, 386.8, 190.8)
    monkeypatch.setenv("MX_RESHARD_MAX_GBPS", "8")
    check_ceiling(1_000_000_000, wire_fused_s=1.0)  # exactly at it
    check_ceiling(0, wire_fused_s=1.0)
    check_ceiling(1_000_000_000)
    with pytest.raises(RuntimeError):
        check_ceiling(1_000_000_000, wire_exact_s=0.3, wire_full_s=0.3, wire_convert_s=0.3)


def test_a_breach_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_RESHARD_MAX_GBPS", "0.000001")
    receiver = Receiver()
    with pytest.raises(RuntimeError):
        receiver.update_weights(step=1)
    assert receiver._install_order == []


def test_each_update_leaves_one_record(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Receiver().update_weights(step=9)
    lines = [one for one in caplog.records if one.getMessage().startswith("MX_REFIT_STAGE ")]
    assert len(lines) == 1 and lines[0].levelno == logging.WARNING
    record = json.loads(lines[0].getMessage().removeprefix("MX_REFIT_STAGE "))
    assert (record["schema"], record["rank"], record["step"]) == ("refit-stage-v2", 3, 9)
    stages = {name: value for name, value in record.items() if name.endswith("_s") and name != "accounted_s"}
    assert record["accounted_s"] == pytest.approx(sum(stages.values())) and min(stages.values()) >= 0
    assert all(record[name] == metrics[name] for name in stages)
    monkeypatch.setenv("MX_REFIT_STAGE_RECORD", "0")
    caplog.clear()
    Receiver().update_weights(step=10)
    assert not caplog.messages


def test_a_wire_error_installs_nothing_and_keeps_the_plan() -> None:
    receiver = Receiver()
    receiver._transport.read = lambda descriptors: (_ for _ in ()).throw(ConnectionError("lost"))  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        receiver.update_weights(step=1)
    assert receiver._install_order == [] and receiver._plan is not None


@pytest.mark.parametrize("batched", ["1", "0"])
def test_overlapping_destinations_are_written_in_order(batched: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_RESHARD_BATCH_INSTALL", batched)
    calls: list[int] = []
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, views: calls.append(len(to)), raising=False)
    receiver = Receiver()
    assert receiver._plan is not None
    first = receiver._plan.full_pulls[0].copies[0]
    second = types.SimpleNamespace(**{**vars(first), "op_chain": (("narrow", (1, 2, 2), ()),)})
    receiver._plan.full_pulls[0].copies = [first, second]
    receiver.update_weights(step=1)
    assert calls == [] and torch.equal(receiver._recv_buffers["p.strided"], receiver.sources["strided"][:, 2:])


def test_disjoint_destinations_go_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, views: calls.append(len(to)), raising=False)
    Receiver().update_weights(step=1)
    assert calls == [1]


# --- planning ---


def copy(name: str, chain: Any, shape: Any, parameter: str = "p", offset: int = 0, dtype: Any = torch.float32) -> Any:
    strides = torch.empty(shape).stride()
    return reshard.RecordedCopy(name, chain, parameter, offset, shape, strides, dtype)


def source(shape: Any, *boxes: Any, dtype: Any = torch.float32) -> SourceInfo:
    shards = [Shard(offset, extent, session, addr, 4) for offset, extent, session, addr in boxes]
    return SourceInfo(shape, dtype, 4, shards)


def plan(copies: Any, sources: Any, **options: Any) -> TransferPlan:
    return transfer_plan_module.plan_transfer(reshard.CaptureResult(copies=copies), sources, **options)


def test_a_row_split_is_one_segment_a_row() -> None:
    made = plan([copy("w", (("narrow", (), (("dim", 1), ("length", 2), ("start", 2))),), (4, 2))], {"w": source((4, 4), ((0, 0), (4, 4), "s", 1000))})
    assert made.segments == [PullSegment("s", 1000 + 8 + 16 * i, "p", 8 * i, 8) for i in range(4)]
    assert (made.descriptor_count(), made.bytes_planned(), made.sessions()) == (4, 32, {"s"})


def test_the_expert_chain_is_a_box() -> None:
    chain = (("unsqueeze", (0,), ()), ("unbind", (), ()), ("__getitem__", (0,), ()), ("narrow", (0, 1, 1), ()))
    made = plan([copy("e", chain, (1, 4), "w13", 12)], {"e": source((2, 4), ((0, 0), (2, 4), "s", 64))})
    assert made.segments == [PullSegment("s", 80, "w13", 48, 16)]


@pytest.mark.parametrize(
    "chain",
    [
        (("mul", (2,), ()),),
        (("t", (), ()), ("contiguous", (), ())),
        (("reshape", (16,), ()),),
        (("__getitem__", (0,), ()),),
        (("__getitem__", ((slice(None), slice(0, 4, 2)),), ()),),
    ],
)
def test_what_is_no_box_falls_back_alone(chain: Any) -> None:
    sources = {"bad": source((4, 4), ((0, 0), (4, 4), "s", 0)), "good": source((4,), ((0,), (4,), "s", 0))}
    made = plan([copy("bad", chain, (4, 4)), copy("good", (), (4,), "q")], sources)
    assert made.fallback == ["bad"] and len(made.segments) == 1


def test_the_ceiling_makes_a_full_pull_or_leaves_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = copy("w", (("narrow", (1, 0, 2), ()),), (4, 2))
    rows = {"w": source((4, 4), ((0, 0), (2, 4), "a", 0), ((2, 0), (2, 4), "b", 100))}
    made = plan([columns], rows, max_segments_per_copy=1)
    assert made.segments == [] and made.full_pulls[0].copies == [columns]
    assert made.full_pulls[0].segments == [PullSegment("a", 0, "w", 0, 32), PullSegment("b", 100, "w", 32, 32)]
    assert (made.exact_descriptor_count, made.descriptor_savings(), made.extra_wire_bytes()) == (4, 2, 32)
    halves = {"w": source((4, 4), ((0, 0), (4, 2), "a", 0), ((0, 2), (4, 2), "b", 100))}
    monkeypatch.setenv("MX_RESHARD_MAX_SEGMENTS_PER_COPY", "1")
    made = plan([copy("w", (("narrow", (1, 1, 1), ()),), (4, 1))], halves)
    assert made.unbounded_sources == ["w"] and len(made.segments) == 4
    for text in ("0", "many"):
        monkeypatch.setenv("MX_RESHARD_MAX_SEGMENTS_PER_COPY", text)
        with pytest.raises(ValueError):
            plan([columns], rows)


def test_plan_and_read_give_what_the_loader_would(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.arange(48, dtype=torch.float32).reshape(6, 8)
    shards = [weight[:4].contiguous(), weight[4:].contiguous()]
    sources = {"w": source((6, 8), ((0, 0), (4, 8), "a", shards[0].data_ptr()), ((4, 0), (2, 8), "b", shards[1].data_ptr()))}
    copies = [copy("w", (("narrow", (0, 3, 3), ()), ("narrow", (1, 2, 4), ())), (3, 4)), copy("w", (("t", (), ()),), (8, 6), "q")]
    buffers = {"p": torch.zeros(3, 4), "q": torch.zeros(8, 6)}
    made = plan(copies, sources)
    transport = CountingTransport()
    resolve = lambda name: buffers[name].data_ptr()  # noqa: E731
    done = transfer_plan_module.execute_transfer(made, resolve, transport)
    assert done == {"segments": made.descriptor_count(), "bytes": made.bytes_planned(), "fallback": []}
    assert transfer_plan_module.exact_descriptors(made, resolve)[0] == ReadDescriptor("a", shards[0].data_ptr() + 104, buffers["p"].data_ptr(), 16)
    assert torch.equal(buffers["p"], weight[3:, 2:6]) and torch.equal(buffers["q"], weight.t())


def test_a_dtype_that_differs_is_cast_from_staging() -> None:
    made = plan([copy("r", (), (4,))], {"r": source((4,), ((0,), (4,), "s", 8), dtype=torch.bfloat16)})
    assert made.segments == [] and made.converts == [ConvertSource("p", (4,), torch.bfloat16, [PullSegment("s", 8, "p", 0, 16)])]


def test_causes_are_grouped() -> None:
    reasons = {f"e{i}": f"unsupported op aten.mul on lazy 'e{i}'" for i in range(128)} | {"x": "other"}
    assert reshard.summarize_unsupported(reasons) == [("unsupported op aten.mul", 128), ("other", 1)]
    assert len(reshard.summarize_unsupported({str(i): str(i) for i in range(9)}, limit=None)) == 9
