"""Small safetensors files, plans of their parts, and what every loader of tensors keeps to."""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.tensor_loads import LoadPlan, TensorLoad, TensorLoadConfig, TensorPart

ROWS, COLUMNS, WHOLE = "rows", "columns", "whole"
SIZES = {"BF16": 2, "F32": 4, "F8_E4M3": 1}
Table = tuple[tuple[str, str, tuple[int, ...], str], ...]
TABLES: tuple[Table, ...] = (
    (
        ("model.embed_tokens.weight", "BF16", (258, 96), ROWS),
        ("model.layers.0.input_layernorm.weight", "BF16", (97,), WHOLE),
        ("model.layers.0.mlp.down_proj.weight", "BF16", (100, 1000), COLUMNS),
        ("model.layers.0.mlp.gate_proj.weight", "BF16", (1000, 100), ROWS),
    ),
    (
        ("model.layers.1.mlp.down_proj.weight", "F8_E4M3", (30, 6002), COLUMNS),
        ("model.layers.1.self_attn.q_proj.bias", "F32", (14,), ROWS),
        ("model.layers.1.self_attn.q_proj.weight", "F32", (300, 301), ROWS),
        ("model.layers.1.scale", "F32", (), WHOLE),
        ("model.layers.1.zero", "F32", (0, 4), WHOLE),
    ),
)
"""The tensors of each file by name, type, shape, and how they are divided among ranks.

No offset but the first is a multiple of 512. The last tensor is empty, and in no plan.
"""


class Model:
    """The tables as files in a folder, of random bytes."""

    def __init__(self, folder: Path) -> None:
        self.files = tuple(folder / f"model-{number}.safetensors" for number in range(len(TABLES)))
        random = np.random.default_rng(3)
        self.tensors: list[tuple[int, int, str, str, tuple[int, ...], str, NDArray[np.uint8]]] = []
        for number, table in enumerate(TABLES):
            header, data = {}, b""
            for name, dtype, shape, division in table:
                content = random.integers(0, 256, math.prod(shape) * SIZES[dtype], np.uint8)
                place = [len(data), len(data) + content.size]
                header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
                self.tensors.append((number, place[0], name, dtype, shape, division, content))
                data += content.tobytes()
            text = json.dumps(header).encode()
            self.start = 8 + len(text) + -(8 + len(text)) % 4096
            head = (self.start - 8).to_bytes(8, "little") + text.ljust(self.start - 8)
            self.files[number].write_bytes(head + data)
            with self.files[number].open() as file:
                os.fsync(file)

    def plan(
        self, *, tp: int = 1, rank: int = 0, sliced: bool = False, device: int | None = None
    ) -> LoadPlan:
        parts = []
        for file, offset, name, dtype, shape, division, content in self.tensors:
            if not content.size:
                continue
            row_count = shape[0] if shape else 1
            row_bytes = content.size // row_count
            rows, columns = (0, row_count), (0, row_bytes)
            if division == ROWS:
                rows = (rank * row_count // tp, (rank + 1) * row_count // tp)
            if division == COLUMNS:
                columns = (rank * row_bytes // tp, (rank + 1) * row_bytes // tp)
            parts.append(
                TensorPart(
                    name=name,
                    file=file,
                    offset_bytes=self.start + offset,
                    dtype=dtype,
                    shape=shape,
                    row_bytes=row_bytes,
                    rows=rows,
                    columns=columns,
                )
            )
        first = (i for i, part in enumerate(parts) if "embed" in part.name or ".0." in part.name)
        return LoadPlan(
            files=self.files,
            parts=tuple(parts),
            first_layer=frozenset(first),
            sliced=sliced,
            device=device,
        )

    def expected(self, plan: LoadPlan, index: int) -> NDArray[np.uint8]:
        """Return what a part must be, of shape (rows, columns)."""
        part, content = plan.parts[index], self.tensors[index][-1]
        matrix = content.reshape(-1, part.row_bytes)
        return matrix[slice(*part.rows), slice(*part.columns)]


class TensorLoadContract(ABC):
    """What every loader of tensors does; a subclass gives its configuration."""

    slices = True
    """Whether it loads sliced plans."""
    device: int | None = None

    @abstractmethod
    def config(self) -> TensorLoadConfig: ...

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        return Model(tmp_path)

    def open(self, plan: LoadPlan) -> TensorLoad:
        config = self.config()
        config.check_tensor_load(plan, ())
        assert config.tensor_load_bytes(plan) >= 0
        return config.tensor_load(plan)

    @pytest.mark.parametrize(
        ("tp", "rank", "sliced"),
        [(1, 0, False), (2, 1, False), (2, 0, True), (2, 1, True)],
        ids=["whole", "whole of two", "slices of rank 0", "slices of rank 1"],
    )
    def test_every_byte_arrives_in_every_load(
        self, model: Model, tp: int, rank: int, sliced: bool
    ) -> None:
        if sliced and not self.slices:
            pytest.skip("reads whole tensors only")
        plan = model.plan(tp=tp, rank=rank, sliced=sliced, device=self.device)
        with closing(self.open(plan)) as load:
            for _ in range(2):
                moved: list[int] = []
                evict(plan.files)
                loaded = load.load(moved.append)
                assert loaded.start_ns < loaded.first_layer_ns <= loaded.end_ns
                assert loaded.delivered_bytes == plan.needed_bytes
                assert sum(moved) >= plan.needed_bytes
                for index in range(len(plan.parts)):
                    found = load.content(index)
                    np.testing.assert_array_equal(found, model.expected(plan, index))
                load.release()
                load.release()
            load.close()

    def test_refuses_slices_that_it_cannot_read(self, model: Model) -> None:
        if self.slices:
            pytest.skip("reads slices")
        with pytest.raises(ConfigError, match=r"workload\.access=whole"):
            self.config().check_tensor_load(model.plan(tp=2, sliced=True, device=self.device), ())

    def test_a_file_that_was_cut_off_is_bad_data(self, model: Model) -> None:
        plan = model.plan(device=self.device)
        os.truncate(plan.files[1], plan.files[1].stat().st_size - 1)
        with closing(self.open(plan)) as load, pytest.raises((DataError, OSError)):
            load.load(lambda _: None)

    def test_follows_links_out_of_the_folder(self, model: Model) -> None:
        """As Hugging Face's cache has them: to blobs whose names end in no suffix."""
        plan = model.plan(device=self.device)
        for path in plan.files:
            path.symlink_to(path.rename(path.with_suffix("")))
        with closing(self.open(plan)) as load:
            assert load.load(lambda _: None).delivered_bytes == plan.needed_bytes

    def test_says_by_which_path(self, model: Model) -> None:
        with closing(self.open(model.plan(device=self.device))) as load:
            assert load.path().engine
