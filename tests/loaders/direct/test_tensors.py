from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.loaders.tensor_loads import Model, TensorLoadContract
from wattload.core.errors import DataError
from wattload.loaders.device_copy import DRIVER
from wattload.loaders.direct import tensors
from wattload.loaders.direct.config import Config


class TestHost(TensorLoadContract):
    def config(self) -> Config:
        return Config(block_bytes=16 << 10, queue_depth=2, pollers=2)


class TestPread(TestHost):
    def config(self) -> Config:
        return Config(engine="pread", block_bytes=128 << 10)


@pytest.mark.gpu
@pytest.mark.skipif(not DRIVER.exists(), reason=f"there is no NVIDIA GPU: {DRIVER} is missing")
class TestGpu(TestHost):
    device = 0


def test_first_layer_arrives_before_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "PIECE_BYTES", 4096)
    model = Model(tmp_path)
    with closing(Config(block_bytes=4096).tensor_load(model.plan())) as load:
        loaded = load.load(lambda _: None)
    assert loaded.first_layer_ns < loaded.end_ns


def test_a_load_goes_on_after_one_of_a_short_file(tmp_path: Path) -> None:
    model = Model(tmp_path)
    plan, path = model.plan(), model.files[1]
    whole = path.read_bytes()
    with closing(Config().tensor_load(plan)) as load:
        for wrong, sentence in (
            (whole[:-1], "its data ends at byte"),
            (whole.replace(b"scale", b"scala"), "has other tensors by its header"),
        ):
            path.write_bytes(wrong)
            with pytest.raises(DataError, match=sentence):
                load.load(lambda _: None)
        path.write_bytes(whole)
        assert load.load(lambda _: None).delivered_bytes == plan.needed_bytes


def test_columns_of_a_tensor_are_read_with_their_rows(tmp_path: Path) -> None:
    plan = Model(tmp_path).plan(tp=2, sliced=True)
    assert plan.kinds_read_whole(reads_columns=Config().reads_columns) == ("down_proj",)
    assert plan.kinds_read_whole(reads_columns=True) == ()


def test_memory_of_the_model_is_freed(tmp_path: Path) -> None:
    """Else repeated loads of a large model do not fit."""
    plan = Model(tmp_path).plan()
    with closing(Config().tensor_load(plan)) as load:
        load.load(lambda _: None)
        load.release()
        assert not any(load.content(i).any() for i in range(len(plan.parts)))
