"""Which way the bytes really took: from the checks' counters to each path's ``path_effective``."""

from __future__ import annotations

from wattload.core.checks.movement import device_bytes
from wattload.core.record.check import Check
from wattload.core.record.run import RunRecord


def with_effective_paths(record: RunRecord) -> RunRecord:
    """Return the record with each path's effective way, where device counters prove it.

    A path stays ``unverified`` unless the device moved 0.98 to 1.02 of the application's bytes in
    every timed phase that moved any.
    """
    proofs = device_bytes(record)
    proved = bool(proofs) and all(check.verdict == "pass" for check in proofs)
    evidence = "; ".join(_figure(check) for check in proofs) or "no timed phase moved a byte"
    paths = tuple(
        path.model_copy(
            update={
                "path_effective": _name(path.path_requested) if proved else "unverified",
                "path_evidence": evidence,
            }
        )
        for path in record.workload.paths
    )
    return record.model_copy(
        update={"workload": record.workload.model_copy(update={"paths": paths})}
    )


def _name(requested: str) -> str:
    return requested if requested == "o_direct" else f"{requested}, filled from the device"


def _figure(check: Check) -> str:
    ratio = check.figures.get("ratio")
    phase = check.name.removeprefix("device_bytes_")
    if not isinstance(ratio, float):
        return f"{phase}: not counted"
    return f"{phase}: device bytes over application bytes {ratio:.4f}"
