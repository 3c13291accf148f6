from __future__ import annotations

import os
from pathlib import Path

import pytest

from wattload.core.record.results import Check
from wattload.loaders.data.cold_cache import (
    cold_cache_check,
    evict,
    residency,
    resident_fraction,
    worst_of,
    worst_over_hosts,
)

MIB = 1 << 20


def make(path: Path, size_bytes: int) -> Path:
    path.write_bytes(os.urandom(size_bytes))
    return path


def test_evicted_files_are_out_of_memory_and_read_files_are_in(tmp_path: Path) -> None:
    path = make(tmp_path / "file", 4 * MIB + 1)
    # Most of it, not all: a kernel that reclaims idle memory (DAMON) may take a page at once.
    assert (resident_fraction([path]) or 0) > 0.5
    evict([path])
    assert resident_fraction([path]) == 0.0
    path.read_bytes()
    assert (resident_fraction([path]) or 0) > 0.5


def test_residency_sums_over_files_in_bytes(tmp_path: Path) -> None:
    cold, warm = make(tmp_path / "cold", 3 * MIB), make(tmp_path / "warm", 1000)
    evict([cold])
    found = residency([cold, warm])
    assert (found.resident_bytes, found.total_bytes) == (1000, 3 * MIB + 1000)


def test_a_window_is_no_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattload.loaders.data.cold_cache._WINDOW_BYTES", MIB)
    path = make(tmp_path / "file", 3 * MIB + 4097)
    assert residency([path]).resident_bytes == 3 * MIB + 4097


def test_dirty_pages_are_written_before_they_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    text = os.urandom(MIB)
    path.write_bytes(text)
    evict([path])
    assert path.read_bytes() == text


def test_no_bytes_are_cold(tmp_path: Path) -> None:
    assert resident_fraction([make(tmp_path / "empty", 0)]) == 0.0
    assert resident_fraction([]) == 0.0


def test_check_fails_on_a_warm_file_and_passes_on_a_cold_one(tmp_path: Path) -> None:
    path = make(tmp_path / "file", MIB)
    warm = cold_cache_check([path])
    assert warm.verdict == "fail"
    assert warm.figures["resident_bytes"] == MIB
    evict([path])
    cold = cold_cache_check([path], name="cold_cache.read")
    assert (cold.name, cold.verdict, cold.mandatory) == ("cold_cache.read", "pass", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_foreign_file_is_not_checked_instead_of_called_warm(tmp_path: Path) -> None:
    path = make(tmp_path / "file", MIB)
    path.chmod(0o644)
    for folder in [tmp_path, *tmp_path.parents]:
        folder.chmod(folder.stat().st_mode | 0o055)
    evict([path])
    os.seteuid(65534)
    try:
        assert resident_fraction([path]) is None
        check = cold_cache_check([path])
    finally:
        os.seteuid(0)
    assert check.verdict == "not_checked"
    assert "belongs to another user" in check.sentence


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(make(tmp_path / "file", 1))
    with pytest.raises(OSError, match="symbolic"):
        evict([tmp_path / "link"])


def test_a_failed_map_is_an_error_of_that_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(tmp_path)):
        # A folder opens for reading and has a size, and can't be mapped.
        residency([tmp_path])


def test_the_worst_of_several_checks_is_kept_with_their_number(tmp_path: Path) -> None:
    path = make(tmp_path / "file", MIB)
    warm = cold_cache_check([path])
    evict([path])
    cold = cold_cache_check([path])
    found = worst_of([cold, warm, cold])
    assert (found.verdict, found.figures["times_checked"]) == ("fail", 3)


def test_the_worst_check_of_several_hosts_names_its_host(tmp_path: Path) -> None:
    cold, cool, other = [
        Check(name=name, verdict="pass", sentence="In all.", figures={"resident_bytes": size})
        for name, size in (("cold_cache", 0), ("cold_cache", 9), ("other", None))
    ]
    by_rank = [("a", [cold, other]), ("a", [cold]), ("b", [cold, cool])]
    assert [check.sentence for check in worst_over_hosts(by_rank)] == [
        "On b, the worst of 2 hosts: in all.",
        "On a, the worst of 2 hosts: in all.",
    ]
    assert [check.sentence for check in worst_over_hosts(by_rank[:2])] == ["In all."] * 2
