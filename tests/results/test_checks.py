"""Checks that several workloads declare."""

from __future__ import annotations

import pytest

from tests.records import Scenario, make_run
from wattload.core.record.run import RunRecord
from wattload.results.reading import judged


def verdict(record: RunRecord) -> str:
    (found,) = (c for c in judged(record).checks if c.name.startswith("counted_bytes_"))
    return found.verdict


@pytest.mark.parametrize(("factor", "expected"), [(1, "pass"), (2, "fail")])
def test_bytes_that_a_phase_counts_twice_fail(factor: int, expected: str) -> None:
    record, _ = make_run(Scenario())
    spans = tuple(
        each.model_copy(update={"read_bytes": factor * each.read_bytes}) for each in record.spans
    )
    assert verdict(record.model_copy(update={"spans": spans})) == expected
