"""One process of a fleet that holds a model: it pulls, loads and serves."""

from __future__ import annotations

import dataclasses
import datetime
import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Union

from towline import _core, tensors
from towline.errors import InvalidArgumentError

Setting = Union[str, int, float, bool, datetime.timedelta]


@dataclasses.dataclass(frozen=True)
class Report:
    """What a load or pull came to."""

    path: str  #: in words: ``disk, direct``, ``peer, ucx``
    from_worker_id: str | None
    bytes: int
    tensor_count: int
    verified_count: int  #: tensors whose digest was compared after the move, and equal
    transfer_seconds: float  #: from the first byte asked for to the last in place and checked
    verify_seconds: float  #: the part of it that checking did not hide
    local_only: list[str]  #: tensors of ours that the source does not have: left as they were
    source_only: list[str]


def _text(value: Setting) -> str:
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds()}s"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rank(rank: int) -> int:
    if not 0 <= rank < 2**32:
        raise InvalidArgumentError("invalid_argument", "operation", f"rank {rank} is not from 0 to 4294967295")
    return rank


class Replica:
    """An agent, the tensors it has registered, and its place in the fleet.

    ``settings`` are rows of docs/settings.md (``server="127.0.0.1:9310"``, ``transport="ucx"``, ``deadline=60.0``,
    ``verify=False``); the environment (``TOWLINE_SERVER``) fills in the rest. Use as a context manager, or call
    :meth:`close`. Thread-safe: one call at a time, others wait. Waiting releases the GIL.
    """

    def __init__(self, **settings: Setting) -> None:
        self._lock = threading.RLock()
        self._core = _core.Replica.open({name: _text(value) for name, value in settings.items()})
        self.report: Report | None = None  #: of the last load or pull
        self.worker_id: str | None = None  #: while it serves
        self.source_id: str | None = None  #: while it serves

    def register(self, named_tensors: Mapping[str, Any], *, digests: bool = True) -> None:
        """Makes these tensors (torch on the CPU, or NumPy; contiguous) the ones that :meth:`pull` fills and
        :meth:`serve` offers. Their memory is used as it is and held until :meth:`close`. Whoever pulls them verifies
        them by the digests that are computed now; tensors that are only pulled into need none."""
        with self._lock:
            self._core.register_tensors(tensors.flatten(named_tensors), digests)

    def load(self, checkpoint: str | os.PathLike[str]) -> Report:
        """Reads a checkpoint from disk into new memory."""
        with self._lock:
            self.report = Report(**self._core.load(os.fsdecode(checkpoint)))
            return self.report

    def pull(self, model: str, *, worker: str | None = None, rank: int = 0, require_exact_match: bool = False) -> Report:
        """Pulls from a replica that serves ``model`` (from ``worker`` alone, if named) into the registered tensors, or
        into new memory. Verified against the source's digests unless the setting ``verify`` is false."""
        with self._lock:
            self.report = Report(**self._core.pull(model, worker, _rank(rank), require_exact_match))
            return self.report

    def serve(self, model: str, *, worker_id: str | None = None, rank: int = 0) -> None:
        """Offers the registered tensors to others until :meth:`withdraw` or :meth:`close`. Do not write to them
        meanwhile: whoever pulls would find that a digest differs."""
        with self._lock:
            self.worker_id, self.source_id = self._core.serve(model, worker_id, _rank(rank))

    def check_serving(self) -> None:
        """Raises what ended it, when it is served no longer: code ``already_exists`` after another process has taken
        over its worker id. Withdraw it then, and serve under another."""
        with self._lock:
            self._core.check_serving()

    def withdraw(self) -> None:
        """Stops offering; what is registered stays."""
        with self._lock:
            self._core.withdraw()
            self.worker_id = self.source_id = None

    @property
    def tensors(self) -> dict[str, Any]:
        """The registered tensors as torch tensors over the same memory, which they keep."""
        with self._lock:
            return {flat[0]: tensors.to_torch(flat) for flat in self._core.tensors()}

    def close(self) -> None:
        """Withdraws, closes the agent, and lets the memory go. A second call does nothing."""
        with self._lock:
            self._core.close()
            self.worker_id = self.source_id = None

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pull(
    model: str,
    *,
    into: Mapping[str, Any] | None = None,
    worker: str | None = None,
    rank: int = 0,
    require_exact_match: bool = False,
    **settings: Setting,
) -> Replica:
    """Pulls a model from a running replica: into the tensors of ``into``, or into new memory (``replica.tensors``).

    >>> with towline.pull("llama", server="127.0.0.1:9310") as replica:
    ...     model.load_state_dict(replica.tensors)
    """
    replica = Replica(**settings)
    try:
        if into is not None:
            replica.register(into, digests=False)
        replica.pull(model, worker=worker, rank=rank, require_exact_match=require_exact_match)
    except BaseException:
        replica.close()
        raise
    return replica


def serve(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    model: str,
    worker_id: str | None = None,
    rank: int = 0,
    **settings: Setting,
) -> Replica:
    """Serves a checkpoint, or tensors of this process, to other replicas until the result is closed.

    >>> with towline.serve(model.state_dict(), model="llama", server="127.0.0.1:9310"):
    ...     run()
    """
    replica = Replica(**settings)
    try:
        if isinstance(source, Mapping):
            replica.register(source)
        else:
            replica.load(source)
        replica.serve(model, worker_id=worker_id, rank=rank)
    except BaseException:
        replica.close()
        raise
    return replica
