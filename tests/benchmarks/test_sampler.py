"""What sampling costs is measured on a real sampler, and its bench ends what it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import sampler
from benchmarks.taken import Taken

TAKEN = Taken(moved_bytes=1, operation_count=1, seconds=1.0, cpu_s=1.0, process_cpu_s=1.0)


@pytest.mark.slow
def test_share_is_that_of_a_sampler_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "WINDOW_S", 0.3)
    shares = sampler._shares(2)
    assert len(shares) == 2
    assert all(0 < share < 100 for share in shares)


@pytest.mark.slow
def test_sampled_way_has_a_sampler_beside_it_and_ends_it() -> None:
    seen: list[set[str]] = []

    def take() -> Taken:
        seen.append(children())
        return TAKEN

    before = children()
    assert sampler._sampled(take)() == TAKEN
    assert len(seen[0] - before) == 1
    assert not children() & seen[0] - before


def children() -> set[str]:
    """Return the processes that this one has started and that are still there."""
    found = Path("/proc/thread-self").resolve().parent.glob("*/children")
    return {pid for path in found for pid in path.read_text().split()}


def test_estimate_grows_with_the_pairs() -> None:
    assert sampler.seconds(9) > sampler.seconds(1) > 0
