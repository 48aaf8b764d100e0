"""What a refit is refused with."""

from __future__ import annotations

import collections
from collections.abc import Mapping


class UnsupportedReshard(NotImplementedError):
    """A geometry or dtype that cannot be expressed as reads."""


class IncompleteRefit(RuntimeError):
    """Planned without fault, and not all of the model."""


def summarize_unsupported(reasons: Mapping[str, str], limit: int | None = 3) -> list[tuple[str, int]]:
    """Equal causes and how often each, the most frequent first. What stands before " on lazy " is the cause."""
    counts = collections.Counter(reason.split(" on lazy ")[0] for reason in reasons.values())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ordered if limit is None else ordered[:limit]
