"""A job for fio with the size, order, depth and bytes of one run's requests, phase by phase.

Computation, verification and pauses are not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from wattload.core.checks.conditions import is_paced
from wattload.core.errors import ConfigError
from wattload.core.io import Allocation
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.units import format_bytes
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import OperationTrace
from wattload.reports.sanitize import sanitize

SIZE_WITHIN = 0.02  # of the mean to the nominal size: the last request of a file is shorter
ASCENDING = 0.9  # the least share of ascending offsets; of random ones it is half


def fio_job(runs: Sequence[Run]) -> str:
    """Return a job file with a section for each timed phase of a run.

    Raises:
        ConfigError: there are several runs, or fio can't repeat this one; the sentence says why.
    """
    if len(runs) > 1:
        raise ConfigError(f"a job for fio is distilled from one run, got {len(runs)}")
    [run] = runs
    record, work = run.record, run.record.workload
    try:
        _require_direct(record)
        sections = [part for window in _windows(record) for part in _section(run, window)]
    except _RefusedError as refused:
        raise ConfigError(f"fio can't repeat the run {_line(run.id)}: {refused}") from refused
    return f"""; The requests of run {_line(run.id)}, phase by phase: size, order, depth and bytes.
; In huge pages, as in the run, so that the kernel splits them alike:
; GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --directory=FOLDER FILE.fio
[global]
ioengine={"io_uring" if work.paths[0].engine.startswith("io_uring") else "libaio"}
direct=1
thread
iomem_align=2m
numjobs={work.rank_count}
iodepth={max(1, (work.queue_depth_asked or 0) // work.rank_count)}
{"".join(sections)}"""


class _RefusedError(Exception):
    """Why fio can't repeat a run."""


def _require_direct(record: RunRecord) -> None:
    paths = record.workload.paths
    if record.status != "complete":
        raise _RefusedError(f"it is {record.status}")
    if len(record.hosts) > 1 or len(record.targets) > 1:
        raise _RefusedError("it used several hosts or targets, and a job uses one")
    if any(target.facts.kind == "block" for target in record.targets):
        raise _RefusedError("it used a whole drive, which a job would overwrite; a job uses files")
    if not _windows(record):
        raise _RefusedError("its timed phases moved no bytes")
    if len(paths) != 1 or paths[0].path_requested != "o_direct":
        ways = ", ".join(_line(path.path_requested) for path in paths) or "an unknown path"
        raise _RefusedError(f"its bytes went through {ways}, not by direct I/O to host memory")
    if Allocation.EXTENDING in paths[0].data_path:
        raise _RefusedError("its writes extended files, which are then written one by one")
    if not record.workload.queue_depth_asked:
        raise _RefusedError("no queue depth was set: its rate was limited, or its loader has none")


def _windows(record: RunRecord) -> Sequence[PhaseWindow]:
    return [w for w in record.timed_windows(parts=False) if w.read_bytes + w.written_bytes]


def _section(run: Run, window: PhaseWindow) -> Iterator[str]:
    """Yield a phase's section in parts; raises ``_RefusedError`` where fio can't repeat it."""
    record, name = run.record, _line(window.name)
    rows = [row for row in record.merged_latencies if row.phase == window.name]
    rows = [row for row in rows if row.kind != "request"]  # of a queue; its reads are counted too
    if is_paced(record, window.name):
        raise _RefusedError(f"the accelerator set the pace of {name}, and a job does not compute")
    if len(rows) != 1:
        how = "have several sizes or kinds" if rows else "were not counted one by one"
        raise _RefusedError(f"the requests of {name} {how}")
    [row], ranks = rows, record.workload.rank_count
    moved_bytes, size_bytes = window.read_bytes + window.written_bytes, row.operation_bytes
    if abs(moved_bytes / row.count / size_bytes - 1) > SIZE_WITHIN:
        sizes = f"{format_bytes(size_bytes)}, on average {format_bytes(moved_bytes / row.count)}"
        raise _RefusedError(f"the requests of {name} vary in size: at most {sizes}")
    spans = [s for s in record.spans_by_phase[window.host, window.name] if s.operations]
    trace = run.traces.operations
    share = _ascending_share(trace, window, [span.start_ns for span in spans]) if trace else None
    if trace is None or share is None:
        raise _RefusedError(f"no trace shows the order of the requests of {name}")

    def whole(size: float) -> int:
        return max(1, round(size / size_bytes)) * size_bytes

    in_flight = row.sum_s / max(window.active_s, 1e-9)
    yield f"\n; {row.count} requests of {size_bytes} B, {in_flight:.1f} in flight on average\n"
    yield f"[{re.sub('[^A-Za-z0-9_-]', '_', window.name)}]\nstonewall\n"
    yield f"rw={'' if share >= ASCENDING else 'rand'}{row.kind}\nbs={size_bytes}\n"
    if share >= ASCENDING:
        loops = max(1, len(spans) // ranks)
        yield f"size={whole(moved_bytes / ranks / loops)}\nloops={loops}\n"
    else:
        own = np.flatnonzero(trace.phase.are(window.name))
        _, first = np.unique(trace.file.numbers[own], return_index=True)
        files = trace.file_bytes[own][first].tolist()
        own = own[np.argsort(trace.time_ns[own])][: round(own.size * sum(files) / moved_bytes)]
        places = np.stack((trace.file.numbers[own], trace.offset_bytes[own]))
        is_once = np.unique(places, axis=1).shape == places.shape  # in a pass over the files
        if len(files) < ranks:
            yield "filename_format=$jobname.$filenum\n"  # the ranks share the files
        files = files[: len(files) // ranks or len(files)]
        yield f"nrfiles={len(files)}\nsize={whole(sum(files))}\n"
        yield f"io_size={whole(moved_bytes / ranks)}\nnorandommap={int(not is_once)}\n"
    if row.kind == "write":
        is_new = Allocation.PREALLOCATED in record.workload.paths[0].data_path
        yield "end_fsync=1\n" if is_new else "end_fsync=1\noverwrite=1\n"


def _ascending_share(
    trace: OperationTrace, window: PhaseWindow, starts_ns: Sequence[int]
) -> float | None:
    """Return the share of traced requests beyond the previous one of their file, span by span.

    ``None`` if no two requests of a file and span were traced.
    """
    own = trace.phase.are(window.name)
    files, times_ns, offsets = trace.file.numbers[own], trace.time_ns[own], trace.offset_bytes[own]
    visits = np.searchsorted(sorted(starts_ns), times_ns, side="right")
    order = np.lexsort((times_ns, visits, files))
    is_same = (np.diff(files[order]) == 0) & (np.diff(visits[order]) == 0)
    return float(np.mean(np.diff(offsets[order])[is_same] > 0)) if is_same.any() else None


def _line(text: str) -> str:
    """Return a text of a record in one line, so that it can't be an option of fio."""
    return " ".join(sanitize(text).split())
