"""Tensors of torch and NumPy as flat bytes, and back: what crosses to the core.

The core knows a tensor as its name, dtype (torch's word), shape and bytes in row-major order. Nothing is copied.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from towline.errors import InvalidArgumentError

if TYPE_CHECKING:
    from towline._core import FlatTensor


def _refuse(name: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError("invalid_argument", "operation", f"tensor '{name}': {why}")


def flatten(tensors: Mapping[str, Any]) -> list[FlatTensor]:
    """``(name, dtype, shape, bytes)`` of each; the bytes are the tensor's own memory."""
    return [_flatten(_checked_name(name), tensor) for name, tensor in tensors.items()]


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise _refuse(repr(name), f"a name is a str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _refuse(ascii(name), "its name is not Unicode text") from None
    if not name or "\0" in name:
        raise _refuse(ascii(name), "a name has a character at least, and no NUL")
    return name


def _flatten(name: str, tensor: Any) -> FlatTensor:
    try:
        return _flatten_torch(name, tensor) if _is_torch(tensor) else _flatten_numpy(name, tensor)
    except InvalidArgumentError:
        raise
    except Exception as error:  # a kind of tensor that torch or NumPy cannot show as bytes
        raise _refuse(name, f"its bytes cannot be had: {error}") from error


def _is_torch(tensor: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _flatten_torch(name: str, tensor: Any) -> FlatTensor:
    import torch

    if tensor.device.type != "cpu":
        raise _refuse(name, f"it is on {tensor.device}; this release moves host memory, call .cpu() first")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise _refuse(name, "it is sparse or quantized; pass the tensors that it is made of")
    if tensor.is_conj() or tensor.is_neg():
        raise _refuse(name, "it is a lazy view; call .resolve_conj().resolve_neg() first")
    if not tensor.is_contiguous():
        raise _refuse(name, "it is not contiguous; call .contiguous() first")
    # DLPack knows neither bool nor tensors that ask for a gradient: the bytes alone go across.
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    return name, str(tensor.dtype), tuple(tensor.shape), flat


def _flatten_numpy(name: str, tensor: Any) -> FlatTensor:
    import numpy

    array = numpy.asarray(tensor)
    if array is not tensor and not hasattr(tensor, "__array_interface__"):
        raise _refuse(name, f"{type(tensor).__name__} is neither a torch tensor nor a NumPy array")
    if array.dtype.hasobject or array.dtype.names is not None:
        raise _refuse(name, f"a NumPy dtype {array.dtype} is no tensor's")
    if not array.dtype.isnative:
        raise _refuse(name, f"its bytes are in the other order ({array.dtype.str}); call .astype(dtype.newbyteorder('=')) first")
    if not array.flags["C_CONTIGUOUS"]:
        raise _refuse(name, "it is not contiguous; call numpy.ascontiguousarray first")
    if not array.flags["WRITEABLE"]:
        raise _refuse(name, "it is read-only; pass a copy, or set its flag writeable")
    return name, array.dtype.name, array.shape, array.reshape(-1).view(numpy.uint8)


def to_torch(flat: FlatTensor) -> Any:
    """A torch tensor over the core's memory, which lives as long as the tensor. A dtype that this torch does not
    have comes as ``uint8``, flat."""
    import torch

    _, dtype_text, shape, data = flat
    dtype = getattr(torch, dtype_text.removeprefix("torch."), None)
    tensor = torch.from_dlpack(data)
    if not isinstance(dtype, torch.dtype) or dtype.is_complex and tensor.data_ptr() % 16:
        return tensor
    if tensor.numel() == 0:
        return torch.empty(tuple(shape or (0,)), dtype=dtype)
    tensor = tensor.view(dtype)
    return tensor if shape is None else tensor.reshape(tuple(shape))
