"""DALI's pipeline for one epoch: the files of its batches in order, and not one file more.

DALI's numpy reader takes its list of files when it is made, so each epoch has a pipeline of its own
(2 to 6 ms, no I/O). The reader runs ahead of what it is asked for and begins the list again at its
end, which would read a batch or more that nobody wants: the list is therefore padded with a record
of one byte that lies in memory. ``io.file.read`` takes its paths batch by batch and needs none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.loaders.dali import MISSING_DALI, Access, Config, Device
from wattload.loaders.samples import SampleSet

PATHS = "paths"
Node = Any
"""What stands for data while a pipeline is defined, DALI's ``DataNode``: DALI is untyped here."""
Built = Any
"""DALI's own ``Pipeline``."""

_OPTIONS = {
    Access.o_direct: {"dont_use_mmap": True, "use_o_direct": True},
    Access.mmap: {"dont_use_mmap": False},
    Access.plain: {"dont_use_mmap": True},
}


@dataclass(frozen=True, slots=True)
class Output:
    """A batch as it leaves the pipeline: DALI's lists of flat samples.

    ``payloads`` are whole (whole files, where wattload finds the payload in them) and lie where the
    pipeline works. From a GPU there are ``fronts`` beside them, the rows, in the host's memory.
    """

    payloads: Any
    fronts: Any | None = None

    @property
    def is_uint8(self) -> bool:
        """Whether the samples are arrays of bytes, as all records are."""
        return str(self.payloads.dtype).endswith(".UINT8")

    def front(self, row: int) -> NDArray[np.uint8]:
        """Return a view of a sample, cut or filled to the length of a row if it was on a GPU."""
        return np.asarray((self.payloads if self.fronts is None else self.fronts)[row])

    def payload(self, row: int) -> NDArray[np.uint8]:
        """Return a whole sample; from a GPU it is copied."""
        whole = self.payloads[row]
        return np.asarray(whole if self.fronts is None else whole.as_cpu())

    def payload_bytes(self, row: int) -> int:
        """Return the size of a whole sample."""
        return int(self.payloads[row].shape()[0])


@dataclass(frozen=True, slots=True)
class Reading:
    """What the pipelines of a loader have in common.

    ``sources`` has the path of each sample as DALI is to open it, ``access`` how it is to read them
    on the CPU, and ``padding`` is the path of the record that it may read beyond an epoch's end;
    without one that is the smallest sample.
    """

    config: Config
    samples: SampleSet
    access: Access
    sources: tuple[str, ...]
    padding: str | None = None

    @property
    def by_cufile(self) -> bool:
        """Whether the reader reads into the GPU; cuFile knows nothing of files in memory."""
        return self.config.device is Device.gpu and not self.samples.in_memory


class Pipeline:
    """One epoch over batches of samples; ``close`` ends its threads."""

    def __init__(self, reading: Reading, batches: Sequence[Sequence[int]]) -> None:
        config, samples = reading.config, reading.samples
        self._reading = reading
        self._batches = [[reading.sources[index] for index in batch] for batch in batches]
        self._depth = min(config.prefetch_queue_depth * samples.accelerators, len(batches)) or 1
        self._fed_count = 0
        self._takes_paths = samples.record_format != "npy"
        self._pipeline = self._built()

    def next_output(self) -> Output:
        """Return the next batch; DALI makes those behind it meanwhile.

        Raises ``RuntimeError``, DALI's only error, for whatever went wrong in any batch under way,
        and ``UnicodeDecodeError`` in its place where DALI's words are no text.
        """
        if not self._fed_count:
            self._begin(self._depth)
        outputs = self._pipeline.share_outputs()
        fronts = outputs[1].as_cpu() if len(outputs) > 1 else None
        self._pipeline.release_outputs()  # what is held in Python stays valid
        if self._fed_count < len(self._batches):
            self._begin(1)
        return Output(outputs[0], fronts)

    def close(self) -> None:
        """Give the pipeline up; its threads end with the batches that they are reading."""
        self._pipeline = None

    def _begin(self, count: int) -> None:
        """Begin the next batches: the first ``schedule_run`` begins as many as the queue holds."""
        for batch in self._batches[self._fed_count : self._fed_count + count]:
            self._fed_count += 1
            if self._takes_paths:
                paths = [np.frombuffer(os.fsencode(path), dtype=np.uint8) for path in batch]
                self._pipeline.feed_input(PATHS, paths)
        self._pipeline.schedule_run()

    def _built(self) -> Built:
        dali, samples, config = import_dali(), self._reading.samples, self._reading.config
        on_gpu = config.device is Device.gpu
        pipeline = dali.Pipeline(
            batch_size=samples.batch_samples,
            num_threads=config.threads * samples.accelerators,
            device_id=0 if on_gpu else None,
            prefetch_queue_depth=self._depth,
            exec_dynamic=True,  # outputs then live as long as they are held
        )
        with pipeline:
            read = self._file_read if self._takes_paths else self._numpy_reader
            payloads = dali.fn.reshape(read(dali), shape=[-1])
            if on_gpu and not self._reading.by_cufile:
                payloads = payloads.gpu()
            fronts = [_fronts(dali, payloads, samples.resize_bytes)] if on_gpu else []
            pipeline.set_outputs(payloads, *fronts)
        pipeline.build()
        return pipeline

    def _numpy_reader(self, dali: ModuleType) -> Node:
        reading = self._reading
        ahead = reading.config.reader_queue_depth + 2
        files = [path for batch in self._batches for path in batch]
        files += [_padding(reading)] * (ahead * reading.samples.batch_samples)
        options: dict[str, object] = {"device": "gpu"}
        if not reading.by_cufile:
            options = {"device": "cpu", **_OPTIONS[reading.access]}
        return dali.fn.readers.numpy(
            files=files,
            random_shuffle=False,
            shuffle_after_epoch=False,
            prefetch_queue_depth=reading.config.reader_queue_depth,
            **options,
        )

    def _file_read(self, dali: ModuleType) -> Node:
        paths = dali.fn.external_source(name=PATHS, ndim=1, dtype=dali.types.UINT8)
        return dali.fn.io.file.read(paths, **_OPTIONS[self._reading.access])


def _padding(reading: Reading) -> str:
    """Return the path of what the reader may read beyond an epoch's end."""
    if reading.padding is not None:
        return reading.padding
    sizes = reading.samples.file_bytes
    return reading.sources[min(range(len(sizes)), key=sizes.__getitem__)]


def _fronts(dali: ModuleType, payloads: Node, resize_bytes: int) -> Node:
    """Return the first bytes of each sample, with zeros behind a shorter one."""
    return dali.fn.slice(
        payloads, 0, resize_bytes, axes=[0], out_of_bounds_policy="pad", fill_values=0
    )


def import_dali() -> ModuleType:
    """Return the module ``nvidia.dali``; raises ``MissingExtraError`` where it is not installed."""
    try:
        import nvidia.dali.fn
        import nvidia.dali.types
    except ImportError as error:
        raise MissingExtraError(MISSING_DALI) from error
    module: ModuleType = nvidia.dali
    return module


def require_gpu() -> None:
    """Raise ``ConfigError`` where DALI finds no GPU that it can work on."""
    dali = import_dali()
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=0)
    with pipeline:
        pipeline.set_outputs(dali.types.Constant([0], device="gpu"))
    try:
        pipeline.build()
        pipeline.run()
    except RuntimeError as error:
        raise ConfigError(
            "loader.device=gpu needs a GPU with CUDA, and DALI finds none here; use "
            "loader.device=cpu"
        ) from error.with_traceback(None)
