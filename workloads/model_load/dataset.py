"""The files of a model on its target: generated ones, or a user's own."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import ConfigError, DataError, TargetError, WattloadError, remedy
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.core.units import MIB, format_bytes
from wattload.core.workload import Outline, Phase, RunContext
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffer, round_up
from wattload.loaders.data import positioned_bytes, safetensors_files
from wattload.loaders.data.data_folder import DataFolder, existing_on_targets, marker_of
from wattload.loaders.data.safetensors_files import ModelFiles
from wattload.loaders.data.stamped_files import REMEDY, unfinished_bytes
from wattload.loaders.tensor_loads import LoadPlan, TensorPart
from wattload.results.model_load import facts
from wattload.workloads.model_load import models
from wattload.workloads.model_load.config import Config
from wattload.workloads.model_load.models import Model, layer_of

WORKLOAD = "model_load"
GENERATOR = 1
"""Counts the changes of what is generated for equal parameters."""
FILLED_SHARE = 0.8
"""A model that is larger than this share of its file system is cut to the layers that fit."""
BLOCK_BYTES = 8 * MIB
WRITERS = 4
"""Threads that fill blocks and write them."""
WRITING_BYTES = WRITERS * BLOCK_BYTES
"""The buffers with which missing files are written."""


class Dataset:
    """The files of a model and their tensors."""

    def __init__(self, name: str, found: ModelFiles, kv_heads: int | None) -> None:
        self.name, self.kv_heads = name, kv_heads
        self.files, self.tensors, self.links = found.files, found.tensors, found.links

    @property
    def sizes(self) -> Mapping[str, int]:
        """The bytes of each file of the model by name."""
        raise NotImplementedError

    @cached_property
    def model(self) -> facts.Model:
        """The facts of the model."""
        text = "\n".join(map(str, self.tensors))
        return facts.Model(
            name=self.name,
            layers=len({layer_of(tensor.name) for tensor in self.tensors} - {None}),
            tensors=len(self.tensors),
            tensor_bytes=sum(tensor.size_bytes for tensor in self.tensors),
            file_bytes=sum(self.sizes.values()),
            digest=hashlib.sha256(text.encode()).hexdigest(),
        )

    def plan_of(
        self, rank: int, tp: int, *, sliced: bool = False, device: int | None = None
    ) -> LoadPlan:
        """Return what rank ``rank`` of ``tp`` loads.

        Raises:
            ConfigError: ``tp`` does not divide a dimension.
        """
        stored = [tensor for tensor in self.tensors if tensor.size_bytes]
        embeddings = {i for i, tensor in enumerate(stored) if models.is_embedding(tensor.name)}
        layer = {i for i, tensor in enumerate(stored) if layer_of(tensor.name) == 0}
        parts = []
        for tensor in stored:
            rows, columns = models.part_of(tensor, rank, tp, self.kv_heads)
            fields = asdict(tensor) | {"row_bytes": tensor.row_bytes}
            parts.append(TensorPart(**fields, rows=rows, columns=columns))
        return LoadPlan(
            files=self.files,
            parts=tuple(parts),
            first_layer=frozenset(embeddings | layer if embeddings and layer else ()),
            sliced=sliced,
            device=device,
        )

    def missing(self) -> dict[str, int]:
        """Return the files that are still to be written, with their sizes; creates nothing."""
        return {}

    def present_bytes(self) -> int:
        """Return the space that an interrupted call has reserved, which the next one takes over."""
        return 0

    def prepare(self, context: RunContext) -> DataRecord:
        """Write what is missing, by one process alone, and return the facts of the data.

        Raises:
            DataError: the folder is not wattload's, or a file has changed or has holes.
            TargetError: the target is full or not writable.
        """
        raise NotImplementedError

    def compare(self, part: TensorPart, content: NDArray[np.uint8]) -> int:
        """Return how many bytes of a part, shape (rows, columns), are not those of its file.

        Raises:
            DataError: the file has changed.
        """
        raise NotImplementedError

    def compared(
        self, delivered: Iterable[tuple[TensorPart, NDArray[np.uint8]]]
    ) -> dict[str, int | str | None]:
        """Compare parts with their files, and return what is wrong, as facts name it."""
        compared, wrong, first = 0, 0, None
        for part, content in delivered:
            found = self.compare(part, content)
            compared, wrong = compared + content.size, wrong + found
            first = first or (part.name if found else None)
        return {"compared_bytes": compared, "wrong_bytes": wrong, "first_wrong": first}


class GeneratedModel(Dataset):
    """Files with the tensors of a model, of bytes that follow from their place in the file."""

    def __init__(
        self, model: Model, *, dtype: str, shard_bytes: int, seed: int, target: Target
    ) -> None:
        self.parameters = {
            "model": model.name,
            "layers": model.layers,
            "vocabulary": model.vocabulary,
            "dtype": dtype,
            "shard_bytes": shard_bytes,
            "generator": GENERATOR,
        }
        self._seed, self._target = seed, target
        self.key = str(marker_of(WORKLOAD, self.parameters, seed)["key"])
        self._folder = target.data_folder / self.key
        tensors = models.tensors_of(model, dtype)
        shards = list(models.shards_of(tensors, shard_bytes))
        names = [safetensors_files.shard_name(i, len(shards)) for i in range(len(shards))]
        laid = [safetensors_files.laid_out(shard, i) for i, shard in enumerate(shards)]
        self._heads = dict(zip(names, (head for head, _ in laid), strict=True))
        if len(shards) > 1:
            self._heads[safetensors_files.INDEX] = safetensors_files.index_of(shards)
        files = tuple(self._folder / name for name in names)
        stored = tuple(tensor for _, each in laid for tensor in each)
        super().__init__(model.name, ModelFiles(files, stored, links=0), model.kv_heads)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        data = Counter[str]()
        for tensor in self.tensors:
            data[self.files[tensor.file].name] += tensor.size_bytes
        return {name: len(head) + data[name] for name, head in self._heads.items()}

    def missing(self) -> dict[str, int]:
        [folder] = existing_on_targets([self._target], self.key)
        return {
            name: size_bytes
            for name, size_bytes in self.sizes.items()
            if folder is None or not folder.is_valid(name)
        }

    def present_bytes(self) -> int:
        return sum(map(unfinished_bytes, existing_on_targets([self._target], self.key)))

    def prepare(self, context: RunContext) -> DataRecord:
        folder = DataFolder.claim(self._target.path, WORKLOAD, self.parameters, seed=self._seed)
        missing = self.missing()
        kept = [folder.path / name for name in self.sizes.keys() - missing]
        written_extents_check(kept, remedy=REMEDY)
        if missing:
            context.progress.begin("generating", written_bytes=sum(missing.values()))
            with context.phase("generate", timed=False) as phase:
                for name in missing:
                    self._write(folder, name, phase)
            context.progress.end()
        folder.seal()
        folder.close()
        return DataRecord(
            key=self.key,
            folder=str(folder.path),
            file_count=len(self.sizes),
            data_bytes=sum(self.sizes.values()),
            reused=not missing,
            parameters=self.parameters | {"seed": self._seed},
        )

    def compare(self, part: TensorPart, content: NDArray[np.uint8]) -> int:
        start = part.rows[0] * part.row_bytes + part.columns[0]
        return positioned_bytes.wrong_bytes(
            content,
            seed=self._file_seed(self.files[part.file].name),
            offset_bytes=part.offset_bytes + start,
            row_bytes=part.row_bytes,
        )

    def _file_seed(self, name: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self._seed} {name}".encode()).digest()[:8])

    def _write(self, folder: DataFolder, name: str, phase: Phase) -> None:
        """Write one file durably; its space is reserved first, so that a full target shows."""
        head, size_bytes, seed = self._heads[name], self.sizes[name], self._file_seed(name)
        own = threading.local()  # fresh memory for each block would take as long as its bytes

        def allocate() -> None:
            own.buffer = aligned_buffer(BLOCK_BYTES)

        def write_block(descriptor: int, start: int) -> None:
            block_bytes = min(BLOCK_BYTES, size_bytes - start)
            block = own.buffer[: round_up(block_bytes, PAGE_BYTES)]
            positioned_bytes.fill(block, seed=seed, offset_bytes=start)
            header = np.frombuffer(head[start : start + block_bytes], np.uint8)
            block[: len(header)] = header
            done = 0
            while done < len(block):
                done += os.pwrite(descriptor, block.data[done:], start + done)
            phase.count_written(block_bytes)

        temporary = folder.announce(name)
        try:
            with folder.open() as opened:
                direct = os.O_DIRECT if self._target.direct_io else 0
                descriptor = opened.create(temporary, os.O_WRONLY | direct)
            try:
                os.posix_fallocate(descriptor, 0, size_bytes)
                with ThreadPoolExecutor(WRITERS, "generate", allocate) as threads:
                    starts = range(0, size_bytes, BLOCK_BYTES)
                    list(threads.map(partial(write_block, descriptor), starts))
                os.ftruncate(descriptor, size_bytes)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            folder.publish(name, size_bytes, None)
        except WattloadError:
            raise
        except OSError as error:
            folder.discard(temporary)
            raise TargetError(
                f"writing {folder.path / name} failed: {error.strerror or error}; "
                f"{remedy(error.errno)}; finished files are kept, and the next run continues there"
            ) from error


class OwnModel(Dataset):
    """The files of a user's own folder, which are only read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = safetensors_files.read_folder(folder)
        self._states = {path: self._state(path) for path in found.files}
        super().__init__(folder.name, found, _kv_heads(folder))

    @property
    def sizes(self) -> Mapping[str, int]:
        return {path.name: size_bytes for path, (size_bytes, _) in self._states.items()}

    def prepare(self, context: RunContext) -> DataRecord:
        for path in self.files:
            self._require_unchanged(path)
        return DataRecord(
            key=f"source-{self.model.digest[:8]}",
            folder=str(self._folder),
            file_count=len(self.files),
            data_bytes=sum(self.sizes.values()),
            reused=True,
            parameters={"digest": self.model.digest},
        )

    def compare(self, part: TensorPart, content: NDArray[np.uint8]) -> int:
        path, wrong = self.files[part.file], 0
        self._require_unchanged(path)
        step = max(BLOCK_BYTES // part.row_bytes, 1)
        columns = slice(*part.columns)
        with path.open("rb") as file:
            file.seek(part.offset_bytes + part.rows[0] * part.row_bytes)
            for first in range(0, len(content), step):
                some = content[first : first + step]
                rows = np.fromfile(file, np.uint8, len(some) * part.row_bytes)
                if len(rows) < len(some) * part.row_bytes:
                    raise _changed(path)
                wrong += int(np.count_nonzero(rows.reshape(len(some), -1)[:, columns] != some))
        return wrong

    def _state(self, path: Path) -> tuple[int, int]:
        status = path.stat()
        return status.st_size, status.st_mtime_ns

    def _require_unchanged(self, path: Path) -> None:
        if not path.exists() or self._state(path) != self._states[path]:
            raise _changed(path)


def _changed(path: Path) -> DataError:
    return DataError(
        f"{path} has changed since this run began (its size or time); leave the files of "
        "workload.source alone while they are measured, and start again"
    )


def _kv_heads(folder: Path) -> int | None:
    """Return the heads of keys and values by ``config.json``; ``None`` where it does not say."""
    try:
        found = json.loads((folder / "config.json").read_bytes())["num_key_value_heads"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, int) and found > 0 else None


def _model_of(config: Config) -> tuple[Model, str]:
    """Return the model that is generated, and the type of its tensors."""
    model = models.model_named(
        config.model, layers=config.layers, vocabulary_divisor=config.vocabulary_divisor
    )
    return model, config.dtype.value.upper()


def outline(config: Config, *, seed: int) -> Outline:
    """Return the size of a model, as far as it is known without a target."""
    own = config.source
    tensors = OwnModel(Path(own)).tensors if own else models.tensors_of(*_model_of(config))
    size_bytes = sum(tensor.size_bytes for tensor in tensors)
    text = f"{own or config.model}, {len(tensors):,} tensors, {format_bytes(size_bytes)}"
    return Outline(lines=(("model", text),), figures={"tensor_bytes": size_bytes})


def one_target(targets: Sequence[Target]) -> Target:
    """Return the target of a model; raise ``ConfigError`` for several."""
    if len(targets) > 1:
        raise ConfigError(
            f"target.path names {len(targets)} folders, and a model is on one drive; name one"
        )
    return targets[0]


def dataset_of(config: Config, seed: int, target: Target, *, scale: str) -> Dataset:
    """Return the files of a configuration, as they exist or as they will be written.

    A ``full`` model is cut to the layers that fit its file system, unless ``layers`` says how many.

    Raises:
        ConfigError: the settings do not fit the model.
        DataError: a user's own file can't be used.
    """
    if config.source is not None:
        return OwnModel(Path(config.source))
    model, dtype = _model_of(config)
    if scale == "full" and config.layers is None:
        sizes = Counter[int | None]()
        for tensor in models.tensors_of(model, dtype):
            sizes[layer_of(tensor.name)] += tensor.size_bytes
        status = os.statvfs(target.path)
        room_bytes = int(FILLED_SHARE * status.f_blocks * status.f_frsize) - sizes[None]
        model = replace(model, layers=min(max(room_bytes // sizes[0], 1), model.layers))
    return GeneratedModel(
        model, dtype=dtype, shard_bytes=config.shard_bytes, seed=seed, target=target
    )
