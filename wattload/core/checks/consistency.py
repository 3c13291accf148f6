"""Checks whether the parts of a record belong to one finished run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit


def finished(record: RunRecord) -> Sequence[Check]:
    """Fail a record that is marked complete but lacks what only a run's end adds."""
    if record.status != "complete":
        return []
    gaps = list(_unfinished(record))
    return [
        Check(
            name="finished",
            verdict="fail" if gaps else "pass",
            sentence=f"The record is marked complete, but {', '.join(gaps)}."
            if gaps
            else "The run ended on every host and every rank.",
            mandatory=True,
        )
    ]


def _unfinished(record: RunRecord) -> Iterator[str]:
    if record.finished_utc is None:
        yield "it has no time of its end"
    if not record.hosts:
        yield "it has no host"
    for host in record.hosts:
        if host.after is None:
            yield f"the state of {host.facts.name} after the run is missing"
    if len(record.ranks) != record.workload.rank_count:
        yield f"it has {len(record.ranks)} of {record.workload.rank_count} ranks"
    if not record.windows:
        yield "it has no phase"


def phases_known(record: RunRecord) -> Sequence[Check]:
    """Fail a finished run with figures of a phase that it does not have: the phase was removed."""
    if record.status != "complete":  # spans are journalled, phases come from the run's end
        return []
    known = {window.name for window in record.windows}
    unknown = {name for name in _named_phases(record) if name not in known}
    summed = {f"{window.host}/{window.name}" for window in record.windows}
    unknown |= {
        f"a part of {total.name}"
        for total in record.totals
        if total.unit == Unit.BYTES and not summed.issuperset(total.keys)
    }
    return [
        Check(
            name="phases_known",
            verdict="fail" if unknown else "pass",
            sentence=f"Figures belong to phases that are not there: {', '.join(sorted(unknown))}."
            if unknown
            else "Every figure belongs to a phase of the record.",
            figures={"phase_count": len(known), "unknown_count": len(unknown)},
        )
    ]


def settings_agree(record: RunRecord) -> Sequence[Check]:
    """Fail a record whose workload, loader, label or scale is not that of its configuration."""
    scale = record.config.get("scale")
    stated = {
        "workload": (record.workload.name, _package_of(record.config, "workload")),
        "loader": (record.workload.loader, _package_of(record.config, "loader")),
        "label": (record.label, record.config.get("label")),
        "scale": (record.workload.scale, scale.get("name") if isinstance(scale, Mapping) else None),
    }
    apart = [
        name
        for name, (own, configured) in stated.items()
        if configured is not None and own != configured
    ]
    return [
        Check(
            name="settings_agree",
            verdict="fail" if apart else "pass",
            sentence=f"The record was edited: its configuration has another {' and '.join(apart)}."
            if apart
            else "Workload, loader, label and scale are those of the run's configuration.",
        )
    ]


def _package_of(config: Mapping[str, object], group: str) -> str | None:
    """Return the name of the configured workload or loader: the package of its class."""
    configured = config.get(group)
    target = configured.get("_target_") if isinstance(configured, Mapping) else None
    package, _, below = str(target).partition(f".{group}s.")
    return below.split(".")[0] if package == "wattload" else None


def _named_phases(record: RunRecord) -> Iterator[str]:
    """Yield the phases that figures name."""
    yield from (metric.phase for metric in record.metrics if metric.phase)
    yield from (span.name for span in record.spans)
    yield from (span.parent for span in record.spans if span.parent)
    for part in (record.counters, record.latencies, record.power.energy, record.power.throttling):
        yield from (each.phase for each in part)
