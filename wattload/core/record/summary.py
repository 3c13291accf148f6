"""The summary in a record's file: rates, energies and metrics for people with ``jq``.

It is computed from the rest of the record when that is written, and is no input of anything: what
a record is read for is computed from its facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattload.core.record.run import RunRecord
from wattload.core.record.totals import drive_energy, moved_bytes


def summary_of(record: RunRecord) -> dict[str, Any]:
    return {
        "moved_bytes": moved_bytes(record.windows).value,
        "drive_energy_j": drive_energy(record.power, record.windows).value,
        "metrics": {
            metric.name: {
                "value": metric.value,
                "unit": metric.unit.value,
                "meaning": metric.meaning,
            }
            for metric in record.metrics
        },
        "phases": [
            {
                "name": window.name,
                "host": window.host,
                "timed": window.timed,
                "active_s": window.active_s,
                "read_bytes": window.read_bytes,
                "written_bytes": window.written_bytes,
                "bytes_per_s": (window.read_bytes + window.written_bytes) / window.active_s
                if window.active_s
                else None,
            }
            for window in record.windows
        ],
        "energy": [
            {
                "phase": energy.phase,
                "host": energy.host,
                "device": energy.device,
                "source": energy.source,
                "energy_j": energy.energy_j,
                "mean_w": energy.mean_w,
            }
            for energy in record.power.energy
            if energy.chosen
        ],
    }


def with_remark(record: RunRecord, summary: Mapping[str, Any]) -> RunRecord:
    """Return a record with a remark if ``summary``, of its file, is not the one of this version."""
    if summary == summary_of(record):
        return record
    remark = (
        f"The summary in the record was computed by version {record.software.wattload}; this "
        "version computes other figures from the same facts."
    )
    remarks = (*record.workload.remarks, remark)
    workload = record.workload.model_copy(update={"remarks": remarks})
    return record.model_copy(update={"workload": workload})
