"""A real run's results, told as those of many ranks on many hosts, and concluded as on the root.

``python -m tests.run.many_hosts capture FOLDER`` makes a demo run of 20 epochs in ``FOLDER`` and
keeps what its root was given. ``python -m tests.run.many_hosts conclude FOLDER HOSTS RANKS``
concludes a run of so many hosts with so many ranks each into ``FOLDER/HOSTSxRANKS``, and prints its
time, its memory and its figures as JSON.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import BaseModel

from wattload.core.host.counters import BlockStat
from wattload.core.record.file import RECORD_FILE
from wattload.core.record.host import ClockOffset
from wattload.core.record.run import RunRecord
from wattload.power.sampler.samples import samples_name
from wattload.run import lifecycle
from wattload.run.folder import make_run_folder
from wattload.run.phases import PhaseTraffic
from wattload.run.process import Peers
from wattload.run.ranks import BLOCK_BYTES
from wattload.run.record import Findings, Header, HostReport, HostReports, RankReport, conclude
from wattload.run.transport import ReceivedReports

EPOCHS = 20
PHASE = "read"
ROWS = 10_000
"""Traced operations of a rank."""

AHEAD_NS = 10_000_000
"""How far the clock of each host is ahead of that of the one before."""

CAPTURED = "captured"
TRACE = """\
# evidence: measured
# accuracy: 1 % of reading
time_s,power_w
"""


def capture(folder: Path) -> None:
    """Make a real run, and keep what ``conclude`` is called with."""
    from wattload.__main__ import main

    for name in ("target", "runs"):
        (folder / name).mkdir()
    trace = folder / "trace.csv"
    trace.write_text(TRACE + "".join(f"{tick / 10},{5 + tick % 7}\n" for tick in range(6000)))

    def keeping(
        header: Header, reports: HostReports, findings: Findings
    ) -> tuple[RunRecord, Path, str]:
        (report,) = reports(header.folder)
        (folder / CAPTURED).write_bytes(pickle.dumps((header, report, findings)))
        samples = report.power.samples_file if report.power is not None else None
        (folder / "samples").write_bytes((header.folder / str(samples)).read_bytes())
        return conclude(header, reports, findings)

    setattr(lifecycle, "conclude", keeping)  # noqa: B010 - the module does not export it
    main(
        [
            "run",
            "workload=unet3d",
            "scale=demo",
            f"workload.epochs={EPOCHS}",
            "accelerator.step_s.unet3d=0.03",
            "power=replay",
            f"power.replay.path={trace}",
            "power.idle_s=1",
            "power.rest_max_s=1",
            "power.idle_after_s=2",
            f"target.path={folder / 'target'}",
            f"runs={folder / 'runs'}",
        ]
    )


def of_host(value: Any, old: str, new: str) -> Any:
    """Return a part of a report with another name of its host."""
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, BaseModel):
        return value.model_copy(update={k: of_host(v, old, new) for k, v in dict(value).items()})
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: of_host(part, old, new) for name, part in parts.items()})
    if isinstance(value, Mapping):
        return {name: of_host(part, old, new) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(of_host(part, old, new) for part in value)
    return value


def with_phases(rank: RankReport, ranks: int) -> RankReport:
    """Return a rank's report with each of its epochs as a part, and more traced operations.

    The devices of its host count the bytes of so many ranks.
    """
    traffic = list(rank.traffic)
    marked = [
        replace(item, at_start=_times(item.at_start, ranks), at_end=_times(item.at_end, ranks))
        for item in rank.marked
    ]
    for number, item in enumerate([each for each in marked if each.span.name == PHASE]):
        part = {"name": f"epoch_{number}", "parent": PHASE, "is_part": True}
        marked.append(replace(item, span=item.span.model_copy(update=part)))
        (moved,) = (each for each in rank.traffic if each.phase == PHASE)
        own = (moved.time_ns >= item.span.start_ns - 10**8) & (moved.time_ns <= item.span.end_ns)
        columns = {name: getattr(moved, name)[own] for name in ("time_ns", "read_bytes")}
        columns["written_bytes"] = 0 * columns["read_bytes"]
        traffic.append(
            PhaseTraffic(host=moved.host, rank=moved.rank, phase=f"epoch_{number}", **columns)
        )
    operations = [replace(each, rows=np.resize(each.rows, ROWS)) for each in rank.operations[:1]]
    return replace(rank, marked=marked, traffic=traffic, operations=operations)


def _times(stats: Mapping[str, BlockStat], count: int) -> Mapping[str, BlockStat]:
    return {
        name: BlockStat(**{field: count * value for field, value in asdict(stat).items()})
        for name, stat in stats.items()
    }


class Leaders:
    """The leaders of the other hosts, as the root sees them: it asks each for blocks of items."""

    def __init__(self, hosts: int, items_of: Callable[[int], Sequence[bytes]]) -> None:
        self.world_size = hosts
        self._items_of = lru_cache(maxsize=1)(items_of)
        self._block = b""

    def send(self, value: tuple[int, int], rank: int) -> None:
        number, offset = value
        self._block = self._items_of(rank)[number][offset : offset + BLOCK_BYTES]

    def receive(self, rank: int) -> bytes:
        return self._block


def reports_of(
    report: HostReport, hosts: int, ranks: int, samples: bytes, root: Path
) -> ReceivedReports:
    """Return the reports of many hosts, made as they are asked for, with their samples.

    The folder of the first one is ``root``. The clock of each is ahead of that of the one before.
    """
    first = with_phases(report.ranks[0], ranks)
    times_ns = first.marked[0].span.start_ns, first.marked[-1].span.end_ns

    def of_number(number: int) -> tuple[HostReport, str, list[bytes]]:
        name = f"node{number:03}"
        of_first = of_host(first, report.host, name)
        host = of_host(replace(report, ranks=()), report.host, name)
        file = samples_name(host.power.host)
        offsets = tuple(
            ClockOffset(monotonic_ns=each, offset_ns=number * AHEAD_NS, bound_ns=1000)
            for each in times_ns
        )
        clocks = {"offsets": offsets if number else ()}
        host = replace(
            host,
            capture=replace(host.capture, host=host.capture.host.model_copy(update=clocks)),
            power=replace(host.power, samples_file=file),
            folder=root,
        )
        numbered = (_numbered(of_first, number * ranks + rank) for rank in range(ranks))
        return host, file, [pickle.dumps(each) for each in numbered]

    def items(number: int) -> Sequence[bytes]:
        host, file, pickled = of_number(number)
        return [pickle.dumps((host, len(pickled), [file])), *pickled, samples]

    host, file, pickled = of_number(0)
    (root / file).write_bytes(samples)
    return ReceivedReports(cast("Peers", Leaders(hosts, items)), host, pickled)


def _numbered(report: RankReport, rank: int) -> RankReport:
    of_rank = {"rank": rank}
    return replace(
        report,
        rank=report.rank.model_copy(update=of_rank),
        marked=[replace(item, span=item.span.model_copy(update=of_rank)) for item in report.marked],
        traffic=[replace(each, rank=rank) for each in report.traffic],
    )


def main(folder: Path, hosts: int, ranks: int) -> None:
    """Conclude the run of many hosts, and print its time, its memory and its figures."""
    header, report, findings = pickle.loads((folder / CAPTURED).read_bytes())
    samples = (folder / "samples").read_bytes()
    facts = findings.outcome.facts
    of_all = {"ranks": facts.ranks * hosts * ranks, "accelerators": hosts * ranks}
    outcome = replace(findings.outcome, facts=facts.model_copy(update=of_all))
    header = replace(header, folder=folder / f"{hosts}x{ranks}", world_size=hosts * ranks)
    make_run_folder(header.folder, header.order.config_values, "{}").release()
    began_s = time.monotonic()
    record, place, _ = conclude(
        header,
        reports_of(report, hosts, ranks, samples, header.folder),
        replace(findings, outcome=outcome),
    )
    concluded_s = time.monotonic() - began_s
    (read,) = (window for window in record.joined_windows if window.name == PHASE)
    found = {
        "read_ns": read.end_ns - read.start_ns,
        "conclude_s": concluded_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "record_bytes": (place / RECORD_FILE).stat().st_size,
        "rows": {each.name: each.rows for each in record.traces},
        "phases": len({span.name for span in record.spans}),
        "spans": len(record.spans),
        "ranks": len(record.ranks),
        "hosts": [host.facts.name for host in record.hosts],
        "latencies": sum(row.count for row in record.latencies),
        "energy_j": sum(
            each.energy_j or 0.0
            for each in record.power.energy
            if each.chosen and each.phase == PHASE
        ),
        "read_bytes": sum(span.read_bytes for span in record.spans if not span.is_part),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "capture":
        capture(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
