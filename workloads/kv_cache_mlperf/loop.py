"""MLPerf's loop: users ask on time, threads answer, and a priority queue grows between them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from wattload.results.kv_cache_mlperf import Origin
from wattload.workloads.kv_cache_mlperf.entries import HEADER_BYTES, Entries
from wattload.workloads.kv_cache_mlperf.users import Request


class Loop:
    """The loop of one process; ``is_full`` is whether it ended as no more might be written."""

    def __init__(self, entries: Entries, *, token_bytes: int, workers: int) -> None:
        self._entries, self._token_bytes = entries, token_bytes
        self._queue: queue.PriorityQueue[tuple[int, int, Request | None]] = queue.PriorityQueue()
        self._threads = [threading.Thread(target=self._work) for _ in range(workers)]
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.is_full = False

    def run(self, requests: Iterator[Request], *, duration_s: float) -> None:
        """Let users ask for ``duration_s``, and finish the requests that are then in progress.

        Raises:
            OSError: the target is full, or a file can't be written or read.
            DataError: a file is not the one that was written.
        """
        for thread in self._threads:
            thread.start()
        try:
            start_s = time.monotonic()
            for request in requests:
                due_s = start_s + min(request.time_s, duration_s)
                is_over = self._stop.wait(max(due_s - time.monotonic(), 0.0))
                if is_over or request.time_s >= duration_s:
                    break
                self._entries.counts.drawn += 1
                self._queue.put((-request.priority, request.number, request))
        finally:
            self._stop.set()
            for _ in self._threads:  # ahead of all requests, so that no further one is begun
                self._queue.put((-9, 0, None))
            for thread in self._threads:
                thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            while (request := self._queue.get()[2]) is not None and not self._stop.is_set():
                self._answer(request)
        except BaseException as error:
            self._error = error
            self._stop.set()

    def _answer(self, request: Request) -> None:
        """Read the prompt and the other turns so far, write the own entry, and read it again."""
        entries, number = self._entries, request.number
        wanted = [] if request.prompt is None else [(-1 - request.prompt, Origin.system_prompt)]
        turns = tuple(request.turns)
        if turns and turns[0] != number:
            wanted += [(turn, Origin.earlier_turn) for turn in turns if turn != number]
        io_s = sum(entries.read(other, origin) for other, origin in wanted)
        written_s = entries.write(number, request.entry_tokens)
        if written_s is None:
            self.is_full = True
            self._stop.set()
            return
        io_s += written_s
        io_s += sum(entries.read(number, Origin.own_entry) for _ in range(request.own_reads))
        entries.release(number)
        entry_bytes = HEADER_BYTES + request.entry_tokens * self._token_bytes
        with entries.lock:
            counts = entries.counts
            counts.answered += 1
            counts.decoded += request.own_reads > 0
            counts.generated_tokens += request.generated_tokens
            counts.own_drawn_bytes += request.own_reads * entry_bytes
            counts.io_s += io_s
