"""Faces of the systems that Towline replaces, with their module names, signatures and seams.

:func:`activate` makes them importable under the original names, for code that already uses those.
``python -m towline.compat pytest ARGS`` runs pytest with them in place. docs/python.md says what each covers.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

_MODULES = (
    "modelexpress",
    "modelexpress.accelerators",
    "modelexpress.envs",
    "modelexpress.nixl_transfer",
    "modelexpress.refit",
    "modelexpress.refit.reshard",
    "modelexpress.refit.reshard.coverage",
    "modelexpress.refit.reshard.handshake",
    "modelexpress.refit.reshard.receiver",
    "modelexpress.refit.reshard.slice_plan",
    "modelexpress.refit.reshard.transfer_plan",
    "modelexpress.refit.reshard.transport",
    "modelexpress.refit.reshard.transport.base",
    "modelexpress.refit.reshard.transport.nixl",
    "modelexpress.refit.reshard.types",
    "modelexpress.refit.reshard.verify",
    "modelexpress.types",
)
#: What derives from torch's classes, and is left out where there is no torch.
_TORCH_MODULES = ("modelexpress.refit.reshard.geometry",)


def _modules() -> tuple[str, ...]:
    return _MODULES + (_TORCH_MODULES if importlib.util.find_spec("torch") is not None else ())


def activate() -> None:
    """Makes the faces importable under the original names. A second call does nothing.

    Raises :class:`ImportError` when the original is imported already: half of it would be ours.
    """
    for name in _modules():
        face = importlib.import_module(f"{__name__}.{name}")
        there = sys.modules.get(name)
        if there is not None and there is not face:
            raise ImportError(f"'{name}' is imported already, from {there.__file__}; activate towline.compat before it")
    for name in _modules():
        sys.modules[name] = sys.modules[f"{__name__}.{name}"]
