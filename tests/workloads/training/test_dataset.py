from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocation import punch, unwrite
from tests.context import context_at, directory_target
from wattload.core.errors import DataError
from wattload.workloads.training.config import Config
from wattload.workloads.training.dataset import Dataset
from wattload.workloads.training.generation import prepare


@pytest.mark.parametrize("hollow_out", [punch, unwrite])
def test_hollow_data_is_refused_and_made_again_once_deleted(
    tmp_path: Path, hollow_out: Callable[[Path], None]
) -> None:
    def planned() -> Dataset:
        return Dataset(Config(record_divisor=640), 10, (directory_target(tmp_path),))

    first, _ = prepare(planned(), context_at(tmp_path))
    before = [path.read_bytes() for path in first.paths]
    hollow_out(first.paths[7])
    with pytest.raises(DataError, match=r"img_07_.* has 16.38 kB in holes or .*; delete this file"):
        prepare(planned(), context_at(tmp_path))
    first.paths[7].unlink()
    dataset = planned()
    assert dataset.missing(dataset.existing()) == [7]
    second, reused = prepare(dataset, context_at(tmp_path))
    assert not reused
    assert [path.read_bytes() for path in second.paths] == before
