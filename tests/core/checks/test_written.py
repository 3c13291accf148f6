"""The check of a drive's count of written bytes against the block layer's."""

from __future__ import annotations

import pytest

from tests.records import Scenario, make_run
from wattload.core.checks.io import written_bytes
from wattload.core.record.energy import WrittenRecord
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord

RECORD, _ = make_run(Scenario(workload="checkpoint", power="measured", virtual=False))
(BLOCK,) = [each for each in RECORD.counters if each.phase == "write"]


def written(host_bytes: int | None, *, device: str = "SERIAL1", reason: str = "-") -> WrittenRecord:
    missing = "the drive reports no count of media bytes"
    return WrittenRecord(
        host=BLOCK.host,
        device=device,
        phase="write",
        host_written_bytes=host_bytes,
        media_written_bytes=None,
        write_amplification=None,
        media_source=None,
        missing={
            **({"host_written_bytes": reason} if host_bytes is None else {}),
            **dict.fromkeys(("media_written_bytes", "write_amplification"), missing),
            "media_source": missing,
        },
    )


def checks(*found: WrittenRecord, record: RunRecord = RECORD) -> list[Check]:
    power = record.power.model_copy(update={"written": found})
    return list(written_bytes(record.model_copy(update={"power": power})))


@pytest.mark.parametrize(
    ("share", "verdict"), [(1.0, "pass"), (0.96, "pass"), (1.2, "warn"), (0.9, "warn")]
)
def test_the_drive_s_count_is_compared_with_the_block_layer_s(share: float, verdict: str) -> None:
    assert BLOCK.written_bytes
    (check,) = checks(written(round(BLOCK.written_bytes * share)))
    assert (check.name, check.verdict) == ("written_bytes_write_SERIAL1", verdict)
    assert check.figures["ratio"] == pytest.approx(share, rel=1e-6)


def test_a_count_that_fell_warns() -> None:
    (check,) = checks(written(None, reason="it fell from 9 to 3 B"))
    assert check.verdict == "warn"
    assert "it fell from 9 to 3 B, so it was reset or wrapped" in check.sentence


def test_an_unknown_count_and_several_drives_are_not_checked() -> None:
    (check,) = checks(written(None, reason="it was not read both before and after the phase"))
    assert check.verdict == "not_checked"
    both = checks(written(5), written(6, device="SERIAL2"))
    assert [each.verdict for each in both] == ["not_checked", "not_checked"]


def test_a_run_without_such_counts_has_no_such_check() -> None:
    assert checks() == []
