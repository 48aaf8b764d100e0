"""A rank's receiver: dicts, switches and hooks here; plans, moves, views and casts are the core's.

State is looked for when it is needed, never required of ``__init__``: a subclass may set it all by itself.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from towline import _core
from towline.compat.modelexpress import envs
from towline.compat.modelexpress.refit.reshard import coverage, slice_plan, transfer_plan, types
from towline.compat.modelexpress.refit.reshard.handshake import handshake_endpoints_for_plan, handshake_with_peers
from towline.compat.modelexpress.refit.reshard.transport import ReadDescriptor

__all__ = ["ReshardReceiver", "handshake_endpoints_for_plan", "handshake_with_peers"]

logger = logging.getLogger("modelexpress.refit.reshard.receiver")

T = TypeVar("T")
STAGE_DIGITS = 6


def _max_gbps() -> float:
    limit = envs.get("MX_RESHARD_MAX_GBPS")
    if not math.isfinite(limit):
        logger.warning("MX_RESHARD_MAX_GBPS is not finite: no ceiling")
        return 0.0
    return float(limit)


def _replay_ops(tensor: Any, op_chain: Iterable[Any]) -> Any:
    """The view that the calls make of a contiguous tensor."""
    offset, shape, stride = slice_plan.view_of(op_chain, tensor.shape)
    return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)


def _byte_span(view: Any) -> tuple[int, int, int]:
    """Storage, first and last byte: what a view may touch, generously."""
    reach = sum((extent - 1) * stride for extent, stride in zip(view.shape, view.stride()))
    start = view.data_ptr()
    return view.storage().data_ptr(), start, start + (reach + 1) * view.element_size()


def _are_disjoint(views: list[Any]) -> bool:
    spans = sorted(_byte_span(view) for view in views if view.numel() > 0)
    return all(a[0] != b[0] or a[2] <= b[1] for a, b in zip(spans, spans[1:]))


def _copy(to: Any, view: Any) -> None:
    """A view to another of its shape and dtype."""
    if to.device.type != "cpu" or to.dtype != view.dtype or to.shape != view.shape:
        to.copy_(view)
        return
    _core.copy_views(
        to.data_ptr(), list(to.stride()), view.data_ptr(), list(view.stride()), list(to.shape), to.element_size()
    )


def _cast(to: Any, staged: Any) -> None:
    """To another dtype, and to wherever ``to`` lies."""
    is_plain = to.device.type == "cpu" and to.is_contiguous() and staged.is_contiguous() and to.shape == staged.shape
    if is_plain and _core.cast_values(
        to.data_ptr(), str(to.dtype), staged.data_ptr(), str(staged.dtype), staged.numel()
    ):
        return
    to.copy_(staged)


class ReshardReceiver:
    """Reads, cuts, casts, then installs, once a step. Plan lists are read at each update."""

    # Defaults of an object that was made without its constructor.
    _plan: transfer_plan.TransferPlan | None = None
    _cached_descriptors: tuple[Any, ...] | None = None
    _global_rank = 0
    _timeout = 1200.0
    _prepare_stages: dict[str, float] | None = None

    # --- hooks ---

    def _capture(self, manifest: Any) -> Any:
        raise NotImplementedError("a receiver's subclass captures its engine's loader")

    def _install(self, recv_buffers: dict[str, Any]) -> None:
        raise NotImplementedError("a receiver's subclass installs into its engine")

    def _prepare(self, timeout: float) -> None:
        """Finds the trainers and makes plan, buffers and transport. A subclass that sets these itself is never asked."""
        raise RuntimeError("this receiver has no plan, and discovery is not part of this face yet: set _plan and its buffers")

    # --- an update ---

    def update_weights(self, step: int, *, timeout: float | None = None) -> dict[str, Any]:
        """Reads the step, and installs it when every byte is there. Returns what it came to, stages in seconds."""
        stages: dict[str, float] = {}
        if self._plan is None:
            self._prepare(self._timeout if timeout is None else timeout)
            stages.update(self._prepare_stages or {})
        plan = self._plan
        assert plan is not None
        fused = envs.get("MX_RESHARD_FUSED_WIRE")
        exact, full, convert = self._timed(stages, "descriptor_build_s", lambda: self._descriptors(plan, fused))
        self._read(stages, fused, exact, full, convert)
        wire_bytes = sum(one.nbytes for group in (exact, full, convert) for one in group)
        self._check_throughput_ceiling(step, wire_bytes, stages)
        views = self._reslice(plan, stages)
        if plan.converts:
            self._timed(stages, "convert_s", lambda: self._cast_all(plan))
        self._timed(stages, "install_s", lambda: self._install_all())
        metrics = self._metrics(step, plan, wire_bytes, len(exact) + len(full) + len(convert))
        metrics.update({name: round(value, STAGE_DIGITS) for name, value in stages.items()})
        if views:
            metrics["reslice_copies"] = float(views)
        self._log_stages(metrics, fused)
        return metrics

    def _timed(self, stages: dict[str, float], name: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        self._synchronize()
        stages[name] = stages.get(name, 0.0) + time.perf_counter() - start
        return result

    def _synchronize(self) -> None:
        if getattr(self._device, "type", "cpu") == "cpu":
            return
        import torch

        torch.cuda.synchronize(self._device)

    def _descriptors(
        self, plan: transfer_plan.TransferPlan, fused: bool
    ) -> tuple[list[ReadDescriptor], list[ReadDescriptor], list[ReadDescriptor]]:
        caches = envs.get("MX_RESHARD_CACHE_DESCRIPTORS")
        cached = self._cached_descriptors
        if not (caches and cached is not None and cached[0] == fused):
            exact = transfer_plan.exact_descriptors(plan, self._param_ptr.__getitem__)
            full = [one for pull in plan.full_pulls for one in self._placed(pull.segments, self._full_staging_ptr)]
            convert = [one for group in plan.converts for one in self._placed(group.segments, self._staging_ptr)]
            cached = (fused, full, convert, exact, sum(one.nbytes for one in (*full, *convert)))
            self._cached_descriptors = cached if caches else self._cached_descriptors
        return cached[3], cached[1], cached[2]

    @staticmethod
    def _placed(segments: Iterable[Any], addresses: dict[str, int]) -> list[ReadDescriptor]:
        return transfer_plan.descriptors_of(segments, addresses.__getitem__)

    def _read(
        self,
        stages: dict[str, float],
        fused: bool,
        exact: list[ReadDescriptor],
        full: list[ReadDescriptor],
        convert: list[ReadDescriptor],
    ) -> None:
        """One read of everything, or one of each group that has something."""
        groups = {"wire_fused_s": [*exact, *full, *convert]}
        if not fused:
            groups = {"wire_exact_s": exact, "wire_full_s": full, "wire_convert_s": convert}
        for name, descriptors in groups.items():
            if descriptors:
                self._timed(stages, name, lambda wanted=descriptors: self._transport.read(wanted))

    def _check_throughput_ceiling(self, step: int, wire_bytes: int, stages: dict[str, float]) -> None:
        """A rate that no wire has means that nothing was moved: it fails before anything is read from the buffers."""
        ceiling = _max_gbps()
        wire_s = sum(value for name, value in stages.items() if name.startswith("wire_"))
        if ceiling <= 0 or wire_bytes == 0 or wire_s <= 0:
            return
        implied = wire_bytes * 8 / wire_s / 1e9
        if implied <= ceiling:
            return
        record = {
            "schema": "refit-impossible-throughput-v1",
            "rank": self._global_rank,
            "step": step,
            "wire_bytes": wire_bytes,
            "wire_s": wire_s,
            "implied_gbps": round(implied, 1),
            "ceiling_gbps": ceiling,
        }
        logger.warning("MX_REFIT_IMPOSSIBLE_THROUGHPUT %s", json.dumps(record))
        raise RuntimeError(
            f"step {step}: {wire_bytes} bytes in {wire_s:.3f} s would be {implied:.1f} Gbps, above the ceiling of "
            f"{ceiling:.1f}: the reads returned without moving the payload, so this refit failed, not fast"
        )

    def _reslice(self, plan: transfer_plan.TransferPlan, stages: dict[str, float]) -> int:
        """What the copies of sources that were read whole take of them; how many views."""
        if not plan.full_pulls:
            return 0
        return self._timed(stages, "reslice_s", lambda: self._cut_all(plan))

    def _cut_all(self, plan: transfer_plan.TransferPlan) -> int:
        targets, views = [], []
        for pull in plan.full_pulls:
            staging = self._full_staging[pull.src_name].view(list(pull.global_shape))
            for copy in pull.copies:
                buffer = self._recv_buffers[copy.param_name]
                offset = buffer.storage_offset() + copy.dest_offset
                targets.append(buffer.as_strided(list(copy.dest_shape), list(copy.dest_stride), offset))
                views.append(_replay_ops(staging, copy.op_chain))
        import torch

        batched = getattr(torch, "_foreach_copy_", None)
        if batched is not None and envs.get("MX_RESHARD_BATCH_INSTALL") and _are_disjoint(targets):
            batched(targets, views)
        else:  # in the order of the capture: where two overlap, the later one stays
            for target, view in zip(targets, views):
                _copy(target, view)
        return len(views)

    def _cast_all(self, plan: transfer_plan.TransferPlan) -> None:
        for group in plan.converts:
            _cast(self._recv_buffers[group.param_name], self._staging[group.param_name])

    def _install_all(self) -> None:
        self._install(self._recv_buffers)

    # --- what is told ---

    def _log_coverage(
        self, capture: Any, layout: dict[str, tuple[Any, Any]], params: Collection[str], plan: transfer_plan.TransferPlan
    ) -> None:
        """``layout``: the engine's complete set; ``params``: those that some copy writes. Raises where the gate is on and
        they are too few; the line is written before."""
        made = coverage.record(self._global_rank, capture, layout, params, plan)
        coverage.log(logger, made)
        coverage.check(made)

    @staticmethod
    def _metrics(step: int, plan: transfer_plan.TransferPlan, wire_bytes: int, segments: int) -> dict[str, Any]:
        return {
            "step": step,
            "bytes_received": wire_bytes,
            "segments": segments,
            "full_pull_sources": len(plan.full_pulls),
            "converts": len(plan.converts),
            "unbounded_sources": len(plan.unbounded_sources),
            "fallback": len(plan.fallback),
            "exact_descriptors": plan.exact_descriptor_count,
            "descriptor_savings": plan.descriptor_savings(),
            "extra_wire_bytes": plan.extra_wire_bytes(),
        }

    def _log_stages(self, metrics: dict[str, Any], fused: bool) -> None:
        if not envs.get("MX_REFIT_STAGE_RECORD"):
            return
        stages = {name: value for name, value in metrics.items() if name.endswith("_s")}
        record = {
            "schema": "refit-stage-v2",
            "rank": self._global_rank,
            "step": metrics["step"],
            "bytes": metrics["bytes_received"],
            "segments": metrics["segments"],
            "accounted_s": round(sum(stages.values()), STAGE_DIGITS),
            "fused_wire": bool(fused),
            "batch_install": bool(envs.get("MX_RESHARD_BATCH_INSTALL")),
        }
        record.update({name: value for name, value in metrics.items() if name not in ("step", "bytes_received", "segments")})
        logger.warning("MX_REFIT_STAGE %s", json.dumps(record))


# The client's callers look for these here too.
UnsupportedReshard = types.UnsupportedReshard
IncompleteRefit = types.IncompleteRefit
