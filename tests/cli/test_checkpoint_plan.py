"""The arithmetic of checkpoints that can't be run here, against cases worked by hand."""

from __future__ import annotations

import pytest

from wattload.cli.checkpoint_plan import (
    drives_needed,
    shape,
)
from wattload.core.errors import ConfigError
from wattload.core.units import GIB


@pytest.mark.parametrize(
    ("model", "ranks", "files", "gib"),
    [
        ("8b", 8, 8 + 8, 104.705),
        ("70b", 64, 64 + 64, 911.212),
        ("405b", 512, 1032 + 512, 5292.249),
        ("1t", 1024, 1048 + 1024, 15426.589),
    ],
)
def test_shapes_are_dlios(model: str, ranks: int, files: int, gib: float) -> None:
    found = shape(model)
    assert (found.ranks, found.model_ranks, found.file_count) == (ranks, ranks, files)
    assert round(found.total_bytes / GIB, 3) == gib


@pytest.mark.parametrize(
    ("model", "computed_gib", "published"),
    [
        ("mlperf_subset", 98.5, 94),
        ("mlperf_subset_8b", 104.7, 105),
        ("mlperf_subset_70b", 113.9, 114),
        ("mlperf_subset_405b", 98.5, 94),
        ("mlperf_subset_1t", 143.7, 161),
    ],
)
def test_subsets_stand_beside_what_was_published(
    model: str, computed_gib: float, published: int
) -> None:
    found = shape(model)
    assert found.ranks == 8
    assert round(found.total_bytes / GIB, 1) == computed_gib
    assert found.published.startswith(f"{published} GB")


def test_the_published_subsets_are_even_shares_of_published_totals() -> None:
    """Weights over tensor x pipeline ranks, optimizer over all; 1t's weights were 2571 for 2204."""
    for weights, optimizer, model_ranks, all_ranks, published in (
        (755, 4533, 256, 512, 94),
        (2571, 15426, 512, 1024, 161),
    ):
        share = 8 * (weights / model_ranks + optimizer / all_ranks)
        assert round(share) == published


def test_a_part_of_the_ranks_has_no_file_count() -> None:
    found = shape("405b", 2)
    assert (found.ranks, found.model_ranks, found.file_count) == (2, 512, None)
    assert found.total_bytes == found.rank_min_bytes + found.rank_max_bytes
    assert (shape("405b", 512).file_count, shape("405b", 512).file_count_missing) == (1544, "")


@pytest.mark.parametrize("ranks", [0, -1, 513])
def test_ranks_that_the_model_lacks_are_refused(ranks: int) -> None:
    with pytest.raises(ConfigError, match=f"ranks must be 1 to 512 for model 405b, got {ranks}"):
        shape("405b", ranks)


def test_drives_hold_the_share_that_may_be_lost() -> None:
    """1000 GB at 1 GB/s take 1000 s; 5 % of 1000 s are 50 s, so 20 drives, or 1 to drain."""
    found = drives_needed(10**12, 1e9, interval_s=1000.0, overhead=0.05)
    assert (found.sync_count, found.stall_s, found.lost_share) == (20, 50.0, 0.05)
    assert (found.async_count, found.drain_s) == (1, 1000.0)


def test_a_drive_more_is_taken_for_any_rest() -> None:
    found = drives_needed(10**12 + 1_000_000, 1e9, interval_s=1000.0, overhead=0.05)
    assert (found.sync_count, found.async_count) == (21, 2)
    assert found.lost_share < 0.05
    assert drives_needed(1, 1e9, interval_s=1000.0, overhead=0.05).sync_count == 1
