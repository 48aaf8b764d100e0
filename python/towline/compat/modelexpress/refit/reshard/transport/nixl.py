"""Reads from many trainers over a NIXL transfer manager: every peer's batch is posted before any is awaited."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from towline.compat.modelexpress.refit.reshard.transport.base import ReadDescriptor

logger = logging.getLogger("modelexpress.refit.reshard.transport.nixl")

Range = tuple[int, int, int, int]  #: remote address, local address, bytes, remote device


def _is_serial() -> bool:
    return os.environ.get("MX_RESHARD_SERIAL_READS", "") not in ("", "0", "false")


class NixlReshardTransport:
    def __init__(
        self,
        manager: Any,
        session_to_agent: Mapping[str, str],
        session_to_device: Mapping[str, int] | None = None,
        mem_type: str | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        self._manager = manager
        self._session_to_agent = session_to_agent
        self._session_to_device = session_to_device or {}
        self._mem_type = mem_type
        self._timeout = timeout_seconds
        self.bytes_moved = 0
        self.reads_issued = 0

    def read(self, descriptors: Iterable[ReadDescriptor]) -> None:
        """Returns when every byte has arrived; raises KeyError for a session that nobody knows, before anything is
        posted."""
        batches = self._batches(descriptors)
        if not batches:
            return
        for moved, reads, _ in self._serial(batches) if _is_serial() else [self._together(batches)]:
            self.bytes_moved += moved
            self.reads_issued += reads

    def _batches(self, descriptors: Iterable[ReadDescriptor]) -> dict[str, list[Range]]:
        batches: dict[str, list[Range]] = {}
        for one in descriptors:
            agent = self._session_to_agent[one.session]
            if one.session not in self._session_to_device:
                raise KeyError(f"session '{one.session}': no remote device id of agent '{agent}'")
            device = self._session_to_device[one.session]
            batches.setdefault(agent, []).append((one.src_addr, one.dst_addr, one.nbytes, device))
        return batches

    def _serial(self, batches: Mapping[str, list[Range]]) -> Iterable[tuple[int, int, float]]:
        for agent, ranges in batches.items():
            yield self._manager.execute_read_batch(
                agent, ranges, mem_type=self._mem_type, timeout_seconds=self._timeout
            )

    def _together(self, batches: Mapping[str, list[Range]]) -> tuple[int, int, float]:
        posted: list[Any] = []
        try:
            for agent, ranges in batches.items():
                posted.append(self._manager.post_read_batch(agent, ranges, mem_type=self._mem_type))
        except BaseException:
            self._drain(posted)
            raise
        moved: tuple[int, int, float] = self._manager.await_read_batches(posted, timeout_seconds=self._timeout)
        return moved

    def _drain(self, posted: list[Any]) -> None:
        """Lets go of what was posted before a post failed; that failure is the one to be told."""
        if not posted:
            return
        try:
            self._manager.await_read_batches(posted, timeout_seconds=self._timeout)
        except Exception:
            logger.warning("draining %d posted batches failed", len(posted), exc_info=True)
