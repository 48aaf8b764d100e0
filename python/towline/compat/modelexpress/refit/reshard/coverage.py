"""How much of an engine's parameters a plan writes: one line for people and machines, and a gate for who wants one."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Mapping
from typing import Any

from towline.compat.modelexpress import envs
from towline.compat.modelexpress.refit.reshard.types import IncompleteRefit, summarize_unsupported
from towline.compat.modelexpress.refit.reshard.transfer_plan import TransferPlan

SAMPLE = 10
SAMPLE_CHARACTERS = 120
CAUSES = 3
FLOOR = 0.995


def _bytes_of(shape: Any, dtype: Any) -> int:
    import torch

    return int(torch.Size(shape).numel()) * int(torch.empty((), dtype=dtype).element_size())


def record(
    rank: int, capture: Any, layout: Mapping[str, tuple[Any, Any]], params: Collection[str], plan: TransferPlan
) -> dict[str, Any]:
    """``layout``: the engine's complete set; ``params``: those that some copy writes."""
    sizes = {name: _bytes_of(shape, dtype) for name, (shape, dtype) in layout.items()}
    engine_bytes = sum(sizes.values())
    dest_bytes = sum(sizes[name] for name in params if name in sizes)
    missed = sorted(set(sizes) - set(params))
    known = getattr(capture, "unsupported_reasons", None) or {}
    reasons = {name: known.get(name, "cause not recorded at capture") for name in capture.unsupported}
    sample = [f"{name}: {reason}"[:SAMPLE_CHARACTERS] for name, reason in list(reasons.items())[:SAMPLE]]
    return {
        "schema": "refit-coverage-v1",
        "rank": rank,
        "params_installed": len(set(params) & set(sizes)),
        "engine_params": len(sizes),
        "dest_bytes": dest_bytes,
        "engine_bytes": engine_bytes,
        "coverage_pct": round(100.0 * dest_bytes / engine_bytes, 4) if engine_bytes else 0.0,
        "params_never_written": len(missed),
        "params_never_written_sample": missed[:SAMPLE],
        "copies_captured": len(capture.copies),
        "unsupported": len(capture.unsupported),
        "unsupported_sample": sample,
        "unsupported_causes": [f"{count} x {cause}" for cause, count in summarize_unsupported(reasons, CAUSES)],
        "planned_wire_bytes": plan.bytes_planned(),
        "extra_wire_bytes": plan.extra_wire_bytes(),
        "descriptors": plan.descriptor_count(),
        "descriptor_savings": plan.descriptor_savings(),
        "full_pull_sources": len(plan.full_pulls),
        "unbounded_sources": len(plan.unbounded_sources),
        "converts": len(plan.converts),
        "fallback": len(plan.fallback),
    }


def log(logger: logging.Logger, coverage: Mapping[str, Any]) -> None:
    is_clean = not (coverage["params_never_written"] or coverage["unsupported"] or coverage["fallback"])
    logger.log(logging.INFO if is_clean else logging.WARNING, "MX_REFIT_COVERAGE %s", json.dumps(coverage))


def check(coverage: Mapping[str, Any]) -> None:
    """Raises where the gate is on and less is written than its floor."""
    if not envs.get("MX_RESHARD_REQUIRE_FULL_COVERAGE"):
        return
    floor = _floor()
    fraction = coverage["dest_bytes"] / coverage["engine_bytes"] if coverage["engine_bytes"] else 0.0
    if fraction >= floor:
        return
    raise IncompleteRefit(
        f"rank {coverage['rank']}: the plan writes {100 * fraction:.2f}% of the engine's bytes, "
        f"{coverage['params_installed']} of {coverage['engine_params']} parameters; not "
        f"{', '.join(coverage['params_never_written_sample'])}. Parameters that the loader never requested are never "
        "checked otherwise; MX_RESHARD_REQUIRE_FULL_COVERAGE=0 lets it pass"
    )


def _floor() -> float:
    text = os.environ.get("MX_RESHARD_COVERAGE_FLOOR")
    try:
        floor = FLOOR if text is None else float(text)
    except ValueError:
        logging.getLogger("modelexpress.refit.reshard.receiver").warning("MX_RESHARD_COVERAGE_FLOOR=%r is not a number; using %s", text, FLOOR)
        return FLOOR
    if not 0.0 <= floor <= 1.0:
        raise ValueError(f"MX_RESHARD_COVERAGE_FLOOR is {floor}; it is a fraction in [0.0, 1.0]")
    return floor
