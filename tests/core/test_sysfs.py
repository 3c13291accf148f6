"""Values and reasons read from the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattload.core.record.target import TargetState
from wattload.core.sysfs import (
    Observation,
    Roots,
    block_folder,
    bracketed,
    explain,
    host_memory_bytes,
    parse_cpus,
    read_int,
    read_text,
    with_values,
)


def test_padding_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"QEMU NVMe Ctrl      \n\0")
    assert read_text(tmp_path / "model") == "QEMU NVMe Ctrl"


def test_a_number_that_is_none_names_file_and_text(tmp_path: Path) -> None:
    (tmp_path / "size").write_text("big\n")
    with pytest.raises(ValueError, match=r"size contains 'big', not an integer"):
        read_int(tmp_path / "size")


def test_the_marked_choice_is_taken() -> None:
    assert bracketed("none [mq-deadline] bfq") == "mq-deadline"
    assert bracketed("none") == "none"


def test_the_memory_of_a_host_is_memtotal(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemFree:  12 kB\nMemTotal:       24689316 kB\n")
    assert host_memory_bytes(Roots(proc=tmp_path)) == 24_689_316 * 1024
    assert host_memory_bytes() > 1 << 28


@pytest.mark.parametrize(
    ("error", "clause"),
    [
        (FileNotFoundError(2, "No such file", "/sys/x/nuse"), "the kernel does not show nuse"),
        (PermissionError(13, "Permission denied", "/sys/x/config"), "config: Permission denied"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (ValueError("no link"), "no link"),
    ],
)
def test_an_error_becomes_one_clause(error: Exception, clause: str) -> None:
    assert explain(error) == clause


def test_an_observation_keeps_a_value_or_a_reason() -> None:
    observation = Observation()
    observation.put("free_bytes", 0, "never used")
    observation.read("fill_fraction", lambda: None, "no size")
    observation.lack("FIEMAP: Operation not supported", "extents_per_file")
    state = observation.build(TargetState, index=3)
    assert (state.index, state.free_bytes) == (3, 0)
    assert state.missing == {
        "fill_fraction": "no size",
        "extents_per_file": "FIEMAP: Operation not supported",
    }


def test_values_of_others_fill_gaps_and_reasons_never_replace_values() -> None:
    state = TargetState(
        index=0,
        free_bytes=5,
        fill_fraction=None,
        extents_per_file=None,
        missing={"fill_fraction": "old", "extents_per_file": "old"},
    )
    filled = with_values(
        state, {"fill_fraction": 0.5, "free_bytes": None}, {"extents_per_file": "new", "index": "x"}
    )
    assert (filled.free_bytes, filled.fill_fraction) == (5, 0.5)
    assert filled.missing == {"extents_per_file": "new"}


def test_an_unknown_block_device_is_none() -> None:
    assert block_folder("no-such-device") is None


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", {0}), ("0-2,8", {0, 1, 2, 8}), ("", set()), ("1,3-3", {1, 3})],
)
def test_lists_of_the_kernel(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus
