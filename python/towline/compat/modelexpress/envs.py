"""The client's environment switches, read at each use by the rules of the core: ``envs.MX_POOL_REG``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Optional

from towline import _core

logger = logging.getLogger("modelexpress.envs")

Rule = Callable[[Optional[str]], Any]


def _strict_one(text: str | None) -> bool:
    return _core.parse_strict_one(text)


def _truthy(text: str | None) -> bool:
    return _core.parse_truthy(text)


def _one_or_true(otherwise: bool) -> Rule:
    return lambda text: otherwise if text is None else _core.parse_one_or_true(text)


def _lenient(parse: Callable[[Optional[str], Any], tuple[Any, bool]], otherwise: Any) -> Rule:
    def rule(text: str | None) -> Any:
        value, bad_text = parse(text, otherwise)
        if bad_text:
            raise _BadText(value)
        return value

    return rule


class _BadText(Exception):
    """Carries the value that is used instead."""


def _switch(otherwise: bool) -> Rule:
    return _lenient(_core.parse_switch, otherwise)


def _whole(otherwise: int) -> Rule:
    return _lenient(_core.parse_whole, otherwise)


def _real(otherwise: float) -> Rule:
    return _lenient(_core.parse_real, otherwise)


def _positive(otherwise: float) -> Rule:
    return _lenient(_core.parse_positive, otherwise)


def _text(otherwise: str) -> Rule:
    return lambda text: otherwise if text is None else text


_RULES: dict[str, Rule] = {
    "MX_POOL_REG": _strict_one,
    "MX_ARENA_SINGLE_MR": _strict_one,
    "MX_VMM_ARENA": _strict_one,
    "MX_UCX_DISABLE_MEM_EVENTS": _truthy,
    "MX_RDMA_NIC_PIN": _text(""),
    "NIXL_UCX_TLS": _text(""),
    "MX_TRANSFER_TIMEOUT": _whole(900),
    "MX_SOURCE_QUERY_TIMEOUT": _whole(3600),
    "MX_P2P_METADATA": lambda text: _core.parse_strict_one("1" if text is None else text),
    "MX_METADATA_PORT": _whole(5555),
    "MX_WORKER_GRPC_PORT": _whole(6555),
    "MX_WORKER_HOST": _text(""),
    "MX_HEARTBEAT_INTERVAL_SECS": _whole(30),
    "MX_PUBLISH_TIMEOUT_SECS": _whole(1800),
    "MX_MODEL_REVISION": _text(""),
    "MX_ARTIFACT_TRANSFER": _truthy,
    "MX_ARTIFACT_READY_TIMEOUT_SECS": _whole(1800),
    "MX_METRICS_ENABLED": _truthy,
    "MX_METRICS_SOURCE_ID_LABEL": _truthy,
    "MX_METRICS_SCHEME": _text(""),
    "MX_METRICS_BIND_RETRY_SECS": _real(15.0),
    "MX_GDS_TIMEOUT": _real(120.0),
    "MX_MS_DISTRIBUTED": _one_or_true(True),
    "MX_INSTANT_TENSOR": _one_or_true(True),
    "MX_RESHARD_FUSED_WIRE": _switch(True),
    "MX_RESHARD_BATCH_INSTALL": _switch(True),
    "MX_RESHARD_CACHE_DESCRIPTORS": _switch(True),
    "MX_REFIT_STAGE_RECORD": _switch(True),
    "MX_RESHARD_PUBLISH_DIGEST": _switch(False),
    "MODEL_EXPRESS_NO_SHARED_STORAGE": _switch(False),
    "MX_RESHARD_REQUIRE_FULL_COVERAGE": _truthy,
    "MX_RESHARD_HANDSHAKE_TIMEOUT_S": _positive(900.0),
    "MX_RESHARD_HANDSHAKE_ATTEMPT_S": _positive(20.0),
    "MX_RESHARD_HANDSHAKE_BACKOFF_S": _positive(2.0),
    "MX_RESHARD_MAX_GBPS": _real(0.0),
}


def get(name: str) -> Any:
    """The value that a switch has now. Raises KeyError for one that is not of the client's."""
    try:
        return _RULES[name](os.environ.get(name))
    except _BadText as bad:
        logger.warning("%s=%r is not understood; using %r", name, os.environ.get(name), bad.args[0])
        return bad.args[0]


def rdma_transfer_timeout(default: float = 300.0) -> float:
    """Of the RDMA load path: the variable counts only when it is set to a finite number above zero."""
    text = os.environ.get("MX_TRANSFER_TIMEOUT")
    value, bad_text = _core.parse_positive(text, default)
    if bad_text:
        logger.warning("MX_TRANSFER_TIMEOUT=%r is no time in seconds; using %s", text, default)
    return value


def __getattr__(name: str) -> Any:
    if name in _RULES:
        return get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
