from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tinyfs


@pytest.fixture
def tiny_file_system(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 32 MiB."""
    with tinyfs.tiny_file_system(tmp_path) as mount_point:
        yield mount_point
