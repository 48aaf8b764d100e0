"""Digests by which a trainer and a generator compare a shard; the core computes them (reshard.md 3.10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from towline import _core
from towline.compat.modelexpress import envs


def tensor_digest(tensor: Any) -> str:
    """Of the tensor's elements in row-major order, wherever and however they lie: 32 hexadecimal digits."""
    held = tensor.detach().contiguous().cpu()
    return _core.interop_digest(held.data_ptr(), held.numel() * held.element_size())


def shard_region(full_tensor: Any, global_shape: Sequence[int], shard_offset: Sequence[int], shape: Sequence[int]) -> Any:
    """A contiguous copy of the box. ``full_tensor`` has the elements of ``global_shape``, in whatever shape."""
    if not len(global_shape) == len(shard_offset) == len(shape):
        raise ValueError(
            f"rank mismatch: tensor {tuple(global_shape)}, box at {tuple(shard_offset)} of {tuple(shape)}"
        )
    region = full_tensor.reshape(tuple(global_shape))
    for axis, (start, length) in enumerate(zip(shard_offset, shape)):
        region = region.narrow(axis, start, length)
    return region.contiguous() if not region.is_contiguous() else region.clone()


def published_digest(tensor: Any) -> str | None:
    """None unless MX_RESHARD_PUBLISH_DIGEST is on now."""
    return tensor_digest(tensor) if envs.get("MX_RESHARD_PUBLISH_DIGEST") else None
