"""Metrics and checks of made-up runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wattload.core.record.phase import PhaseWindow
from wattload.core.record.results import Check, Metric
from wattload.core.units import Unit

if TYPE_CHECKING:
    from tests.records import Scenario


def metrics(scenario: Scenario, windows: Sequence[PhaseWindow]) -> list[Metric]:
    """Return a rate and a time per timed phase, and what a workload adds; none that facts give."""
    found: list[Metric] = []
    if scenario.workload in ("checkpoint", "dlrm"):
        return found
    for window in windows:
        if not window.timed:
            continue
        moved_bytes = window.read_bytes + window.written_bytes
        kind = {"write": "write", "read": "read", "train": "throughput"}.get(window.name)
        found.append(
            Metric(
                name=f"{kind or f'throughput_{window.name}'}_bytes_per_s",
                value=moved_bytes / window.seconds,
                unit=Unit.BYTES_PER_SECOND,
                better="higher",
                meaning=f"Bytes that moved in {window.name}, divided by its seconds.",
                phase=window.name,
                headline=True,
            )
        )
        found.append(
            Metric(
                name=f"{window.name}_s",
                value=window.seconds,
                unit=Unit.SECONDS,
                better="lower",
                meaning=f"From the first start to the last end of {window.name}.",
                phase=window.name,
            )
        )
    if scenario.workload == "unet3d":
        found += _unet3d_metrics(scenario)
    return found


def _unet3d_metrics(scenario: Scenario) -> list[Metric]:
    utilisation = min(0.98, scenario.rate_bytes_per_s / 2.1e9)
    return [
        Metric(
            name="au_nominal",
            value=utilisation,
            unit=Unit.FRACTION,
            better="higher",
            meaning="Steps times nominal step time, divided by the wall time of the same window.",
            phase="train",
            headline=True,
        ),
        Metric(
            name="batch_latency_p50_s",
            value=0.21 / utilisation,
            unit=Unit.SECONDS,
            better="lower",
            meaning="Half of the batches came within this time.",
            phase="train",
        ),
        Metric(
            name="batch_latency_p99_s",
            value=None,
            unit=Unit.SECONDS,
            better="lower",
            meaning="99 of 100 batches came within this time.",
            phase="train",
            missing={"value": "1000 batches are the least for a p99; this run had 112"},
        ),
    ]


COLD = {"resident_bytes": 0, "total_bytes": 4_104_817_584}
WRITTEN = {"file_count": 8, "unwritten_bytes": 0}
OF_WORKLOAD: Mapping[str, Mapping[str, Mapping[str, float | int | str | None]]] = {
    "unet3d": {
        "cold_cache": COLD,
        "written_extents": WRITTEN,
        "delivered_bytes": {
            "read_bytes": 4_104_817_584,
            "verified_bytes": 4_104_817_584,
            "bad_blocks": 0,
            "hashed_samples": 8,
            "expected_samples": 8,
            "altered_samples": 0,
            "altered_rows": 0,
            "altered_device_rows": None,
        },
    },
    "checkpoint": {
        "cold_cache": COLD,
        "written_extents": WRITTEN,
        "checkpoint_committed": {"kept": 4, "different_ranks": 0},
    },
    "dlrm": {
        "cold_cache_tsv_to_parquet": COLD,
        "cold_cache_parquet_to_binary": COLD,
        "written_extents": WRITTEN,
        "data_digests": {"file_count": 2, "changed_count": 0},
        "dlrm_content": {"different_count": 0, "rounds": 2},
        "dlrm_rows": {
            "day_line_count": 10,
            "line_count": 10,
            "parquet_row_count": 10,
            "packed_row_count": 10.0,
        },
        "dlrm_sample": {
            "compared_count": 4,
            "different_count": 0,
            "expected_sha256": "ab",
            "found_sha256": "ab",
        },
        "dlrm_tsv_bytes": {"read_bytes": 512, "file_bytes": 256, "rounds": 2},
    },
}
"""The checks that only a workload can make, with figures that support them."""


def checks(workload: str, windows: Sequence[PhaseWindow]) -> list[Check]:
    """Return what a run on a shared disk would have found."""
    timed = [window for window in windows if window.timed]
    found = [
        *(
            Check(
                name=name,
                verdict="pass",
                sentence="Its figures are those of a run without a fault.",
                figures=figures,
                mandatory=True,
            )
            for name, figures in OF_WORKLOAD[workload].items()
        ),
        Check(
            name="harness_ceiling",
            verdict="not_checked",
            sentence="The same run against memory was not made, so the host's ceiling is unknown.",
        ),
    ]
    return found + [_device_bytes(window.name) for window in timed]


def _device_bytes(phase: str) -> Check:
    return Check(
        name=f"device_bytes_{phase}",
        verdict="pass",
        sentence="The device moved 1.0010 of the bytes that the application counted.",
        figures={"ratio": 1.001},
        mandatory=True,
    )
