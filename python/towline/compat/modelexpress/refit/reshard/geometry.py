"""What an engine's own weight loader does with each source, found out by running it on tensors that have no storage.

Chains are recorded as they are called; whether one is a box of its source is decided when it is planned.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from towline.compat.modelexpress.refit.reshard.types import (
    CaptureResult,
    OpChain,
    OpSpec,
    RecordedCopy,
    UnsupportedReshard,
    summarize_unsupported,
)

__all__ = ["CaptureResult", "LazyWeight", "OpChain", "OpSpec", "RecordedCopy", "UnsupportedReshard", "capture_geometry"]

logger = logging.getLogger("modelexpress.refit.reshard.geometry")

_NAMES = (
    "narrow view reshape __getitem__ unsqueeze squeeze transpose t permute flatten contiguous chunk unbind"
).split()
#: The calls that are recorded, by torch's function: a tensor's method, and torch's own of that name where it has one.
_OPS = {
    getattr(owner, name): name
    for owner in (torch.Tensor, torch)
    for name in _NAMES
    if owner is torch.Tensor or hasattr(owner, name)
}
# The later name came with torch 2.0, where the earlier one also switches function modes off.
_as_plain = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction


@dataclasses.dataclass
class _Recorder:
    copies: list[RecordedCopy] = dataclasses.field(default_factory=list)
    unattributed: int = 0
    parameter: str | None = None  #: whose loader is running

    def record(self, source: LazyWeight, to: torch.Tensor) -> None:
        if self.parameter is None:
            self.unattributed += 1
            return
        self.copies.append(
            RecordedCopy(
                src_name=source._name,
                op_chain=source._ops,
                param_name=self.parameter,
                dest_offset=int(to.storage_offset()),
                dest_shape=tuple(to.shape),
                dest_stride=tuple(to.stride()),
                dest_dtype=to.dtype,
            )
        )


class LazyWeight(torch.Tensor):
    """Stands for a source: it knows shape, dtype and device, and the calls that made it; it has no storage.

    The calls that leave a view give another one; ``destination.copy_(lazy)`` is recorded and moves nothing; whatever
    would need a value raises UnsupportedReshard.
    """

    _name: str
    _ops: OpChain
    _recorder: _Recorder | None

    @staticmethod
    def __new__(  # type: ignore[misc]
        cls: type[LazyWeight], name: str, shape: Any, dtype: Any, device: Any, ops: OpChain = (), recorder: Any = None
    ) -> LazyWeight:
        made = torch.Tensor._make_wrapper_subclass(cls, torch.Size(shape), dtype=dtype, device=device)
        made._name, made._ops, made._recorder = name, tuple(ops), recorder
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.copy_:
            source = args[1] if len(args) > 1 else kwargs.get("src", kwargs.get("other"))
            if isinstance(source, cls):
                if source._recorder is not None:
                    source._recorder.record(source, args[0])
                return args[0]
        if func in _OPS and args and isinstance(args[0], cls):
            return args[0]._after(func, (_OPS[func], tuple(args[1:]), tuple(sorted(kwargs.items()))), args[1:], kwargs)
        with _as_plain():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for one in _flat((*args, *kwargs.values())):
            if isinstance(one, cls):
                raise one._refusal(f"unsupported op {func}")
        return func(*args, **kwargs)

    def _after(self, func: Any, call: OpSpec, args: Any, kwargs: Any) -> Any:
        """Torch says on a tensor without storage what the call makes of the shape."""
        with _as_plain():
            try:
                made = func(torch.empty(self.shape, dtype=self.dtype, device="meta"), *args, **kwargs)
            except (IndexError, RuntimeError, TypeError, ValueError) as error:
                raise self._refusal(f"{call[0]} refused ({error})") from error
        if isinstance(made, torch.Tensor):
            return self._child(made, call)
        if isinstance(made, (tuple, list)):  # each is the call's result, then the one at its index
            return tuple(self._child(one, call, ("__getitem__", (i,), ())) for i, one in enumerate(made))
        raise self._refusal(f"unsupported result of {call[0]} ({type(made).__name__})")

    def _child(self, like: torch.Tensor, *calls: OpSpec) -> LazyWeight:
        return LazyWeight(self._name, like.shape, like.dtype, self.device, (*self._ops, *calls), self._recorder)

    def _refusal(self, cause: str) -> UnsupportedReshard:
        return UnsupportedReshard(f"{cause} on lazy '{self._name}' (chain={self._ops}); taken are {', '.join(_NAMES)}, copy_")


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value


def _attributing(loader: Callable[..., Any], name: str, recorder: _Recorder) -> Callable[..., Any]:
    """The loader, with its parameter's name known while it runs. Loaders are called by position and by keyword."""

    @functools.wraps(loader)
    def load(*args: Any, **kwargs: Any) -> Any:
        before, recorder.parameter = recorder.parameter, name
        try:
            return loader(*args, **kwargs)
        finally:
            recorder.parameter = before

    return load


@contextmanager
def _attributed(model: Any, recorder: _Recorder, default_loader: Callable[..., Any] | None) -> Iterator[None]:
    """Every parameter's loader tells whose it is; afterwards all are as they were."""
    replaced: list[tuple[Any, Any]] = []
    try:
        for name, parameter in model.named_parameters():
            own = getattr(parameter, "weight_loader", None)
            loader = own if own is not None else default_loader
            if loader is not None:
                parameter.weight_loader = _attributing(loader, name, recorder)
                replaced.append((parameter, own))
        yield
    finally:
        for parameter, own in replaced:
            if own is None:
                del parameter.weight_loader
            else:
                parameter.weight_loader = own


def capture_geometry(
    model: Any, manifest: Iterable[tuple[str, Any, Any]], default_weight_loader: Callable[..., Any] | None = None
) -> CaptureResult:
    """Runs ``model.load_weights`` once for each (name, dtype, shape) of ``manifest``, so that what cannot be followed is
    that source's alone. ``default_weight_loader`` is the framework's own, for parameters that have none: without it
    their copies are counted, and lost. The model best lies on torch's meta device; nothing of it is written.
    """
    recorder = _Recorder()
    result = CaptureResult(copies=recorder.copies)
    with _attributed(model, recorder, default_weight_loader):
        for name, dtype, shape in manifest:
            already = len(recorder.copies)
            try:
                model.load_weights([(name, LazyWeight(name, shape, dtype, "meta", recorder=recorder))])
            except UnsupportedReshard as refused:
                del recorder.copies[already:]  # what was recorded before the loader went astray is not all of it
                result.unsupported.append(name)
                result.unsupported_reasons[name] = str(refused)
    result.unattributed = recorder.unattributed
    logger.info(
        "captured %d copies; unsupported sources %d, copies into no known parameter %d",
        len(result.copies), len(result.unsupported), result.unattributed,
    )  # fmt: skip
    for cause, count in summarize_unsupported(result.unsupported_reasons):
        logger.warning("unsupported sources %d, cause %s", count, cause)
    return result
