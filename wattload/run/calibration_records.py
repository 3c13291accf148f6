"""The records of calibrations: what sources read under a known load, and what these hold for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from wattload import __version__
from wattload.core.power import Channel, Sample, SourceFacts
from wattload.core.record.energy import CalibrationRecord
from wattload.core.sysfs import text_or_empty
from wattload.power.sampler.protocol import OpenReply
from wattload.run.pulses import Edges, KnownLoad


def calibration_records(
    load: KnownLoad,
    samples: Iterable[Sample],
    keys: Mapping[SourceFacts, Mapping[str, str]],
    *,
    host: str,
    run_id: str = "",
) -> tuple[CalibrationRecord, ...]:
    """Return what each source read under a load; ``keys`` are the sources with their keys."""
    taken: dict[tuple[str, str, Channel], list[tuple[int, float | None]]] = {}
    for sample in samples:
        if load.origin_ns <= sample.time_ns <= load.end_ns:
            key = (sample.source, sample.device, sample.channel)
            taken.setdefault(key, []).append((sample.time_ns - load.origin_ns, sample.value))
    records = []
    for facts, of_source in keys.items():
        readings = taken.get((facts.name, facts.device, facts.figure_channel), [])
        records.append(
            CalibrationRecord(
                host=host,
                device=facts.device,
                source=facts.name,
                utc=load.utc,
                run_id=run_id,
                key=of_source,
                origin_ns=load.origin_ns,
                pulses=_since(load.origin_ns, load.pulses),
                train=_since(load.origin_ns, load.train),
                time_ns=tuple(time_ns for time_ns, _ in readings),
                values=tuple(value for _, value in readings),
            )
        )
    return tuple(records)


def _since(origin_ns: int, edges: Edges) -> Edges:
    return tuple((start_ns - origin_ns, end_ns - origin_ns) for start_ns, end_ns in edges)


def calibration_key(facts: SourceFacts, opened: OpenReply) -> Mapping[str, str]:
    """Return what a calibration of a source holds for; what is unknown is empty."""
    reading = opened.controllers.get(facts.device_name)
    fields = reading.fields if reading is not None and reading.serial == facts.device else {}
    verified = {state.serial: state.verified for state in opened.states if state.knob}
    state = verified.get(facts.device)
    return source_key(
        facts,
        host=opened.host,
        firmware=str(fields.get("firmware") or ""),
        power_state=fields.get("power_state") if state is None else state,
    )


def source_key(
    facts: SourceFacts, *, host: str, firmware: str, power_state: int | None
) -> Mapping[str, str]:
    """Return the key of a source's calibration in this version of wattload."""
    return {
        "source": facts.name,
        "meter": facts.meter,
        "device": facts.device,
        "slot": text_or_empty(Path("/sys/class/nvme") / facts.device_name / "address"),
        "host": host,
        "firmware": firmware,
        "power_state": "" if power_state is None else str(power_state),
        "period_s": f"{facts.period_s:.2g}",
        "wattload": __version__,
    }
