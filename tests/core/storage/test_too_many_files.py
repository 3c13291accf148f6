"""A data set that can't be on the targets is refused before its files are listed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage import targets
from wattload.core.storage.targets import FEW_FILES, refuse_too_many_files, resolve_targets

SETTING = "workload.file_count"


def test_files_beyond_the_file_system_are_refused_with_bytes_and_space(tmp_path: Path) -> None:
    found = resolve_targets([tmp_path], host=socket.gethostname(), try_direct_io=False)
    with pytest.raises(TargetError, match=r"file_count=1000000000 needs .+B, but the targets have"):
        refuse_too_many_files(found, setting=SETTING, file_count=10**9, data_bytes=1e18)
    # Files of a byte take a block each.
    with pytest.raises((TargetError, ConfigError), match=r"file_count=10{12} needs"):
        refuse_too_many_files(found, setting=SETTING, file_count=10**12, data_bytes=1e12)


def test_lists_that_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "PLANNED_FILE_BYTES", 1 << 30)
    with pytest.raises(ConfigError, match="of memory for the list of files"):
        refuse_too_many_files((), setting=SETTING, file_count=FEW_FILES + 1, data_bytes=0)


def test_few_files_are_left_to_the_preflight(tmp_path: Path) -> None:
    found = resolve_targets([tmp_path], host=socket.gethostname(), try_direct_io=False)
    refuse_too_many_files(found, setting=SETTING, file_count=FEW_FILES, data_bytes=1e18)
