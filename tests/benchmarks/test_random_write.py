"""Random writes against fio: what is judged, and what is said where it can't be measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import fio, random_write
from benchmarks.devices import loop_device, size_of
from benchmarks.measure import NotMeasuredError, Verdict
from benchmarks.random_write import Watched
from benchmarks.taken import Taken

TAKEN = Taken(moved_bytes=1, operation_count=1, seconds=1.0, cpu_s=1.0, process_cpu_s=1.0)


@contextmanager
def absent() -> Iterator[Path]:
    raise NotMeasuredError("no zram device can be added: Permission denied")
    yield Path()


def test_a_device_that_can_not_be_made_is_not_measured() -> None:
    speed, cost, depth = random_write.on_device("zram", absent, 7)
    for result in (speed, cost, depth):
        assert result.verdict is Verdict.MISSING
        assert result.missing == "no zram device can be added: Permission denied"
        assert "zram" in result.name


@pytest.mark.parametrize(
    ("ours", "fios", "verdict"),
    [(31.2, 29.0, Verdict.MET), (28.0, 29.0, Verdict.MISSED), (1.0, 1.0, Verdict.MISSING)],
)
def test_the_depth_is_judged_where_there_is_a_queue(
    monkeypatch: pytest.MonkeyPatch, ours: float, fios: float, verdict: Verdict
) -> None:
    def watched(job: random_write.Job) -> Watched:
        is_ours = hasattr(job, "readings_s")
        return Watched(TAKEN, ours if is_ours else fios)

    monkeypatch.setattr(random_write, "_watched", lambda job, **_: lambda: watched(job))
    monkeypatch.setattr(fio.Job, "shown", lambda _: "fio")
    _, _, depth = random_write.compare("file", Path("file"), 7)
    assert depth.verdict is verdict


def test_a_loop_device_is_there_for_a_time_and_has_its_files_size(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    try:
        with loop_device(image) as device:
            assert size_of(device) == size_of(image) == 1 << 20
    except NotMeasuredError as error:
        pytest.skip(str(error))
