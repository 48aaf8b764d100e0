"""Tensors on a Python agent: any object with the methods of a NIXL agent carries the bytes, the core does the rest.

For agents of our own (UCX, shared memory) use :class:`towline.Replica`; for code that was written against
ModelExpress, :mod:`towline.compat`. docs/transfer.md says what the core decides and in which order.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from towline import _core, errors

logger = logging.getLogger("towline.transfer")

#: The allocation that holds an address: its base and bytes. Raises when there is none.
RangeQuery = Callable[[int], "tuple[int, int]"]


@dataclasses.dataclass(frozen=True)
class Descriptor:
    """A tensor as its owner publishes it."""

    name: str
    address: int
    bytes: int
    device_id: int
    dtype: str  #: ``str(torch.dtype)``


@dataclasses.dataclass(frozen=True)
class Received:
    """What a receive came to."""

    bytes: int
    tensor_count: int  #: matched by name, empty ones included
    seconds: float


def _no_query(address: int) -> tuple[str | None, int, int]:
    raise errors.InvalidArgumentError("invalid_argument", "operation", f"address {address:#x}: pass a query to register by allocation")


def _adapt(query: RangeQuery) -> Callable[[int], tuple[str | None, int, int]]:
    def ask(address: int) -> tuple[str | None, int, int]:
        base, size = query(address)
        return None, base, size

    return ask


def held(tensors: Mapping[str, Any]) -> list[tuple[str, Any, int, int, str]]:
    """(name, tensor, address, bytes, dtype) of each: what the core takes."""
    return [(name, one, one.data_ptr(), one.numel() * one.element_size(), str(one.dtype)) for name, one in tensors.items()]


def find_strided(tensors: Mapping[str, Any]) -> str | None:
    """The first that is not contiguous: registering it would move other bytes than its own."""
    return next((name for name, tensor in tensors.items() if not tensor.is_contiguous()), None)


def _contiguous(tensors: Mapping[str, Any]) -> list[tuple[str, Any, int, int, str]]:
    strided = find_strided(tensors)
    if strided is not None:
        raise errors.InvalidArgumentError("invalid_argument", "operation", f"tensor '{strided}': it is not contiguous")
    return held(tensors)


class Manager:
    """One agent's tensors. One call at a time; waiting releases the GIL. What the agent raises comes out as it is.

    ``synchronize`` is called after the bytes have landed: remote writes pass by the streams that compute. ``on_receive``
    and ``on_error`` count outcomes (``complete``, ``partial``, ``empty``, ``rejected``) and failed waits (``timeout``,
    ``status_error``).
    """

    def __init__(
        self,
        agent: Any,
        *,
        device_id: int = 0,
        backends: Sequence[str] = ("UCX",),
        memory_kind: str = "VRAM",
        synchronize: Callable[[], object] = lambda: None,
        on_receive: Callable[[str], object] = lambda result: None,
        on_error: Callable[[str], object] = lambda kind: None,
    ) -> None:
        self._agent = agent
        self._core = _core.AgentCore(
            agent, device_id, list(backends), memory_kind, synchronize, _log, on_receive, on_error
        )
        self._device_id = device_id
        self._tensors: dict[str, Any] = {}

    def register(self, tensors: Mapping[str, Any], *, pool: bool = False, query: RangeQuery | None = None) -> Any:
        """Makes the tensors reachable, each by itself or (``pool``) the allocations that hold them; the agent's
        metadata. They are what :meth:`receive` fills unless it is told otherwise. Tensors of an earlier call that are
        not among them are deregistered and let go."""
        rows = _contiguous(tensors)
        metadata = self._core.register_tensors(rows, pool, _adapt(query) if query else _no_query, False)
        self._tensors = dict(tensors)
        return metadata

    def descriptors(self) -> list[Descriptor]:
        """The registered tensors, as a peer wants to know them."""
        return [Descriptor(name, address, size, self._device_id, dtype) for name, _, address, size, dtype in _contiguous(self._tensors)]

    def receive(
        self,
        peer: Union[str, bytes],
        source: Sequence[Descriptor],
        *,
        into: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        require_exact_match: bool = False,
        on_start: Callable[[], object] | None = None,
    ) -> Received:
        """Reads, by name, what both sides have. ``peer`` is the name of an agent that is loaded, or its metadata: then
        it is loaded for this call and removed after it. Raises :class:`towline.Error`; nothing was written when it says
        ``failed_precondition``."""
        if isinstance(peer, bytes):
            name = self._agent.add_remote_agent(peer)
            name = name.decode() if isinstance(name, bytes) else name
            try:
                return self.receive(
                    name, source, into=into, timeout=timeout, require_exact_match=require_exact_match, on_start=on_start
                )
            finally:
                self.remove_peer(name)
        described = [(one.name, one.address, one.bytes, one.device_id, one.dtype) for one in source]
        destination = _contiguous(self._tensors if into is None else into)
        outcome = self._core.receive(peer, described, destination, timeout, bool(require_exact_match), on_start)
        if outcome["code"]:
            raise errors.make(outcome["code"], "operation", outcome["message"])
        return Received(outcome["bytes"], outcome["tensors"], outcome["seconds"])

    def remove_peer(self, name: str) -> bool:
        """Whether the agent has closed it: then nothing of it can land any more, and memory of a receive that was given
        up may be used again."""
        return bool(self._core.remove_peer(name))

    def close(self) -> None:
        """Removes the peers that it received from, and deregisters, the latest first. A second call does nothing."""
        self._core.shutdown()
        self._tensors = {}

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _log(level: int, message: str) -> None:
    logger.log(level, "%s", message)
