"""Reports and files of other hosts come to the root in blocks, as often as it asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.context import ThreadCommunicator, run_ranks
from wattload.core.host.counters import rank_facts
from wattload.core.record.file import DRAFT_FILE
from wattload.run import transport
from wattload.run.phases import PhaseTraffic
from wattload.run.record import HostReport, RankReport
from wattload.run.transport import ReceivedReports, rank_reports, send_report

HOSTS = ("first", "second", "third")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "BLOCK_BYTES", 1000)


def report_of(host: str, rank: int) -> RankReport:
    traffic = PhaseTraffic(
        host=host,
        rank=rank,
        phase="read",
        time_ns=np.arange(500),
        read_bytes=np.arange(500) * rank,
        written_bytes=np.zeros(500, dtype=np.int64),
    )
    return RankReport(rank=rank_facts(rank, host, 1.0), marked=(), traffic=(traffic,))


def of_leader(folder: Path) -> HostReport:
    return HostReport(folder=folder, ranks=(), capture=None, power=None, load=None)


def test_the_leader_of_a_host_has_the_reports_of_its_ranks() -> None:
    world = ThreadCommunicator.world(3)
    found = run_ranks(world, lambda own: rank_reports(own, report_of("host", own.rank)))
    assert [bool(each) for each in found] == [True, False, False]
    reports = ReceivedReports(ThreadCommunicator.world(1)[0], of_leader(Path()), found[0])
    (host,) = reports(Path())
    assert [each.rank.rank for each in host.ranks] == [0, 1, 2]
    assert (host.ranks[2].traffic[0].read_bytes == np.arange(500) * 2).all()


def test_the_root_has_the_reports_and_files_of_all_hosts_as_often_as_it_asks(
    tmp_path: Path,
) -> None:
    """The second host has a folder of its own, the third shares the root's."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    for folder in (own, shared, tmp_path / "spare"):
        folder.mkdir()
    (own / "raw").mkdir()
    for name in (DRAFT_FILE, "samples-second.jsonl", "raw/output"):
        (own / name).write_bytes(b"x" * 2500)
    single = ThreadCommunicator.world(1)[0]

    def on_leader(leaders: ThreadCommunicator) -> list[list[HostReport]]:
        rank = leaders.rank
        ranks = rank_reports(single, report_of(HOSTS[rank], rank))
        if rank:
            report = of_leader(own if rank == 1 else shared)
            send_report(leaders, report, ranks, files=own if rank == 1 else None)
            return []
        reports = ReceivedReports(leaders, of_leader(shared), ranks)
        began = reports(shared)
        found = [[next(began), next(began)], list(reports(tmp_path / "spare"))]
        reports.end()
        return found

    first, second = run_ranks(ThreadCommunicator.world(3), on_leader)[0]
    assert [report.host for report in first] == ["first", "second"]
    assert [report.host for report in second] == list(HOSTS)
    assert [report.folder for report in second] == [shared, tmp_path / "spare/host-1", shared]
    assert (second[2].ranks[0].traffic[0].read_bytes == np.arange(500) * 2).all()
    for place in (shared, tmp_path / "spare"):
        files = {path.name for path in (place / "host-1").rglob("*") if path.is_file()}
        assert files == {"samples-second.jsonl", "output"}
        assert (place / "host-1/raw/output").read_bytes() == b"x" * 2500
