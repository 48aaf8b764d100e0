"""Plans: which reads give a rank its parameters. The core plans; here its answer takes the client's form."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from towline import _core
from towline.compat.modelexpress.refit.reshard.slice_plan import PullSegment, Shard, calls_of, plain_shards
from towline.compat.modelexpress.refit.reshard.transport import ReadDescriptor

RUNS_PER_COPY_MAX = 64


@dataclasses.dataclass
class SourceInfo:
    global_shape: tuple[int, ...]
    dtype: Any
    elsize: int
    shards: list[Shard]


@dataclasses.dataclass
class ConvertSource:
    """Read in the wire's dtype to staging of its own, then cast into the parameter."""

    param_name: str
    dest_shape: tuple[int, ...]
    src_dtype: Any
    segments: list[PullSegment]


@dataclasses.dataclass
class FullPullSource:
    """A whole source to staging, from which its copies are then taken."""

    src_name: str
    global_shape: tuple[int, ...]
    dtype: Any
    elsize: int
    segments: list[PullSegment]
    copies: list[Any]


@dataclasses.dataclass
class TransferPlan:
    """Read at each update: lists may be replaced in between."""

    segments: list[PullSegment] = dataclasses.field(default_factory=list)
    fallback: list[str] = dataclasses.field(default_factory=list)
    converts: list[ConvertSource] = dataclasses.field(default_factory=list)
    full_pulls: list[FullPullSource] = dataclasses.field(default_factory=list)
    unbounded_sources: list[str] = dataclasses.field(default_factory=list)
    exact_descriptor_count: int = 0
    exact_bytes: int = 0

    def all_segments(self) -> Iterable[PullSegment]:
        yield from self.segments
        for group in (*self.full_pulls, *self.converts):
            yield from group.segments

    def bytes_planned(self) -> int:
        return sum(segment.nbytes for segment in self.all_segments())

    def descriptor_count(self) -> int:
        return sum(1 for _ in self.all_segments())

    def sessions(self) -> set[str]:
        return {segment.session for segment in self.all_segments()}

    def descriptor_savings(self) -> int:
        return max(0, self.exact_descriptor_count - self.descriptor_count())

    def extra_wire_bytes(self) -> int:
        return max(0, self.bytes_planned() - self.exact_bytes)


class _DtypeNames:
    """The core compares dtypes as text; here they are whatever objects the caller compares by ``==``."""

    def __init__(self) -> None:
        self._seen: list[Any] = []

    def name(self, dtype: Any) -> str:
        for index, seen in enumerate(self._seen):
            if seen is dtype or seen == dtype:
                return str(index)
        self._seen.append(dtype)
        return str(len(self._seen) - 1)


def _ceiling(argument: int | None) -> int:
    value = int(os.environ.get("MX_RESHARD_MAX_SEGMENTS_PER_COPY", RUNS_PER_COPY_MAX)) if argument is None else argument
    if value < 1:
        raise ValueError(f"the ceiling of segments per copy is {value}; it must be at least 1")
    return value


def plan_transfer(
    capture: Any, sources: Mapping[str, SourceInfo], *, max_segments_per_copy: int | None = None
) -> TransferPlan:
    ceiling = _ceiling(max_segments_per_copy)
    dtypes = _DtypeNames()
    copies = [
        (
            copy.src_name,
            calls_of(copy.op_chain),
            copy.param_name,
            copy.dest_offset,
            list(copy.dest_shape),
            list(copy.dest_stride),
            dtypes.name(copy.dest_dtype),
        )
        for copy in capture.copies
    ]
    plain = [
        (
            name,
            list(info.global_shape),
            dtypes.name(info.dtype),
            info.elsize,
            plain_shards(info.shards),
        )
        for name, info in sources.items()
    ]
    made = _core.plan_per_copy(copies, list(capture.unsupported), plain, ceiling)
    return _plan_of(made, capture, sources)


def _plan_of(made: dict[str, Any], capture: Any, sources: Mapping[str, SourceInfo]) -> TransferPlan:
    def segments(rows: list[Any]) -> list[PullSegment]:
        return [PullSegment(*row) for row in rows]

    plan = TransferPlan(
        segments=segments(made["segments"]),
        unbounded_sources=made["unbounded_sources"],
        exact_descriptor_count=made["exact_descriptor_count"],
        exact_bytes=made["exact_bytes"],
    )
    named = [name for name in dict.fromkeys(capture.unsupported) if name in made["fallback"]]
    plan.fallback = named + [name for name in made["fallback"] if name not in named]
    for index, rows in made["converts"]:
        copy = capture.copies[index]
        dtype = sources[copy.src_name].dtype
        plan.converts.append(ConvertSource(copy.param_name, tuple(copy.dest_shape), dtype, segments(rows)))
    for name, rows, indices in made["full_pulls"]:
        info = sources[name]
        taken = [capture.copies[index] for index in indices]
        plan.full_pulls.append(
            FullPullSource(name, tuple(info.global_shape), info.dtype, info.elsize, segments(rows), taken)
        )
    return plan


def descriptors_of(segments: Iterable[PullSegment], resolve: Callable[[str], int]) -> list[ReadDescriptor]:
    return [
        ReadDescriptor(one.session, one.src_addr, resolve(one.param_name) + one.dst_byte, one.nbytes) for one in segments
    ]


def exact_descriptors(plan: TransferPlan, resolve_param_ptr: Callable[[str], int]) -> list[ReadDescriptor]:
    return descriptors_of(plan.segments, resolve_param_ptr)


def execute_transfer(plan: TransferPlan, resolve_param_ptr: Callable[[str], int], transport: Any) -> dict[str, Any]:
    """The exact group alone."""
    wanted = exact_descriptors(plan, resolve_param_ptr)
    transport.read(wanted)
    return {"segments": len(wanted), "bytes": sum(one.nbytes for one in wanted), "fallback": list(plan.fallback)}
