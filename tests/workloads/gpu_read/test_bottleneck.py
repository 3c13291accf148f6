"""What limits a rate, by the figures that show it."""

from __future__ import annotations

from typing import Any

import pytest

from wattload.workloads.gpu_read.reads import bottleneck_of


@pytest.mark.parametrize(
    ("changes", "word", "reason"),
    [
        ({"rate": 90.0}, "link", "0.90 of what the GPU pulls without a queue"),
        ({"rate": 105.0}, "link", "1.05 of what the GPU pulls without a queue"),
        ({"rate": 106.0}, "storage", "0.95 of the reads that were asked for at once were in fli"),
        ({"rate": 89.0}, "storage", "0.95 of the reads"),
        ({"rate": 180.0}, "queue", "0.90 of what the queue does with nothing to deliver"),
        ({"rate": 212.0}, "storage", "0.95 of the reads"),
        ({"busiest": 0.9}, "pollers", "the busiest poller worked for 0.90 of the time"),
        ({"busiest": 0.9, "rate": 95.0}, "link", "0.95 of what"),
        ({"in_flight": 80.0}, None, "0.80 of the reads that were asked for at once were in fli"),
        ({"in_flight": None}, None, "how many reads were in flight is not known"),
        ({"pull_per_s": None, "rate": 95.0}, "storage", "0.95 of the reads"),
        ({"engine": "memory", "rate": 95.0}, "link", "0.95 of what"),
        ({"engine": "memory"}, None, "no storage was read, and neither"),
        ({"engine": "null", "rate": 95.0}, None, "no storage was read, and neither"),
        ({"engine": "null", "rate": 190.0}, "queue", "0.95 of what"),
    ],
)
def test_a_limit_is_named_only_where_a_figure_shows_it(
    changes: dict[str, Any], word: str | None, reason: str
) -> None:
    figures: dict[str, Any] = {
        "engine": "storage", "rate": 50.0, "pull_per_s": 100.0, "queue_per_s": 200.0,
        "busiest": 0.5, "in_flight": 95.0, "outstanding": 100,
    }  # fmt: skip
    figures |= changes
    found = bottleneck_of(figures.pop("engine"), **figures)
    assert found[0] == word
    assert found[1].startswith(reason)
