"""Views by torch's own answer, and the interop digest by its definition."""

import hashlib
import random
import struct
from typing import Any

import pytest
import torch

import towline
from towline import _core


def chains() -> "list[tuple[tuple[int, ...], list[Any]]]":
    return [
        ((4, 6), [("narrow", (1, -3, 2), ())]),
        ((4, 6), [("t", (), ()), ("__getitem__", ((Ellipsis, slice(1, None, 2)),), ())]),
        ((2, 3, 4), [("permute", ((2, 0, 1),), ())]),
        ((2, 3, 4), [("permute", (2, 0, 1), ())]),
        ((2, 3, 4), [("flatten", (1,), ())]),
        ((2, 3, 4), [("view", (-1, 4), ())]),
        ((2, 3, 4), [("reshape", ((6, 2, 2),), ())]),
        ((2, 3, 4), [("transpose", (0, -1), ()), ("__getitem__", (2,), ())]),
        ((2, 1, 4), [("squeeze", (), ())]),
        ((2, 1, 4), [("squeeze", (1,), ()), ("unsqueeze", (-1,), ())]),
        ((5, 4), [("chunk", (2,), (("dim", 0),)), ("__getitem__", (1,), ())]),
        ((5, 4), [("unbind", (1,), ()), ("__getitem__", (-1,), ())]),
        ((5, 4), [("__getitem__", ((None, slice(-2, None)),), ()), ("contiguous", (), ())]),
    ]


@pytest.mark.parametrize(("shape", "chain"), chains())
def test_a_view_is_torchs_view(shape: "tuple[int, ...]", chain: "list[Any]") -> None:
    tensor: Any = torch.arange(torch.Size(shape).numel()).reshape(shape)
    expected = tensor
    for name, arguments, words in chain:
        expected = getattr(expected, name)(*arguments, **dict(words))
    offset, found, stride = _core.replay_view(chain, list(shape))
    view = tensor.as_strided(found, stride, offset)
    assert torch.equal(view, expected)


@pytest.mark.parametrize("chain", [[("mul", (2,), ())], [("t", (), ()), ("view", (24,), ())], [("narrow", (0,), ())]])
def test_what_is_no_view_is_unimplemented(chain: "list[Any]") -> None:
    with pytest.raises(towline.Error) as refused:
        _core.replay_view(chain, [4, 6])
    assert refused.value.code == "unimplemented"


def slow_digest(data: bytes) -> str:
    words = [struct.unpack_from("<i", data, 4 * i)[0] for i in range(len(data) // 4)]
    rows = len(words) // 1024
    scalars = [len(data)]
    if rows:
        sums = [sum(words[1024 * i : 1024 * (i + 1)]) for i in range(rows)]
        scalars += [sum(sums), sum((i + 1) * one for i, one in enumerate(sums))]
    rest = words[1024 * rows :]
    if rest:
        scalars += [sum(rest), sum((i + 1) * one for i, one in enumerate(rest))]
    if len(data) % 4:
        scalars += [sum(data[len(words) * 4 :]), len(data) % 4]
    packed = b"".join(struct.pack("<Q", one % 2**64) for one in scalars)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 4095, 4096, 4097, 8192, 12291])
def test_the_interop_digest_is_its_definition(size: int) -> None:
    data = random.Random(size).randbytes(size)
    held = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(1, dtype=torch.uint8)
    assert _core.interop_digest(held.data_ptr(), size) == slow_digest(data)


def test_a_dtype_that_the_core_does_not_cast_is_left_to_others() -> None:
    assert not _core.cast_values(0, "torch.int64", 0, "torch.float32", 0)
