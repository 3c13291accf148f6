"""The translation layer against the closed form, and the verdicts of steady state on its writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import lambertw

from tests.lab.virtual_ssd.translation import TranslationLayer
from wattload.core.steady import SteadyJudge, SteadyVerdict

PAGES = 200_000
CAPACITY = 30_720_000_000_000
PAGE = CAPACITY // PAGES
"""A drive of 30.72 TB whose page stands for 153.6 MB: 200,000 pages have the amplification of many
more, and times are those of the drive."""
MEDIA_BYTES_PER_S = 5e9
READING_PAGES = 100
"""Host pages between two readings: 3 s at amplification 1."""
SPARES = (0.07, 0.125, 0.28)
SEEDS = range(5)

Pages = NDArray[np.int64]


def closed_form(alpha: float) -> float:
    """Return the amplification of uniform writes with FIFO collection, in the long run."""
    return float(alpha / (alpha + lambertw(-alpha * np.exp(-alpha)).real))


def filled(spare_share: float) -> TranslationLayer:
    """Return a layer after sequential preconditioning of two capacities."""
    layer = TranslationLayer(CAPACITY, spare_share=spare_share, page_bytes=PAGE)
    for _ in range(2):
        layer.write(0, CAPACITY)
    assert layer.media_bytes == layer.host_bytes == 2 * CAPACITY
    return layer


def uniform(seed: int) -> Iterator[Pages]:
    random = np.random.default_rng(seed)
    while True:
        yield random.integers(0, PAGES, READING_PAGES)


def each_once(seed: int, *, is_repeated: bool) -> Iterator[Pages]:
    """Yield a permutation per pass: always the same one, or each time a new one."""
    random = np.random.default_rng(seed)
    order = random.permutation(PAGES)
    while True:
        yield from order.reshape(-1, READING_PAGES)
        if not is_repeated:
            order = random.permutation(PAGES)


@dataclass
class Writing:
    """Random writes to a layer whose media is the limit, read after every hundred pages."""

    layer: TranslationLayer
    judge: SteadyJudge
    time_s: float = 0.0
    readings: dict[float, tuple[int, int]] = field(default_factory=dict)
    """Host and media bytes by time."""

    def __post_init__(self) -> None:
        self._host_bytes = self.layer.host_bytes
        self._read()

    def write(self, draws: Iterator[Pages], capacities: float) -> None:
        for _ in range(round(capacities * PAGES / READING_PAGES)):
            before_bytes = self.layer.media_bytes
            self.layer.write_pages(next(draws), READING_PAGES * PAGE)
            self.time_s += (self.layer.media_bytes - before_bytes) / MEDIA_BYTES_PER_S
            self._read()

    def _read(self) -> None:
        self.judge.read(self.time_s, self.layer.host_bytes - self._host_bytes)
        self.readings[self.time_s] = (self.layer.host_bytes, self.layer.media_bytes)

    def amplification(self, verdict: SteadyVerdict) -> float:
        """Return media / host bytes of a verdict's window."""
        assert verdict.window is not None, verdict.reason
        start, end = (
            self.readings[time_s] for time_s in (verdict.window.start_s, verdict.window.end_s)
        )
        return (end[1] - start[1]) / (end[0] - start[0])

    def by_parts(self, parts: int) -> NDArray[np.float64]:
        """Return the amplification of each part of a capacity, by order."""
        every = PAGES // READING_PAGES // parts
        counts = np.array(list(self.readings.values()), dtype=np.float64)[::every]
        host_and_media: NDArray[np.float64] = np.diff(counts, axis=0)
        return host_and_media[:, 1] / host_and_media[:, 0]


def written(
    spare_share: float, draws: Iterator[Pages], capacities: float, judge: SteadyJudge | None = None
) -> Writing:
    writing = Writing(filled(spare_share), judge or SteadyJudge(CAPACITY))
    writing.write(draws, capacities)
    return writing


def test_every_page_keeps_its_place_through_collection() -> None:
    """Against a plain set of what is mapped."""
    random = np.random.default_rng(9)
    layer = TranslationLayer(1000 * 4096, spare_share=0.1, page_bytes=4096)
    mapped: set[int] = set()
    for _ in range(3000):
        first, count = int(random.integers(0, 990)), int(random.integers(1, 10))
        pages = range(first, first + count)
        if random.random() < 0.8:
            layer.write(first * 4096, count * 4096)
            mapped.update(pages)
        else:
            layer.deallocate(first * 4096, count * 4096)
            mapped.difference_update(pages)
        assert layer.valid_bytes == len(mapped) * 4096
    assert layer.media_bytes > 1.5 * layer.host_bytes


def test_part_of_a_page_is_written_as_a_page_and_deallocated_not_at_all() -> None:
    layer = TranslationLayer(1000 * 16384, spare_share=0.1, page_bytes=16384)
    assert layer.write(16384 - 512, 1024) == 2 * 16384
    layer.deallocate(512, 2 * 16384 - 1024)
    assert layer.valid_bytes == 2 * 16384
    layer.deallocate(0, 2 * 16384)
    assert layer.valid_bytes == 0


def test_deallocated_pages_are_spare_area() -> None:
    """Writes to one half of a drive whose other half is deallocated cost next to nothing."""
    costs = []
    for deallocates in (False, True):
        layer = TranslationLayer(4096 * 4096, spare_share=0.1, page_bytes=4096)
        layer.write(0, 4096 * 4096)
        if deallocates:
            layer.deallocate(2048 * 4096, 2048 * 4096)
        before = layer.media_bytes, layer.host_bytes
        layer.write_pages(np.random.default_rng(1).integers(0, 2048, 40_000), 40_000 * 4096)
        costs.append((layer.media_bytes - before[0]) / (layer.host_bytes - before[1]))
    assert costs[0] > 2
    assert costs[1] == pytest.approx(closed_form(2.2), rel=0.05)


@pytest.mark.parametrize(("capacity_bytes", "spare_share"), [(1_000_001, 0.28), (1 << 20, 0.01)])
def test_impossible_layer_is_an_error(capacity_bytes: int, spare_share: float) -> None:
    with pytest.raises(ValueError, match="must be whole pages of 4096"):
        TranslationLayer(capacity_bytes, spare_share=spare_share, page_bytes=4096)


def test_closed_form_has_its_known_figures() -> None:
    assert [round(closed_form(alpha), 2) for alpha in (1.07, 1.125, 1.28)] == [7.82, 4.68, 2.48]


@pytest.mark.parametrize("spare_share", SPARES)
@pytest.mark.parametrize("seed", SEEDS)
def test_drive_s_verdict_comes_by_two_capacities_and_is_right(
    spare_share: float, seed: int
) -> None:
    writing = written(spare_share, uniform(seed), 2)
    expected = closed_form(writing.layer.alpha)
    assert writing.judge.headline.is_steady, writing.judge.headline.reason
    assert writing.amplification(writing.judge.drive) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("seed", SEEDS)
def test_plateau_fools_rounds_of_the_drive_that_count_from_the_start(seed: int) -> None:
    """Five rounds of a twentieth fit into a spare area of 28 %."""
    unconditioned = SteadyJudge(CAPACITY, already_random_bytes=CAPACITY, rest_s=0)
    writing = written(0.28, uniform(seed), 1, unconditioned)
    assert writing.amplification(unconditioned.drive) == 1.0
    assert closed_form(writing.layer.alpha) > 2.4


@pytest.mark.parametrize("spare_share", SPARES)
def test_plateau_fools_five_minutes_at_any_spare_area(spare_share: float) -> None:
    writing = written(spare_share, uniform(0), 1)
    assert writing.amplification(writing.judge.five_minutes) == 1.0
    assert not writing.judge.headline.is_steady


@pytest.mark.parametrize("spare_share", SPARES)
def test_amplification_is_flat_for_the_spare_area_then_high_then_settles(
    spare_share: float,
) -> None:
    """The first block that is collected holds exp(-spare share) valid pages."""
    writing = written(spare_share, uniform(3), 4)
    by_hundredths = writing.by_parts(100)
    flat = int(spare_share * 100)
    assert by_hundredths[:flat] == pytest.approx(1.0)
    assert by_hundredths.argmax() in (flat, flat + 1)
    peak = 1 / (1 - np.exp(-spare_share))
    assert 0.85 * peak < by_hundredths.max() <= peak
    expected = closed_form(writing.layer.alpha)
    assert by_hundredths[-200:].mean() == pytest.approx(expected, rel=0.01)
    assert writing.by_parts(20)[-40:] == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("seed", SEEDS)
def test_repeated_permutation_fools_both_verdicts(seed: int) -> None:
    """For five rounds of each pass the oldest blocks hold nothing valid; whole passes cost more."""
    writing = written(0.28, each_once(seed, is_repeated=True), 4)
    assert writing.judge.headline.is_steady
    assert writing.amplification(writing.judge.drive) == pytest.approx(1.0, abs=0.005)
    by_passes = writing.by_parts(1)
    assert by_passes.min() > 1.7


def test_writes_of_a_quarter_of_a_page_cost_four_times() -> None:
    random = np.random.default_rng(5)
    costs = []
    for part in (1, 4):
        layer = TranslationLayer(20_000 * 16384, spare_share=0.28, page_bytes=16384)
        layer.write(0, 20_000 * 16384)
        before = layer.host_bytes, layer.media_bytes
        for at in random.integers(0, 20_000 * part, 80_000).tolist():
            layer.write(at * 16384 // part, 16384 // part)
        costs.append((layer.media_bytes - before[1]) / (layer.host_bytes - before[0]))
    assert costs[1] / costs[0] == pytest.approx(4, rel=0.01)
