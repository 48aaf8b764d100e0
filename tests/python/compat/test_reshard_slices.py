"""The refit face: boxes, and the reads of one copy. Rows of reshard.md 7.2, slice_plan."""

from typing import Any

import pytest
import torch

from modelexpress.refit import reshard
from modelexpress.refit.reshard.slice_plan import PullSegment, Shard, intersect, op_chain_to_box, paired_runs, plan_pull
from modelexpress.refit.reshard.types import RecordedCopy, UnsupportedReshard

F32 = "f32"


def copy(chain: Any, shape: Any, stride: Any = None, offset: int = 0, dtype: Any = F32) -> RecordedCopy:
    strides = stride if stride is not None else torch.empty(shape).stride()
    return RecordedCopy("source", chain, "p", offset, shape, tuple(strides), dtype)


def pull(made: RecordedCopy, shape: Any, *shards: Shard, dtype: Any = F32) -> "list[PullSegment]":
    return plan_pull(made, shape, dtype, 4, list(shards))


def shard(offset: Any, shape: Any, session: str = "s", addr: int = 0) -> Shard:
    return Shard(offset, shape, session, addr, 4)


def test_a_row_block_is_one_run() -> None:
    made = copy((("narrow", (0, 4, 4), ()),), (4, 4))
    assert pull(made, (8, 4), shard((0, 0), (8, 4), addr=1000)) == [PullSegment("s", 1064, "p", 0, 64)]


def test_a_column_block_is_a_run_a_row() -> None:
    made = copy((("narrow", (1, 0, 4), ()),), (4, 4))
    expected = [PullSegment("s", 2000 + 32 * row, "p", 16 * row, 16) for row in range(4)]
    assert pull(made, (4, 8), shard((0, 0), (4, 8), addr=2000)) == expected


def test_a_copy_into_a_fused_parameter_starts_at_its_offset() -> None:
    assert pull(copy((), (2, 4), offset=16), (2, 4), shard((0, 0), (2, 4))) == [PullSegment("s", 0, "p", 64, 32)]


def test_two_column_halves_are_read_row_by_row_each() -> None:
    halves = shard((0, 0), (4, 4), "a", 100), shard((0, 4), (4, 4), "b", 200)
    found = pull(copy((), (4, 8)), (4, 8), *halves)
    assert [one.dst_byte for one in found if one.session == "a"] == [0, 32, 64, 96]
    assert [one.dst_byte for one in found if one.session == "b"] == [16, 48, 80, 112]


def test_a_shard_without_a_part_is_not_read() -> None:
    assert pull(copy((("narrow", (0, 0, 4), ()),), (4, 4)), (8, 4), shard((4, 0), (4, 4))) == []


def test_replicas_are_each_read_where_no_table_merged_them() -> None:
    same = shard((0,), (4,), "a"), shard((0,), (4,), "b")
    assert [one.session for one in pull(copy((), (4,)), (4,), *same)] == ["a", "b"]


def test_unlike_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="rank mismatch"):
        intersect([(0, 4), (0, 4)], [(0, 4)])
    with pytest.raises(ValueError, match="rank mismatch"):
        pull(copy((), (4, 4)), (4, 4), shard((0,), (4, 4)))
    with pytest.raises(ValueError, match="rank mismatch"):
        pull(copy((), (4, 4)), (4, 4), shard((0,), (4,)))


def test_boxes_meet_or_do_not() -> None:
    assert intersect([(0, 4), (2, 6)], [(3, 9), (0, 3)]) == [(3, 4), (2, 3)]
    assert intersect([(0, 4)], [(4, 8)]) is None
    assert intersect([], []) == []
    with pytest.raises(ValueError, match="before start"):
        intersect([(4, 0)], [(0, 4)])


def test_runs_are_those_that_neither_side_breaks() -> None:
    whole = [(0, 2), (0, 3)]
    assert list(paired_runs(whole, (0, 0), (3, 1), (0, 0), (3, 1))) == [(0, 0, 6)]
    assert list(paired_runs(whole, (0, 0), (3, 1), (0, 0), (5, 1))) == [(0, 0, 3), (3, 5, 3)]
    assert list(paired_runs([(1, 3), (2, 3)], (0, 0), (8, 1), (1, 2), (1, 1))) == [(10, 0, 1), (18, 1, 1)]
    with pytest.raises(ValueError, match="starts at 0"):
        list(paired_runs([(0, 2)], (1,), (1,), (0,), (1,)))


def test_cuts_alone_make_the_older_box() -> None:
    chain = (("__getitem__", (slice(2, 6),), ()), ("narrow", (1, 1, 2), ()), ("contiguous", (), ()))
    assert op_chain_to_box(chain[:2], (8, 4)) == [(2, 6), (1, 3)]
    assert op_chain_to_box((("__getitem__", ((slice(None), slice(-2, None)),), ()),), (8, 4)) == [(0, 8), (2, 4)]
    assert op_chain_to_box((("contiguous", (), ()),), (8, 4)) == [(0, 8), (0, 4)]
    for call in [("__getitem__", (0,), ()), ("__getitem__", ((Ellipsis,),), ()), ("__getitem__", (slice(0, 8, 2),), ()), ("t", (), ())]:
        with pytest.raises(UnsupportedReshard):
            op_chain_to_box((call,), (8, 4))


def rebuilt(source: torch.Tensor, made: RecordedCopy) -> torch.Tensor:
    """What the reads leave, moved for real."""
    target = torch.zeros(made.dest_shape)
    found = plan_pull(made, tuple(source.shape), F32, 4, [Shard((0,) * source.dim(), tuple(source.shape), "s", source.data_ptr(), 4)])
    reads = [reshard.ReadDescriptor(one.session, one.src_addr, target.data_ptr() + one.dst_byte, one.nbytes) for one in found]
    reshard.InMemoryReferenceTransport().read(reads)
    return target


@pytest.mark.parametrize(
    ("shape", "chain"),
    [
        ((3, 4), (("transpose", (0, 1), ()),)),
        ((2, 3, 4), (("permute", (2, 0, 1), ()),)),
        ((4, 5), (("narrow", (0, 1, 2), ()), ("transpose", (0, 1), ()))),
        ((4, 5), (("narrow", (0, 1, 2), ()), ("t", (), ()), ("__getitem__", (slice(1, 4),), ()))),
        ((3, 4), (("unsqueeze", (0,), ()), ("unbind", (), ()), ("__getitem__", (0,), ()))),
        ((3, 4), (("chunk", (2,), (("dim", 1),)), ("__getitem__", (1,), ()))),
    ],
)
def test_permuted_cuts_are_read_bit_for_bit(shape: Any, chain: Any) -> None:
    source: Any = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    expected = source
    for name, arguments, words in chain:
        expected = getattr(expected, name)(*arguments, **dict(words))
    assert torch.equal(rebuilt(source, copy(chain, tuple(expected.shape))), expected)


@pytest.mark.parametrize(
    ("chain", "shape"),
    [
        ((("reshape", ((16,),), ()),), (16,)),  # axes merged
        ((("transpose", (0, 1), ()), ("contiguous", (), ())), (4, 4)),  # square: the strides alone would look right
        ((("mul", (2,), ()),), (4, 4)),
        ((("narrow", (0, 0, 2), ()),), (4, 4)),  # another shape than the destination's
    ],
)
def test_what_is_no_box_is_unsupported(chain: Any, shape: Any) -> None:
    with pytest.raises(UnsupportedReshard):
        pull(copy(chain, shape), (4, 4), shard((0, 0), (4, 4)))


def test_a_dtype_that_differs_is_unsupported() -> None:
    with pytest.raises(UnsupportedReshard, match="bf16 to f32 on lazy 'source'"):
        pull(copy((), (4, 4)), (4, 4), shard((0, 0), (4, 4)), dtype="bf16")
