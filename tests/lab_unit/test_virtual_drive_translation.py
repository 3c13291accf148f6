"""A virtual drive with a translation layer: amplification costs time and joules, and is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.lab.virtual_ssd import identify, logs
from tests.lab.virtual_ssd.design import AMPLIFYING, STATES, Design
from tests.lab_unit.virtual import Bench, VirtualAdmin
from wattload.power.nvme.logs import read_ocp_smart, read_smart

PAGE = AMPLIFYING.page_bytes
PAGES = AMPLIFYING.capacity_bytes // PAGE
DESTAGE_BYTES_PER_S = STATES[0].write_bytes_per_s * AMPLIFYING.destage_share


def fill(bench: Bench) -> None:
    """Fill the drive twice in sequence."""
    for _ in range(2):
        for start_bytes in range(0, AMPLIFYING.capacity_bytes, 1 << 20):
            bench.give(is_write=True, start_bytes=start_bytes)
    bench.drain()


def write_randomly(bench: Bench, count: int, seed: int, size_bytes: int = PAGE) -> None:
    places = np.random.default_rng(seed).integers(0, PAGES * PAGE // size_bytes, count)
    for place in places.tolist():
        bench.give(is_write=True, start_bytes=place * size_bytes, size_bytes=size_bytes)
    bench.drain()


@pytest.fixture(scope="module")
def settled() -> Bench:
    """A drive after two capacities of random writes."""
    bench = Bench(AMPLIFYING)
    fill(bench)
    write_randomly(bench, 2 * PAGES, seed=1)
    return bench


def test_rate_is_what_the_media_leaves(settled: Bench) -> None:
    layer = settled.engine.layer
    assert layer is not None
    host, media, start_ns = layer.host_bytes, layer.media_bytes, settled.now_ns
    write_randomly(settled, PAGES, seed=2)
    seconds = (settled.now_ns - start_ns) / 1e9
    amplification = (layer.media_bytes - media) / (layer.host_bytes - host)
    assert 2.2 < amplification < 2.8
    expected = DESTAGE_BYTES_PER_S / amplification
    assert PAGES * PAGE / seconds == pytest.approx(expected, rel=0.02)


def test_energy_is_of_host_bytes_media_bytes_and_time(settled: Bench) -> None:
    settled.wait(5)
    destaged, start_ns = settled.engine.destaged_bytes, settled.now_ns
    write_randomly(settled, PAGES, seed=3)
    settled.wait(5)
    media_bytes = settled.engine.destaged_bytes - destaged
    expected_j = (
        STATES[0].idle_w * (settled.now_ns - start_ns) / 1e9
        + AMPLIFYING.write_j_per_byte * PAGES * PAGE
        + AMPLIFYING.destage_j_per_byte * media_bytes
    )
    assert media_bytes > 2 * PAGES * PAGE
    assert settled.energy_j(start_ns, settled.now_ns) == pytest.approx(expected_j, rel=1e-6)


def test_logs_count_media_and_host_bytes(settled: Bench) -> None:
    settled.wait(5)
    admin, layer = VirtualAdmin(settled), settled.engine.layer
    assert layer is not None
    media_bytes = read_ocp_smart(admin).media_written_bytes
    assert media_bytes == pytest.approx(layer.media_bytes, rel=1e-6)
    written_bytes = read_smart(admin).written_bytes
    assert 0 <= written_bytes - layer.host_bytes < 512_000


def test_first_writes_of_a_fresh_drive_are_not_amplified() -> None:
    bench = Bench(AMPLIFYING)
    write_randomly(bench, PAGES, seed=1)
    assert bench.engine.layer is not None
    assert bench.engine.layer.media_bytes == bench.engine.layer.host_bytes == PAGES * PAGE


def test_namespace_states_its_page_and_what_is_used() -> None:
    bench = Bench(AMPLIFYING)
    write_randomly(bench, 10, seed=1)
    data = identify.namespace(AMPLIFYING, bench.engine.used_bytes)
    assert int.from_bytes(data[16:24], "little") * 512 == bench.engine.used_bytes <= 10 * PAGE
    assert data[24] == 1 << 4
    assert (int.from_bytes(data[64:66], "little") + 1) * 512 == PAGE


@pytest.mark.parametrize(
    "page",
    [
        lambda design: identify.namespace(design, 0)[24:74],
        lambda design: identify.controller(design)[520:522],
        logs.effects,
    ],
    ids=["namespace", "controller", "effects"],
)
def test_drive_without_a_translation_layer_states_none(page: Callable[[Design], bytes]) -> None:
    without = replace(AMPLIFYING, spare_share=None)
    assert page(without) == page(Design())
    assert page(without) != page(AMPLIFYING)
