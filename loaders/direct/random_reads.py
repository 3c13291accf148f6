"""Random reads by the engine's own pattern: a CPU that asks for its blocks without a queue.

Each file has an engine of its own, which keeps as many reads in flight as the file has requesters.
The blocks are uniform over the file, but are not those that requesters draw, as the engine draws by
the number of the operation. With ``pattern=regions`` they are the same: each warp asks as often as
any other, so all warps together read uniformly too.

The engine compares the stamp and the sum of every block, and counts a block that differs in either
in ``bad_blocks``. A read that fails ends the reads of its file, and those of other files go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.core.histogram import Histogram
from wattload.core.io import TRACE_DTYPE, DataPath, Extent, IOKind, IOOrder, IOPlan
from wattload.loaders.aligned_io import round_down
from wattload.loaders.block_reads import (
    ReadFailure,
    ReadFile,
    ReadPlan,
    ReadResult,
    ReadsWatch,
)
from wattload.loaders.engine.engine import SLICE_S, IOEngine, Ticket
from wattload.loaders.gpu.failures import failure_clause

_TRACE_EVERY = 1024


class DirectRandomReader:
    """Engines with registered memory, one per file; implements ``BlockReader``."""

    def __init__(
        self, plan: ReadPlan, *, backend: str, pollers: int, traced_operations: int
    ) -> None:
        """Open the engines; ``pollers``, which divide ``plan.per_file``, are those of a file.

        Raises:
            ConfigError: the engine can't run here.
        """
        self._plan = plan
        self._traced_operations = traced_operations
        self._depth = plan.per_file // pollers
        self._engines: list[IOEngine] = []
        try:
            for _ in plan.files:
                engine = IOEngine(
                    backend=backend,
                    block_bytes=plan.read_bytes,
                    depth=self._depth,
                    pollers=pollers,
                )
                self._engines.append(engine)
        except BaseException:
            self.close()
            raise
        self._path = self._find_path()

    def path(self) -> DataPath:
        """Return the path: O_DIRECT into the memory of the host, asked for by the CPU."""
        return self._path

    def run(self, watch: ReadsWatch) -> ReadResult:
        """Read for the planned time; see ``BlockReader.run``.

        Raises:
            OSError: a file can't be opened.
            DataError: a file changed while it was read.
            TargetError: the file system refuses O_DIRECT.
        """
        watch.begin()
        start_cpu_s, start_ns = time.process_time(), time.monotonic_ns()
        tickets: list[Ticket] = []
        try:
            for number, engine in enumerate(self._engines):
                file = self._plan.files[number]
                plan = self._plan_of(file, number)
                tickets.append(engine.submit(plan, alignment_bytes=self._plan.read_bytes))
            self._follow(tickets, watch)
            cpu_s = time.process_time() - start_cpu_s
            end_ns = max(ticket.reading().time_ns for ticket in tickets)
            watch.end(start_ns, end_ns)
            return self._result(tickets, start_ns, end_ns, cpu_s)
        finally:
            for ticket in tickets:
                ticket.discard()

    def close(self) -> None:
        """End the engines; safe to call twice."""
        for engine in self._engines:
            engine.close()

    def _plan_of(self, file: ReadFile, number: int) -> IOPlan:
        read_bytes = self._plan.read_bytes
        extent = Extent(file.path, 0, round_down(file.size_bytes, read_bytes))
        return IOPlan(
            kind=IOKind.READ,
            extents=(extent,),
            block_bytes=read_bytes,
            depth=self._depth,
            order=IOOrder.RANDOM,
            duration_s=self._plan.duration_s,
            stamps=file.stamps,
            seed=self._plan.seed + number,
            trace_every=_TRACE_EVERY if self._traced_operations else None,
        )

    def _follow(self, tickets: Sequence[Ticket], watch: ReadsWatch) -> None:
        reads = read_bytes = 0
        while True:
            is_done = all(ticket.wait(SLICE_S) for ticket in tickets)
            counts = [ticket.progress() for ticket in tickets]
            now_bytes, now = (sum(each) for each in zip(*counts, strict=True))
            watch.moved(now - reads, now_bytes - read_bytes)
            reads, read_bytes = now, now_bytes
            if is_done:
                return

    def _result(
        self, tickets: Sequence[Ticket], start_ns: int, end_ns: int, cpu_s: float
    ) -> ReadResult:
        readings = [ticket.reading() for ticket in tickets]
        failures = []
        compared_bytes = 0
        bad_blocks = [0] * len(tickets)
        for number, ticket in enumerate(tickets):
            try:
                result = ticket.result()
            except (OSError, DataError):
                failed = ticket.failed_operation()
                if failed is None:
                    raise
                failures.append(
                    ReadFailure(
                        file=number,
                        reason=failure_clause(failed[0]),
                        offset_bytes=failed[1],
                        count=1,
                    )
                )
            else:
                compared_bytes += result.moved_bytes
                bad_blocks[number] = result.bad_blocks
        return ReadResult(
            operations=sum(reading.operation_count for reading in readings),
            file_operations=tuple(reading.operation_count for reading in readings),
            start_ns=start_ns,
            end_ns=end_ns,
            cpu_s=cpu_s,
            latency=reduce(Histogram.merged, (reading.latency for reading in readings)),
            file_latencies=tuple(reading.latency for reading in readings),
            failures=tuple(failures),
            compared_bytes=compared_bytes,
            bad_blocks=sum(bad_blocks),
            file_bad_blocks=tuple(bad_blocks),
            trace=self._trace(tickets),
        )

    def _trace(self, tickets: Sequence[Ticket]) -> NDArray[np.void]:
        """Return the traced reads of all files by time of submission, as many as were asked."""
        parts = [np.empty(0, dtype=TRACE_DTYPE)]
        for number, ticket in enumerate(tickets):
            rows = ticket.trace()
            if rows is not None:
                rows = rows.copy()
                rows["file"] = number
                parts.append(rows)
        rows = np.sort(np.concatenate(parts), order="submit_ns")
        return rows[:: max(-(-len(rows) // max(self._traced_operations, 1)), 1)]

    def _find_path(self) -> DataPath:
        path = self._engines[0].path()
        count = len(self._engines)
        each = "" if count == 1 else f"{count} engines, one per file: "
        remarks = dict.fromkeys(
            remark for engine in self._engines for remark in engine.path().remarks
        )
        return path.model_copy(
            update={"engine": f"{each}{path.engine}; into host memory", "remarks": tuple(remarks)}
        )
