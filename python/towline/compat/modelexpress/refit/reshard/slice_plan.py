"""Shards and the reads that are planned of them. The core replays calls, cuts boxes and lists the runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import towline
from towline import _core
from towline.compat.modelexpress.refit.reshard.types import OpChain, UnsupportedReshard

T = TypeVar("T")
Interval = tuple[int, int]  #: half-open


@dataclasses.dataclass
class Shard:
    """A box of a source tensor at one rank; its bytes are row-major in the extent."""

    shard_offset: tuple[int, ...]
    shape: tuple[int, ...]
    session: str
    addr: int
    elsize: int
    digest: str | None = None


@dataclasses.dataclass
class PullSegment:
    """One planned read: no destination address, which is found by the name when it is carried out."""

    session: str
    src_addr: int
    param_name: str
    dst_byte: int
    nbytes: int


def expressible(work: Callable[[], T]) -> T:
    """What the core gives, or UnsupportedReshard for what it cannot express; other refusals come out as they are."""
    try:
        return work()
    except towline.Error as error:
        if error.code == "unimplemented":
            raise UnsupportedReshard(error.message) from error
        raise


def calls_of(op_chain: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [tuple(call) for call in op_chain]


def plain_shards(shards: Iterable[Shard]) -> list[tuple[list[int], list[int], str, int]]:
    """As the core takes them."""
    return [(list(one.shard_offset), list(one.shape), one.session, one.addr) for one in shards]


def view_of(op_chain: Iterable[Any], shape: Iterable[int]) -> tuple[int, list[int], list[int]]:
    """Offset, shape and strides, in elements, of the view that the calls make of a row-major tensor."""
    return expressible(lambda: _core.replay_view(calls_of(op_chain), list(shape)))


def _is_plain(name: str, arguments: tuple[Any, ...]) -> bool:
    """Of the calls that :func:`op_chain_to_box` knows: narrow, contiguous, and slices without a step."""
    if name != "__getitem__":
        return name in ("narrow", "contiguous")
    (index,) = arguments
    items = index if isinstance(index, tuple) else (index,)
    return all(isinstance(item, slice) and item.step in (None, 1) for item in items)


def op_chain_to_box(op_chain: OpChain, global_shape: Sequence[int]) -> list[Interval]:
    """The box that cuts alone take of a source. Raises UnsupportedReshard for any other call."""
    for name, arguments, _ in op_chain:
        if not _is_plain(name, tuple(arguments)):
            raise UnsupportedReshard(f"unsupported op {name} on lazy source of shape {tuple(global_shape)}: cuts alone are taken")
    offset, extent, _ = expressible(lambda: _core.box_of_chain(calls_of(op_chain), list(global_shape)))
    return [(start, start + length) for start, length in zip(offset, extent)]


def intersect(box_a: Sequence[Interval], box_b: Sequence[Interval]) -> list[Interval] | None:
    """What both have, None where that is nothing. Raises ValueError for boxes of unlike ranks."""
    return _core.intersect_boxes([tuple(one) for one in box_a], [tuple(one) for one in box_b])


def paired_runs(
    overlap: Sequence[Interval],
    src_origin: Sequence[int],
    src_strides: Sequence[int],
    dst_origin: Sequence[int],
    dst_strides: Sequence[int],
) -> Iterator[tuple[int, int, int]]:
    """Source offset, destination offset and length, in elements, of each run of a box that both sides hold without a
    gap, in row-major order."""
    spans = [tuple(one) for one in overlap]
    yield from _core.paired_runs(spans, list(src_origin), list(src_strides), list(dst_origin), list(dst_strides))


def plan_pull(
    copy: Any, global_shape: Sequence[int], src_dtype: Any, elsize: int, shards: Iterable[Shard]
) -> list[PullSegment]:
    """The reads of one copy, of every shard that has a part of it, in their order. Raises UnsupportedReshard where the
    copy is no box of its source or casts, ValueError where a shard's rank is not the source's."""
    if src_dtype != copy.dest_dtype:
        raise UnsupportedReshard(f"dtype {src_dtype} to {copy.dest_dtype} on lazy '{copy.src_name}': reads do not cast")
    rows = expressible(
        lambda: _core.plan_copy(
            calls_of(copy.op_chain),
            copy.dest_offset,
            list(copy.dest_shape),
            list(copy.dest_stride),
            list(global_shape),
            elsize,
            plain_shards(shards),
        )
    )
    return [PullSegment(session, address, copy.param_name, byte, nbytes) for session, address, byte, nbytes in rows]
