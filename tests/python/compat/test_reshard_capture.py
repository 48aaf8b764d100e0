"""The refit face: what a loader does, recorded, planned and read. Rows of reshard.md 7.2, geometry, moe_experts and
transfer."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from modelexpress.refit import reshard
from modelexpress.refit.reshard.geometry import LazyWeight, capture_geometry
from modelexpress.refit.reshard.receiver import _replay_ops
from modelexpress.refit.reshard.slice_plan import Shard, plan_pull
from modelexpress.refit.reshard.transfer_plan import SourceInfo, exact_descriptors, execute_transfer, plan_transfer

from .toy_engine import Engine, blank, full_tensors, loaded_engine, manifest, whole_source


def by_source(capture: Any) -> Any:
    return {copy.src_name: copy for copy in capture.copies}


# --- geometry ---


def test_chains_and_destinations_are_what_the_loader_does() -> None:
    capture = capture_geometry(Engine(), manifest())
    copies = by_source(capture)
    assert copies["col"].op_chain == (("narrow", (0, 4, 4), ()),)
    assert copies["row"].op_chain == (("narrow", (1, 4, 4), ()),)
    assert [copies[name].op_chain for name in ("q", "k", "v", "norm")] == [()] * 4
    assert [copies[name].dest_offset for name in ("q", "k", "v", "norm")] == [0, 16, 24, 0]
    assert {copies[name].param_name for name in ("q", "k", "v")} == {"qkv"}
    assert (copies["k"].dest_shape, copies["k"].dest_stride, copies["k"].dest_dtype) == ((2, 4), (4, 1), torch.float32)
    assert (capture.unsupported, capture.unsupported_reasons, capture.unattributed) == ([], {}, 0)


def test_a_loader_that_computes_fails_its_own_source_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    capture = capture_geometry(Engine(scales=True), manifest(bad=(4, 4)))
    assert capture.unsupported == ["bad"] and set(by_source(capture)) == set(dict.fromkeys(full_tensors()))
    (reason,) = capture.unsupported_reasons.values()
    assert reason.startswith("unsupported op aten.mul") and " on lazy 'bad' (chain=())" in reason
    assert "unsupported sources 1, cause unsupported op aten.mul" in caplog.text


def test_the_loaders_are_as_they_were_afterwards() -> None:
    engine = Engine(scales=True)
    before = {name: parameter.weight_loader for name, parameter in engine.named_parameters()}
    capture_geometry(engine, manifest(bad=(4, 4)), default_weight_loader=lambda parameter, loaded: None)
    assert {name: parameter.weight_loader for name, parameter in engine.named_parameters()} == before
    plain = Plain()
    capture_geometry(plain, [("norm", torch.float32, [4])], default_weight_loader=plain_loader)
    assert not hasattr(plain.norm, "weight_loader")


def one_loader(body: Callable[[Any, Any], Any], shape: Any = (4, 6), to: Any = (4, 6)) -> Any:
    """The capture of an engine of one parameter."""

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = blank(*to)
            self.p.weight_loader = body

        def load_weights(self, weights: Any) -> None:
            for _, loaded in weights:
                self.p.weight_loader(self.p, loaded)

    return capture_geometry(One(), [("w", torch.float32, shape)])


def test_arguments_are_recorded_as_they_were_given() -> None:
    def body(parameter: Any, loaded: Any) -> None:
        first, second = loaded.chunk(2, dim=-1)
        parameter.data.narrow(1, 0, 3).copy_(second)
        parameter.data[:, 3:].copy_(torch.narrow(loaded, dim=1, start=0, length=3))
        parameter.data.copy_(loaded.view(-1).reshape(4, 6)[...].transpose(0, 1).t().unsqueeze(0).squeeze(0).contiguous())

    capture = one_loader(body)
    assert capture.unsupported_reasons == {}
    chains = [copy.op_chain for copy in capture.copies]
    assert chains[0] == (("chunk", (2,), (("dim", -1),)), ("__getitem__", (1,), ()))
    assert chains[1] == (("narrow", (), (("dim", 1), ("length", 3), ("start", 0))),)
    assert [name for name, _, _ in chains[2]] == "view reshape __getitem__ transpose t unsqueeze squeeze contiguous".split()
    assert chains[2][2] == ("__getitem__", (Ellipsis,), ())
    assert capture.copies[1].dest_offset == 3 and capture.copies[1].dest_stride == (6, 1)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (lambda parameter, loaded: parameter.data.copy_(loaded.view(5, 5)), "view refused"),
        (lambda parameter, loaded: parameter.data.copy_(loaded.narrow(0, 3, 4)), "narrow refused"),
        (lambda parameter, loaded: parameter.data.copy_(loaded.transpose(0, 7)), "transpose refused"),
        (lambda parameter, loaded: parameter.data.copy_(torch.cat([loaded, loaded])), "unsupported op aten."),
        (lambda parameter, loaded: float(loaded.narrow(0, 0, 1)[0, 0]), "unsupported op aten."),
    ],
    ids=["view", "narrow", "transpose", "cat", "value"],
)
def test_what_torch_refuses_or_would_compute_is_unsupported(body: Any, cause: str) -> None:
    capture = one_loader(body)
    assert capture.copies == [] and capture.unsupported == ["w"]
    assert capture.unsupported_reasons["w"].startswith(cause) and " on lazy 'w' (chain=" in capture.unsupported_reasons["w"]


def test_copies_before_the_fault_do_not_stay() -> None:
    def body(parameter: Any, loaded: Any) -> None:
        parameter.data.copy_(loaded)
        parameter.data.copy_(loaded + 1)

    assert one_loader(body).copies == []


def test_another_fault_of_a_loader_is_its_own() -> None:
    def body(parameter: Any, loaded: Any) -> None:
        raise KeyError("no such part")

    with pytest.raises(KeyError, match="no such part"):
        one_loader(body)


def test_a_lazy_weight_knows_what_it_stands_for_and_has_no_values() -> None:
    lazy = LazyWeight("w", (2, 3), torch.bfloat16, "meta")
    assert (lazy.shape, lazy.size(1), lazy.dim(), lazy.dtype, lazy.numel()) == ((2, 3), 3, 2, torch.bfloat16, 6)
    assert lazy.device.type == "meta" and isinstance(lazy[0], LazyWeight) and lazy[0].shape == (3,)
    with pytest.raises(reshard.UnsupportedReshard):
        lazy.sum()


def plain_loader(parameter: Any, loaded: Any) -> None:
    parameter.data.copy_(loaded)


class Plain(torch.nn.Module):
    """A norm without a loader of its own, as vLLM's are."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = blank(4)

    def load_weights(self, weights: Any) -> None:
        for _, loaded in weights:
            getattr(self.norm, "weight_loader", plain_loader)(self.norm, loaded)


def test_a_parameter_without_a_loader_needs_the_default_one() -> None:
    wanted = [("norm", torch.float32, [4])]
    lost = capture_geometry(Plain(), wanted)
    assert (lost.copies, lost.unattributed) == ([], 1)
    capture = capture_geometry(Plain(), wanted, default_weight_loader=plain_loader)
    assert [(copy.param_name, copy.op_chain, copy.dest_shape) for copy in capture.copies] == [("norm", (), (4,))]
    assert capture.unattributed == 0


def test_a_capture_is_what_the_reads_are_planned_of() -> None:
    copy = by_source(capture_geometry(Engine(), manifest()))["row"]
    found = plan_pull(copy, (4, 8), torch.float32, 4, [Shard((0, 0), (4, 8), "s", 0, 4)])
    assert [(one.dst_byte, one.nbytes) for one in found] == [(0, 16), (16, 16), (32, 16), (48, 16)]


# --- moe_experts ---

EXPERTS, HIDDEN, INNER, TP = 2, 4, 8, 2


class Experts(torch.nn.Module):
    """Experts stacked, gate over up, loaded one by one: each source unsqueezed and unbound again, by keywords alone."""

    def __init__(self) -> None:
        super().__init__()
        self.w13_weight = blank(EXPERTS, 2 * INNER // TP, HIDDEN)
        self.w13_weight.weight_loader = self.load_one

    def load_one(self, *, param: Any, loaded_weight: Any, shard_id: str, expert_id: int) -> None:
        rows = INNER // TP
        place = param.data[expert_id].narrow(0, 0 if shard_id == "w1" else rows, rows)
        place.copy_(loaded_weight.narrow(0, 0, rows))

    def load_weights(self, weights: Any) -> None:
        for name, loaded in weights:
            expert = int(name.split(".")[1])
            for one in loaded.unsqueeze(0).unbind():
                self.w13_weight.weight_loader(
                    param=self.w13_weight, loaded_weight=one, shard_id="w1" if "gate" in name else "w3", expert_id=expert
                )


def capture_experts() -> Any:
    names = [f"experts.{expert}.{part}_proj.weight" for expert in range(EXPERTS) for part in ("gate", "up")]
    return capture_geometry(Experts(), [(name, torch.float32, [INNER, HIDDEN]) for name in names])


def test_every_expert_is_captured_into_the_stacked_parameter() -> None:
    capture = capture_experts()
    assert (len(capture.copies), capture.unsupported, capture.unattributed) == (2 * EXPERTS, [], 0)
    for copy in capture.copies:
        assert copy.param_name == "w13_weight" and copy.dest_shape == (INNER // TP, HIDDEN)
        assert [name for name, _, _ in copy.op_chain] == ["unsqueeze", "unbind", "__getitem__", "narrow"]
        assert copy.op_chain[1] == ("unbind", (), ())


def test_an_expert_is_read_into_its_half() -> None:
    copy = by_source(capture_experts())["experts.1.up_proj.weight"]
    (segment,) = plan_pull(copy, (INNER, HIDDEN), torch.float32, 4, [Shard((0, 0), (INNER, HIDDEN), "s", 0, 4)])
    rows = INNER // TP
    assert (segment.src_addr, segment.nbytes, segment.dst_byte) == (0, 4 * rows * HIDDEN, 4 * (1 * 2 * rows + rows) * HIDDEN)


# --- transfer ---


def planned(tensors: Any, names: Any = None, **options: Any) -> Any:
    wanted = [one for one in manifest() if names is None or one[0] in names]
    sources = {name: whole_source(tensor, name) for name, tensor in tensors.items()}
    return plan_transfer(capture_geometry(Engine(), wanted), sources, **options)


@pytest.mark.parametrize("names", [None, ("row",)], ids=["all", "strided alone"])
def test_what_is_read_is_what_the_loader_makes_of_the_full_tensors(names: Any) -> None:
    tensors = full_tensors()
    expected = loaded_engine(tensors)
    buffers = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    plan = planned(tensors, names)
    assert plan.fallback == []
    transport = reshard.InMemoryReferenceTransport()
    done = execute_transfer(plan, lambda name: buffers[name].data_ptr(), transport)
    assert done["bytes"] == plan.bytes_planned() == transport.bytes_moved > 0
    for name in names or expected:
        assert torch.equal(buffers[name], expected[name]), name


def test_a_source_over_the_ceiling_is_read_whole_and_cut_here() -> None:
    tensors = full_tensors()
    plan = planned({"row": tensors["row"]}, ("row",), max_segments_per_copy=1)
    (pull,) = plan.full_pulls
    assert (plan.segments, plan.exact_descriptor_count, plan.descriptor_count(), plan.descriptor_savings()) == ([], 4, 1, 3)
    assert (plan.exact_bytes, plan.extra_wire_bytes()) == (64, 64)
    staging, buffer = torch.zeros(4, 8), torch.zeros(4, 4)
    reads = [reshard.ReadDescriptor(one.session, one.src_addr, staging.data_ptr() + one.dst_byte, one.nbytes) for one in pull.segments]
    reshard.InMemoryReferenceTransport().read(reads)
    buffer.copy_(_replay_ops(staging, pull.copies[0].op_chain))
    assert torch.equal(buffer, loaded_engine(tensors)["row"])


def test_column_shards_over_the_ceiling_keep_their_runs() -> None:
    full = full_tensors()["row"]
    parts = [full[:, :6].contiguous(), full[:, 6:].contiguous()]
    shards = [Shard((0, 6 * i), tuple(part.shape), f"s{i}", part.data_ptr(), 4) for i, part in enumerate(parts)]
    capture = capture_geometry(Engine(), [one for one in manifest() if one[0] == "row"])
    plan = plan_transfer(capture, {"row": SourceInfo((4, 8), torch.float32, 4, shards)}, max_segments_per_copy=1)
    assert (plan.full_pulls, plan.unbounded_sources, len(plan.segments)) == ([], ["row"], 8)
    assert (plan.descriptor_savings(), plan.extra_wire_bytes()) == (0, 0)


class Recording(reshard.InMemoryReferenceTransport):
    def __init__(self) -> None:
        super().__init__()
        self.asked: "list[Any]" = []

    def read(self, descriptors: Any) -> None:
        self.asked.extend(descriptors)
        super().read(descriptors)


def test_an_unsupported_source_is_never_read_and_is_told() -> None:
    tensors = full_tensors(bad=(4, 4))
    capture = capture_geometry(Engine(scales=True), manifest(bad=(4, 4)))
    plan = plan_transfer(capture, {name: whole_source(tensor, name) for name, tensor in tensors.items()})
    buffers = {name: torch.zeros_like(tensor) for name, tensor in loaded_engine(tensors, scales=True).items()}
    transport = Recording()
    done = execute_transfer(plan, lambda name: buffers[name].data_ptr(), transport)
    assert done["fallback"] == plan.fallback == ["bad"]
    assert {one.session for one in transport.asked} == set(tensors) - {"bad"}


def test_a_source_that_nobody_publishes_falls_back() -> None:
    tensors = full_tensors()
    del tensors["k"]
    assert planned(tensors).fallback == ["k"]


def test_the_descriptors_are_those_that_are_read() -> None:
    tensors = full_tensors()
    buffers = {name: torch.zeros_like(tensor) for name, tensor in loaded_engine(tensors).items()}
    plan, transport = planned(tensors), Recording()
    resolve = lambda name: buffers[name].data_ptr()  # noqa: E731
    done = execute_transfer(plan, resolve, transport)
    assert exact_descriptors(plan, resolve) == transport.asked
    assert (done["segments"], done["bytes"]) == (len(transport.asked), sum(one.nbytes for one in transport.asked))
