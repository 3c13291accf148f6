"""The checks that made-up runs store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.core.record.phase import PhaseWindow
from wattload.core.record.results import Check

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
