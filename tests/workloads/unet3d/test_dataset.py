from __future__ import annotations

from pathlib import Path

import pytest

from tests.allocation import punch, unwrite
from tests.context import context_at, directory_target
from wattload.workloads.unet3d.config import Config
from wattload.workloads.unet3d.dataset import Dataset
from wattload.workloads.unet3d.generation import prepare


@pytest.mark.parametrize("hollow_out", [punch, unwrite])
def test_hollow_data_is_made_again(tmp_path: Path, hollow_out: object) -> None:
    def planned() -> Dataset:
        return Dataset(Config(record_divisor=640), 10, (directory_target(tmp_path),))

    first, _ = prepare(planned(), context_at(tmp_path))
    before = [path.read_bytes() for path in first.paths]
    for index in (2, 7):
        hollow_out(first.paths[index])  # type: ignore[operator]
    dataset = planned()
    assert dataset.missing(dataset.existing()) == [2, 7]
    second, reused = prepare(dataset, context_at(tmp_path))
    assert not reused
    assert second.sparse_count == 2
    assert [path.read_bytes() for path in second.paths] == before
    assert dataset.missing(dataset.existing()) == []
