"""DALI's pipeline for one epoch: the files of its batches in order, and no other file.

DALI's numpy reader takes its list of files when it is made, so each epoch has a pipeline of its own
(2 to 6 ms, no I/O). The reader reads ahead and, at the end of the list, starts again at its
beginning, which would read a batch or more in excess. The list is therefore padded with a record of
one byte in memory. ``io.file.read`` takes its paths batch by batch and needs no padding.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.dali.config import Access, Config, Device, import_dali
from wattload.loaders.samples import SampleSet

PATHS = "paths"
Node = Any
"""A placeholder for data in a pipeline's definition, DALI's ``DataNode``; DALI is untyped here."""
DaliPipeline = Any
"""DALI's own ``Pipeline``."""

_OPTIONS = {
    Access.o_direct: {"dont_use_mmap": True, "use_o_direct": True},
    Access.mmap: {"dont_use_mmap": False},
    Access.plain: {"dont_use_mmap": True},
}


@dataclass(frozen=True, slots=True)
class Output:
    """A batch from the pipeline: DALI's lists of flat samples.

    ``payloads`` are whole (whole files, where wattload finds the payload in them) and are on the
    device of the pipeline. From a GPU there are also ``fronts``, the rows, in host memory.
    """

    payloads: Any
    fronts: Any | None = None

    @property
    def is_uint8(self) -> bool:
        """Whether the samples are arrays of bytes, as all records are."""
        return str(self.payloads.dtype).endswith(".UINT8")

    def front(self, row: int) -> NDArray[np.uint8]:
        """Return a view of a sample; from a GPU it is cut or padded to the length of a row."""
        return np.asarray((self.payloads if self.fronts is None else self.fronts)[row])

    def payload(self, row: int) -> NDArray[np.uint8]:
        """Return a whole sample; from a GPU it is copied."""
        whole = self.payloads[row]
        return np.asarray(whole if self.fronts is None else whole.as_cpu())

    def payload_bytes(self, row: int) -> int:
        return int(self.payloads[row].shape()[0])


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """What the pipelines of a loader have in common.

    ``sources`` has the path of each sample as DALI opens it, ``access`` how the CPU reads them.
    ``padding`` is the path of the record that DALI may read beyond the end of an epoch; ``None``
    uses the smallest sample.
    """

    config: Config
    samples: SampleSet
    access: Access
    sources: tuple[str, ...]
    padding: str | None = None

    @property
    def by_cufile(self) -> bool:
        """Whether the reader reads into the GPU; cuFile does not support files in memory."""
        return self.config.device is Device.gpu and not self.samples.in_memory


class Pipeline:
    """One epoch over batches of samples; ``close`` ends its threads."""

    def __init__(self, settings: PipelineSettings, batches: Sequence[Sequence[int]]) -> None:
        config, samples = settings.config, settings.samples
        self._settings = settings
        self._batches = [[settings.sources[index] for index in batch] for batch in batches]
        self._depth = min(config.prefetch_queue_depth * samples.accelerators, len(batches)) or 1
        self._queued_count = 0
        self._reads_paths = samples.record_format != "npy"
        self._pipeline = self._build()

    def next_output(self) -> Output:
        """Return the next batch; DALI prepares later ones meanwhile.

        Raises:
            RuntimeError: DALI's only error, for any failure in any batch in preparation.
            UnicodeDecodeError: the same, if DALI's message is not text.
        """
        if not self._queued_count:
            self._begin(self._depth)
        outputs = self._pipeline.share_outputs()
        fronts = outputs[1].as_cpu() if len(outputs) > 1 else None
        self._pipeline.release_outputs()  # outputs referenced in Python stay valid
        if self._queued_count < len(self._batches):
            self._begin(1)
        return Output(outputs[0], fronts)

    def close(self) -> None:
        """Release the pipeline; its threads end with the batches that they are reading."""
        self._pipeline = None

    def _begin(self, count: int) -> None:
        """Begin the next batches; the first ``schedule_run`` begins as many as the queue holds."""
        for batch in self._batches[self._queued_count : self._queued_count + count]:
            self._queued_count += 1
            if self._reads_paths:
                paths = [np.frombuffer(os.fsencode(path), dtype=np.uint8) for path in batch]
                self._pipeline.feed_input(PATHS, paths)
        self._pipeline.schedule_run()

    def _build(self) -> DaliPipeline:
        dali, samples, config = import_dali(), self._settings.samples, self._settings.config
        on_gpu = config.device is Device.gpu
        pipeline = dali.Pipeline(
            batch_size=samples.batch_samples,
            num_threads=config.threads * samples.accelerators,
            device_id=0 if on_gpu else None,
            prefetch_queue_depth=self._depth,
            exec_dynamic=True,  # outputs then live as long as they are referenced
        )
        with pipeline:
            read = self._file_read if self._reads_paths else self._numpy_reader
            payloads = dali.fn.reshape(read(dali), shape=[-1])
            if on_gpu and not self._settings.by_cufile:
                payloads = payloads.gpu()
            fronts = [_fronts(dali, payloads, samples.resize_bytes)] if on_gpu else []
            pipeline.set_outputs(payloads, *fronts)
        pipeline.build()
        return pipeline

    def _numpy_reader(self, dali: ModuleType) -> Node:
        settings = self._settings
        ahead = settings.config.reader_queue_depth + 2
        files = [path for batch in self._batches for path in batch]
        files += [_padding(settings)] * (ahead * settings.samples.batch_samples)
        options: dict[str, object] = {"device": "gpu"}
        if not settings.by_cufile:
            options = {"device": "cpu", **_OPTIONS[settings.access]}
        return dali.fn.readers.numpy(
            files=files,
            random_shuffle=False,
            shuffle_after_epoch=False,
            prefetch_queue_depth=settings.config.reader_queue_depth,
            **options,
        )

    def _file_read(self, dali: ModuleType) -> Node:
        paths = dali.fn.external_source(name=PATHS, ndim=1, dtype=dali.types.UINT8)
        return dali.fn.io.file.read(paths, **_OPTIONS[self._settings.access])


def _padding(settings: PipelineSettings) -> str:
    """Return the path of the file to read beyond the end of an epoch."""
    if settings.padding is not None:
        return settings.padding
    sizes = settings.samples.file_bytes
    return settings.sources[min(range(len(sizes)), key=sizes.__getitem__)]


def _fronts(dali: ModuleType, payloads: Node, resize_bytes: int) -> Node:
    """Return the first bytes of each sample, padded with zeros."""
    return dali.fn.slice(
        payloads, 0, resize_bytes, axes=[0], out_of_bounds_policy="pad", fill_values=0
    )
