"""The engine's load: quotas, counts, pinned threads and refused set-ups."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wattload.core.errors import ConfigError
from wattload.core.host.counters import format_cpus
from wattload.core.units import MIB
from wattload.loaders.engine.load import EngineLoad, LoadCounts, Mode, copier

CPUS = sorted(os.sched_getaffinity(0))
THREAD_BYTES = 2 * MIB
CHUNK_BYTES = 64 * 1024
"""``CHUNK`` of ``load.c``."""


@contextmanager
def opened(cpus: list[int] | None = None) -> Iterator[EngineLoad]:
    load = EngineLoad(CPUS if cpus is None else cpus, THREAD_BYTES)
    try:
        yield load
    finally:
        load.close()


def until_done(load: EngineLoad, **least: int) -> LoadCounts:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        counts = load.read()
        if all(getattr(counts, name) >= value for name, value in least.items()):
            return counts
        time.sleep(0.01)
    pytest.fail(f"the load did not do {least}: {load.read()}")


def test_a_new_load_does_nothing() -> None:
    with opened() as load:
        time.sleep(0.05)
        counts = load.read()
    assert (counts.copied_bytes, counts.units, counts.due_bytes, counts.due_units) == (0, 0, 0, 0)


def test_quotas_are_counted_as_due_and_never_exceeded() -> None:
    with opened() as load:
        load.set(Mode.QUOTAS, copy_bytes=128_000, units=3)
        counts = until_done(load, copied_bytes=5 * 128_000, units=15)
        load.set(Mode.STOP)
        # What is done is read after what is due, so a later reading of `due` is needed.
        counts = load.read()
    assert counts.copied_bytes <= counts.due_bytes
    assert counts.units <= counts.due_units
    assert counts.due_bytes % 128_000 == 0
    assert counts.due_units % 3 == 0


def test_what_is_missed_is_not_made_up_for() -> None:
    with opened(CPUS[:1]) as load:
        load.set(Mode.QUOTAS, units=1 << 40)  # more than any period has time for
        missed = until_done(load, due_units=3 << 40)
        load.set(Mode.QUOTAS, units=1)
        done = load.read().units
        later = until_done(load, units=done + 3)
        load.set(Mode.STOP)
    assert later.due_units >= missed.due_units
    assert later.units < 1 << 40


def test_a_peak_copies_or_computes_without_quotas() -> None:
    with opened() as load:
        load.set(Mode.COPY)
        copying = until_done(load, copied_bytes=64 * MIB)
        load.set(Mode.COMPUTE)
        computing = until_done(load, units=1000)
        load.set(Mode.STOP)
    assert copying.units == 0
    assert (computing.due_bytes, computing.due_units) == (0, 0)


def test_a_stopped_load_stands_still() -> None:
    with opened() as load:
        load.set(Mode.COPY)
        until_done(load, copied_bytes=MIB)
        load.set(Mode.STOP)
        stopped = load.read().copied_bytes
        time.sleep(0.1)
        # Each thread ends the chunk that it has begun, however late it gets a core.
        assert load.read().copied_bytes <= stopped + len(CPUS) * CHUNK_BYTES


def test_each_thread_is_pinned_to_its_cpu() -> None:
    def allowed() -> dict[str, set[int]]:
        return {
            task.name: os.sched_getaffinity(int(task.name))
            for task in Path("/proc/self/task").iterdir()
        }

    before = allowed()
    with opened():
        added = [cpus for task, cpus in allowed().items() if task not in before]
    assert sorted(map(format_cpus, added)) == sorted(map(str, CPUS))


def test_a_cpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="on CPU 100000 failed"):
        EngineLoad([100_000], THREAD_BYTES)


def test_buffers_have_a_least_size() -> None:
    with pytest.raises(ConfigError, match="thread_bytes at least 262144"):
        EngineLoad(CPUS, 4096)


def test_the_way_of_copying_is_named() -> None:
    assert "copies" in copier()
