"""Loading the trainers that a plan reads from: each once, the ones that fail later again, within one budget."""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Mapping
from typing import Any

from towline.compat.modelexpress import envs
from towline.compat.modelexpress.refit.reshard.transfer_plan import TransferPlan

logger = logging.getLogger("modelexpress.refit.reshard.handshake")


def handshake_endpoints_for_plan(
    plan: TransferPlan, session_to_agent: Mapping[str, str], agent_endpoints: Mapping[str, str]
) -> dict[str, str]:
    """Of the agents that the plan reads from, and no others."""
    endpoints = {}
    for session in sorted(plan.sessions()):
        agent = session_to_agent[session]
        if agent not in agent_endpoints:
            raise RuntimeError(f"agent '{agent}' is to be read from, and published no metadata endpoint")
        endpoints[agent] = agent_endpoints[agent]
    return endpoints


class _Outstanding:
    """One peer that has not answered yet."""

    def __init__(self, agent: str, endpoint: str) -> None:
        self.agent = agent
        self.endpoint = endpoint
        self.attempts = 0
        self.last: Exception | None = None

    def dial(self, manager: Any, seconds: float) -> bool:
        self.attempts += 1
        try:
            host, _, port = self.endpoint.rpartition(":")
            manager.fetch_remote_and_wait(self.agent, host, int(port), timeout_seconds=seconds)
            return True
        except Exception as error:
            self.last = error
            return False

    def __str__(self) -> str:
        kind = type(self.last).__name__ if self.last is not None else "not dialled"
        return f"{self.agent}@{self.endpoint} ({self.attempts} attempt(s), {kind}: {self.last})"


def handshake_with_peers(
    manager: Any,
    agent_endpoints: Mapping[str, str],
    total_timeout: float | None = None,
    attempt_timeout: float | None = None,
) -> None:
    """Raises RuntimeError when the budget is gone; it names who has not answered and why."""
    budget = envs.get("MX_RESHARD_HANDSHAKE_TIMEOUT_S") if total_timeout is None else total_timeout
    attempt = envs.get("MX_RESHARD_HANDSHAKE_ATTEMPT_S") if attempt_timeout is None else attempt_timeout
    until = time.monotonic() + budget
    pending = collections.deque(_Outstanding(agent, endpoint) for agent, endpoint in agent_endpoints.items())
    failed_in_a_row = 0
    while pending:
        remaining = until - time.monotonic()
        if remaining <= 0:
            answered = len(agent_endpoints) - len(pending)
            raise RuntimeError(
                f"{answered} of {len(agent_endpoints)} peer(s) answered within {budget} s; outstanding: "
                + ", ".join(map(str, pending))
            )
        peer = pending.popleft()
        if peer.dial(manager, min(attempt, remaining)):
            failed_in_a_row = 0
            continue
        logger.warning("%s", peer)
        pending.append(peer)
        failed_in_a_row += 1
        if failed_in_a_row >= len(pending):
            time.sleep(max(0.0, min(envs.get("MX_RESHARD_HANDSHAKE_BACKOFF_S"), until - time.monotonic())))
            failed_in_a_row = 0
