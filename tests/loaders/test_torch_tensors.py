"""Loads by Python packages: their bytes, that mapped files are really read, and what is refused."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.context import context_at
from tests.loaders.tensor_loads import Model, TensorLoadContract
from wattload.core.errors import ConfigError, DataError
from wattload.loaders import fastsafetensors, instanttensor, runai
from wattload.loaders import torch_tensors as loads
from wattload.loaders.data.cold_cache import evict, residency
from wattload.loaders.mmap import config as mmap_config
from wattload.loaders.tensor_loads import LoadPlan, TensorLoadConfig, TensorPart
from wattload.loaders.torch import config as torch_config
from wattload.loaders.torch_tensors import Tensors, TorchTensors
from wattload.workloads.model_load.config import Config
from wattload.workloads.model_load.dataset import dataset_of

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

BIG_BYTES = 64 << 20
"""Far over the read-ahead around a page fault, which is 8 MiB on some hosts."""


class TestMmap(TensorLoadContract):
    def config(self) -> TensorLoadConfig:
        return mmap_config.Config()


class TestTorch(TensorLoadContract):
    def config(self) -> TensorLoadConfig:
        return torch_config.Config()


class TestRunai(TensorLoadContract):
    slices = False

    def config(self) -> TensorLoadConfig:
        pytest.importorskip("runai_model_streamer")
        return runai.Config()


class TestFastsafetensors(TensorLoadContract):
    slices = False

    def config(self) -> TensorLoadConfig:
        pytest.importorskip("fastsafetensors")
        return fastsafetensors.Config()


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> LoadPlan:
    """Return a plan of one large tensor, which is no load for ``mmap`` if nothing touches it."""
    path = tmp_path_factory.mktemp("big") / "model.safetensors"
    tensor = {"dtype": "U8", "shape": (64, 1 << 20), "data_offsets": (0, BIG_BYTES)}
    header = json.dumps({"w": tensor})
    start = 4096
    with path.open("wb") as file:
        file.write((start - 8).to_bytes(8, "little") + header.encode().ljust(start - 8))
        file.write(os.urandom(1 << 20) * 64)
    part = TensorPart(
        name="w",
        file=0,
        offset_bytes=start,
        dtype="U8",
        shape=(64, 1 << 20),
        row_bytes=1 << 20,
        rows=(0, 64),
        columns=(0, 1 << 20),
    )
    return LoadPlan(files=(path,), parts=(part,), first_layer=frozenset({0}))


def resident_after(config: TensorLoadConfig, plan: LoadPlan) -> float:
    evict(plan.files)
    if residency(plan.files).fraction != 0:
        pytest.skip("this file system keeps its pages")
    with closing(config.tensor_load(plan)) as load:
        load.load(lambda _: None)
        found = residency(plan.files).fraction
    assert found is not None
    return found


@pytest.mark.parametrize("config", [mmap_config.Config(), torch_config.Config()])
def test_a_mapped_file_is_read_because_its_pages_are_touched(
    config: TensorLoadConfig, big: LoadPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not config.tensors_bypass_cache
    with closing(config.tensor_load(big)) as load:
        assert any("read-ahead" in remark for remark in load.path().remarks)
    assert resident_after(config, big) == 1
    monkeypatch.setattr(loads, "_touch", lambda rows: None)
    assert resident_after(config, big) < 0.5


def test_a_page_that_cannot_be_read_ends_the_load_and_not_the_process(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    plan = Model(tmp_path).plan()

    def read(plan: LoadPlan) -> Tensors:
        for path in plan.files:
            tensors = load_file(path)
            os.truncate(path, 4096)
            yield from tensors.items()

    with (
        closing(TorchTensors(plan, read, module="safetensors", mapped=True)) as load,
        pytest.raises(DataError, match=r"model-0.* became shorter while it was read"),
    ):
        load.load(lambda _: None)


def test_a_sliced_load_of_a_mapped_file_touches_its_part_alone(big: LoadPlan) -> None:
    part = replace(big.parts[0], rows=(0, 8))
    half = replace(big, parts=(part,), sliced=True)
    assert 0.12 < resident_after(mmap_config.Config(), half) < 1  # the kernel reads ahead
    assert resident_after(mmap_config.Config(), replace(half, sliced=False)) == 1


@pytest.mark.parametrize("config", [runai.Config(), fastsafetensors.Config()])
def test_a_package_bypasses_the_page_cache_as_it_says(
    config: TensorLoadConfig, big: LoadPlan
) -> None:
    pytest.importorskip(config.requires[0].module)
    assert config.tensors_bypass_cache
    assert resident_after(config, big) < 0.01


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("ab", "'b' is new, or there twice"),
        ("aa", "'a' is new, or there twice"),
        ("", "'a' is missing"),
    ],
)
def test_other_tensors_than_planned_are_bad_data(names: str, sentence: str, tmp_path: Path) -> None:
    part = TensorPart(
        name="a",
        file=0,
        offset_bytes=0,
        dtype="U8",
        shape=(),
        row_bytes=1,
        rows=(0, 1),
        columns=(0, 1),
    )
    plan = LoadPlan(files=(tmp_path / "m",), parts=(part,), first_layer=frozenset())

    def read(plan: LoadPlan) -> Tensors:
        yield from ((name, torch.from_numpy(np.zeros(1, np.uint8))) for name in names)

    load = TorchTensors(plan, read, module="safetensors", mapped=False)
    with pytest.raises(DataError, match=sentence):
        load.load(lambda _: None)


@pytest.mark.parametrize("is_own", [False, True])
def test_tensors_that_changed_places_at_equal_size_and_time_are_found(
    tmp_path: Path, is_own: bool
) -> None:
    context = context_at(tmp_path)
    [target] = context.targets
    data = dataset_of(Config(model="tiny"), 7, target, scale="demo")
    data.prepare(context)
    if is_own:
        data = dataset_of(Config(source=str(data.files[0].parent)), 7, target, scale="demo")
    [path], plan = data.files, data.plan_of(0, 1)
    before, content = path.stat(), path.read_bytes()
    for one, other in ((b"k_proj", b"@@@@@@"), (b"v_proj", b"k_proj"), (b"@@@@@@", b"v_proj")):
        content = content.replace(one, other)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with closing(mmap_config.Config().tensor_load(plan)) as load:
        load.load(lambda _: None)
        names = [
            part.name
            for index, part in enumerate(plan.parts)
            if data.compare(part, load.content(index))
        ]
    assert names == [
        part.name for part in plan.parts if "k_proj" in part.name or "v_proj" in part.name
    ]


def test_instanttensor_needs_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("instanttensor")
    with pytest.raises(ConfigError, match=r"workload\.destination=gpu on a host with one"):
        instanttensor.Config().check_tensor_load(Model(tmp_path).plan(), ())


def test_settings_of_other_reads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"loader\.threads and loader\.advice have no meaning"):
        mmap_config.Config(threads=4).check_tensor_load(Model(tmp_path).plan(), ())
