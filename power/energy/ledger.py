"""The ledger of a host's energy: all power figures of a record, from the samples of one run.

Each source of a device has one ``SourceLedger``. From these come the energy of each phase and of
idle times, and that of the whole run by each source that measures. If a device has several sources,
the best one is marked for each phase (``mark_chosen``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from wattload.core.power import (
    EVIDENCE_RANK,
    MEASURING,
    Channel,
    Counter,
    Evidence,
    Integral,
    Scope,
    SourceFacts,
)
from wattload.core.record.energy import (
    WHOLE_RUN,
    CalibrationRecord,
    EnergyRecord,
    IdleRecord,
    SensorRecord,
)
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.activity import RunTimes, overlapping, tails
from wattload.power.energy.idle import IdleTime, idle_record
from wattload.power.energy.integration import Course, Window
from wattload.power.energy.profile import fall_count
from wattload.power.energy.source_ledger import SourceLedger
from wattload.power.energy.trace import Trace, TraceKey
from wattload.power.registry import AUTO


class EnergyLedger:
    """The energy of one host's run, by device and source."""

    def __init__(
        self,
        by_key: Mapping[TraceKey, Trace],
        sources: Sequence[SourceFacts],
        *,
        host: str,
        times: RunTimes | None = None,
        calibrations: Sequence[CalibrationRecord] = (),
        resets_ns: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Prepare the power over time of each source.

        ``calibrations`` are those of this host's sources, the latest last. ``resets_ns`` maps a
        device to its known restarts in ns. Sources without evidence have no figures, nor those that
        integrate themselves.
        """
        self._host = host
        self._times = times or RunTimes()
        self._by_key = by_key
        resets = resets_ns or {}
        self._ledgers = {
            (facts.name, facts.device): SourceLedger.build(
                self._by_key,
                facts,
                times=self._times,
                calibrations=calibrations,
                resets_ns=resets.get(facts.device, ()),
            )
            for facts in sources
            if facts.evidence is not Evidence.NONE and not isinstance(facts.sensor, Integral)
        }

    def sensor(self, facts: SourceFacts) -> SensorRecord | None:
        """Return the sensor of a source as its energies use it, ``None`` without readings."""
        ledger = self._ledgers.get((facts.name, facts.device))
        return None if ledger is None else ledger.sensor

    def fall_count(self, facts: SourceFacts) -> int:
        """Return how often the counter of a source decreased without having wrapped."""
        trace = self._by_key.get(TraceKey(facts.name, facts.device, Channel.ENERGY_J))
        if trace is None or not isinstance(facts.sensor, Counter):
            return 0
        return fall_count(trace, facts.sensor)

    def phase_records(
        self,
        windows: Iterable[PhaseWindow],
        *,
        moved_bytes: Mapping[tuple[str, str], Course] | None = None,
        requested: str = AUTO,
    ) -> tuple[EnergyRecord, ...]:
        """Return the energy of each timed phase of the host, by device and source.

        The best record of each phase, device and scope is marked as ``chosen``. ``moved_bytes``
        maps (phase, device) to bytes over time; without it, shares have no bytes. ``requested`` is
        the source that the user selected: a data sheet is chosen only on request.
        """
        moved = moved_bytes or {}
        own = [each for each in windows if each.timed and each.host == self._host]
        records = [
            ledger.record(
                window.name,
                window.intervals,
                host=self._host,
                tail=tail,
                others=overlapping(window, own),
                moved_bytes=moved.get((window.name, ledger.facts.device)),
            )
            for window, tail in zip(own, tails(own, self._times), strict=True)
            for ledger in self._ledgers.values()
        ]
        found = {key: ledger.sensor for key, ledger in self._ledgers.items()}
        return mark_chosen(records, found, takes_declared=requested != AUTO)

    def whole_run_records(
        self, own: Sequence[EnergyRecord] = (), *, polled: Window | None = None
    ) -> tuple[EnergyRecord, ...]:
        """Return the energy of the whole run by each source that measures.

        ``own`` are the energies that devices integrated themselves: no samples enter them. The
        samples of such a device are integrated over the same window. Others are integrated from the
        first sample to the last within ``polled``, the time in which drives were polled (``None``:
        always).
        """
        records = [*own]
        for ledger in self._ledgers.values():
            part, device = ledger.measured, ledger.facts.device
            if part is None:
                continue
            windows = {(each.start_ns, each.end_ns) for each in own if each.device == device}
            if not windows:
                read_ns = part.trace.time_ns[[0, -1]].tolist()
                first_ns, last_ns = polled or read_ns
                windows = {(max(read_ns[0], first_ns), min(read_ns[1], last_ns))}
            records += [
                ledger.record(WHOLE_RUN, [window], host=self._host)
                for window in sorted(windows)
                if window[0] < window[1]
            ]
        return tuple(records)

    def idle_records(self, times: Sequence[IdleTime]) -> tuple[IdleRecord, ...]:
        """Return the idle power of each drive, by each source that measures it, for each time."""
        return tuple(
            idle_record(ledger, time, host=self._host)
            for ledger in self._ledgers.values()
            if ledger.facts.scope is Scope.DRIVE and ledger.facts.measures
            for time in times
        )


def mark_chosen(
    records: Sequence[EnergyRecord],
    sensors: Mapping[tuple[str, str], SensorRecord | None],
    *,
    takes_declared: bool,
) -> tuple[EnergyRecord, ...]:
    """Return the records, with the best of each window, device and scope marked.

    ``sensors`` are those used, by name and device of the source. Measured energies come first, but
    those of a sensor that did not respond to its calibration after the others; bounds and data
    sheets are last. Within each of these, an energy with a total uncertainty is preferred, the
    smallest first; then an energy without one, by its evidence and the known parts of its
    uncertainty; then an interval; then an upper bound. A record without a figure is never chosen, a
    data sheet only on request (``takes_declared``).
    """
    usable = [
        each
        for each in records
        if (each.energy_j is not None or each.upper_j is not None)
        and (takes_declared or each.evidence is not Evidence.DECLARED)
    ]
    best: dict[tuple[str, int, str, Scope], EnergyRecord] = {}
    for each in sorted(usable, key=lambda each: _rank(each, sensors[each.source, each.device])):
        best.setdefault((each.phase, each.start_ns, each.device, each.scope), each)
    chosen = {id(each) for each in best.values()}
    return tuple(
        each.model_copy(update={"chosen": True}) if id(each) in chosen else each for each in records
    )


def _rank(record: EnergyRecord, sensor: SensorRecord | None) -> tuple[float, ...]:
    """Return the rank of a record: by how little its sensor is trusted, then by its figure."""
    doubt, strength = 2, EVIDENCE_RANK[record.evidence]
    if record.energy_j is not None and record.evidence in MEASURING:
        doubt = int(sensor is not None and sensor.responds is False)
    if record.uncertainty_j is not None:
        return doubt, 0, 0, record.uncertainty_j
    if record.energy_j is not None:
        return doubt, 1, strength, math.hypot(*record.uncertainty_parts_j.values())
    if record.lower_j is not None and record.upper_j is not None:
        return doubt, 2, strength, record.upper_j - record.lower_j
    return doubt, 3, strength, record.upper_j or 0.0
