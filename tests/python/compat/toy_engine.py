"""Small engines, as vLLM's loaders are written, and trainers' tables for them."""

from collections.abc import Iterable
from typing import Any

import torch

from modelexpress.refit.reshard.slice_plan import Shard
from modelexpress.refit.reshard.transfer_plan import SourceInfo

FUSED = {"q": (0, 4), "k": (4, 2), "v": (6, 2)}  #: first row and rows in qkv


def blank(*shape: int, device: str = "meta") -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(shape, device=device))


class Engine(torch.nn.Module):
    """The second of two tensor-parallel ranks: rows, columns, a fused tensor, and one that is whole."""

    RANK = 1

    def __init__(self, device: str = "meta", scales: bool = False) -> None:
        super().__init__()
        self.col, self.row = blank(4, 4, device=device), blank(4, 4, device=device)
        self.qkv, self.norm = blank(8, 4, device=device), blank(4, device=device)
        self.col.weight_loader = lambda parameter, loaded: self.cut(parameter, loaded, 0)
        self.row.weight_loader = lambda parameter, loaded: self.cut(parameter, loaded, 1)
        self.qkv.weight_loader = self.load_fused
        self.norm.weight_loader = lambda parameter, loaded: parameter.data.copy_(loaded)
        if scales:
            self.bad = blank(4, 4, device=device)
            self.bad.weight_loader = lambda parameter, loaded: parameter.data.copy_(loaded * 2)

    def cut(self, parameter: Any, loaded: Any, axis: int) -> None:
        extent = parameter.shape[axis]
        parameter.data.copy_(loaded.narrow(axis, self.RANK * extent, extent))

    def load_fused(self, parameter: Any, loaded: Any, part: str) -> None:
        parameter.data.narrow(0, *FUSED[part]).copy_(loaded)

    def load_weights(self, weights: "Iterable[tuple[str, Any]]") -> None:
        for name, loaded in weights:
            if name in FUSED:
                self.qkv.weight_loader(self.qkv, loaded, name)
            else:
                parameter = getattr(self, name)
                parameter.weight_loader(parameter, loaded)


SHAPES = {"col": (8, 4), "row": (4, 8), "q": (4, 4), "k": (2, 4), "v": (2, 4), "norm": (4,)}


def manifest(**more: Any) -> "list[tuple[str, Any, Any]]":
    return [(name, torch.float32, list(shape)) for name, shape in {**SHAPES, **more}.items()]


def full_tensors(**more: Any) -> "dict[str, torch.Tensor]":
    """No value twice, also not in two of them."""
    made, first = {}, 0.0
    for name, shape in {**SHAPES, **more}.items():
        count = torch.Size(shape).numel()
        made[name] = (first + torch.arange(float(count))).reshape(shape)
        first += count
    return made


def whole_source(tensor: torch.Tensor, session: str = "trainer") -> SourceInfo:
    shard = Shard((0,) * tensor.dim(), tuple(tensor.shape), session, tensor.data_ptr(), tensor.element_size())
    return SourceInfo(tuple(tensor.shape), tensor.dtype, tensor.element_size(), [shard])


def loaded_engine(tensors: "dict[str, torch.Tensor]", **options: Any) -> "dict[str, torch.Tensor]":
    """What the engine's own loader makes of the full tensors."""
    engine = Engine("cpu", **options)
    engine.load_weights(tensors.items())
    return {name: parameter.detach().clone() for name, parameter in engine.named_parameters()}
