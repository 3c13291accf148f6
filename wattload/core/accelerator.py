"""The emulated accelerator: how long it computes on one batch, per workload."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Accelerator:
    """An accelerator that is emulated by sleeping; no GPU is touched.

    ``step_s`` maps a workload's name to the published computation time of one step in seconds
    (MLPerf Storage ``computation_time``); 0 everywhere means unpaced. ``count`` is how many
    accelerators are emulated in all, so each rank drives ``count / world_size``; only 1, the usual
    setting, means one per rank however many ranks there are, as in MLPerf Storage.
    """

    name: str = "h100"
    count: int = 1
    step_s: dict[str, float] = field(default_factory=dict)
