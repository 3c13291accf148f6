"""The ``dali`` loader: NVIDIA DALI's own readers, threads and prefetching; its shuffling is off.

Records in ``.npy`` files are read by ``readers.numpy``, by O_DIRECT, a mapping or plain reads. DALI
has no reader for ``.npz``: there its ``io.file.read`` brings whole files, and wattload finds the
payload in them. ``io.file.read`` can't do O_DIRECT (DALI 2.4 reads into unaligned buffers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec

from wattload.core.errors import ConfigError, MissingExtraError, TargetError
from wattload.core.io import DataPath, Loader
from wattload.core.target import Target
from wattload.loaders.formats import record_format
from wattload.loaders.samples import ReadCounter, SampleSet

MISSING_DALI = (
    "loader=dali needs NVIDIA DALI, which is not installed; "
    "install it with: pip install 'wattload[dali]', or use loader=torch or loader=direct"
)
NO_READER = (
    "DALI has no reader for {record_format} and read whole files, through the page cache; wattload "
    "found the payloads in them. workload.record_format=npy uses DALI's numpy reader, by O_DIRECT."
)
ALIGN_BYTES = 4096
"""The alignment of DALI's O_DIRECT reads, unless DALI_ODIRECT_ALIGNMENT says otherwise."""


class Access(Enum):
    """How DALI's readers on the CPU get at a file."""

    auto = "auto"
    """O_DIRECT for npy, a mapping for npz."""
    o_direct = "o_direct"
    mmap = "mmap"
    """A mapping of the file, through the page cache; DALI's own default."""
    plain = "plain"
    """``read`` through the page cache."""


class Device(Enum):
    """Where the pipeline works."""

    cpu = "cpu"
    gpu = "gpu"
    """The first visible GPU: ``readers.numpy`` reads npy files into its memory, through cuFile."""


@dataclass(slots=True, kw_only=True)
class Config:
    """How DALI's pipeline is made; the first two settings count per accelerator.

    ``threads`` work in the pipeline, and as many again read by O_DIRECT. DALI holds whole payloads,
    not rows: ``prefetch_queue_depth`` batches of them are made ahead by the pipeline, and
    ``reader_queue_depth`` more by ``readers.numpy``. On the GPU ``io`` must be ``auto``.
    """

    _target_: str = "wattload.loaders.dali.Config"
    threads: int = 4
    prefetch_queue_depth: int = 2
    reader_queue_depth: int = 1
    io: Access = Access.auto
    device: Device = Device.cpu

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        for name in ("threads", "prefetch_queue_depth", "reader_queue_depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"loader.{name} must be 1 or more, got {getattr(self, name)}")
        if self.device is Device.gpu and self.io is not Access.auto:
            raise ConfigError(
                f"loader.io is {self.io.name}, which is about reads by the CPU; with "
                "loader.device=gpu cuFile chooses the way, so loader.io must be auto"
            )

    def access(self, samples: SampleSet) -> Access:
        """Return how files are read by the CPU: ``auto`` resolved for these samples."""
        if self.io is not Access.auto:
            return self.io
        return Access.o_direct if samples.record_format == "npy" else Access.mmap

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for missing DALI, a way that it can't read this format, and a missing GPU."""
        require_dali()
        self.check_format(samples)
        if self.device is Device.gpu:
            from wattload.loaders.dali.pipeline import require_gpu

            require_gpu()
        elif self.access(samples) is Access.o_direct:
            for target in targets:
                _check_direct(target)

    def check_format(self, samples: SampleSet) -> None:
        """Raise ``ConfigError`` where DALI can't read this format in the way that was asked for."""
        if samples.record_format == "npy":
            return
        for setting, needs_reader in (
            ("loader.io=o_direct", self.io is Access.o_direct),
            ("loader.device=gpu", self.device is Device.gpu),
        ):
            if needs_reader:
                raise ConfigError(
                    f"{setting} needs DALI's numpy reader, which reads no {samples.record_format}; "
                    "use workload.record_format=npy, or loader.device=cpu and loader.io=mmap"
                )

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return the loader over these samples; DALI has been loaded and tried."""
        from wattload.loaders.dali.loader import DaliLoader

        return DaliLoader(self, samples, on_read)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers, of whole payloads for the most part.

        The pipeline holds the batches made ahead and the one that rows are cut from, the reader
        those of its queue and the one it fills: 5 with the defaults, where 4.5 were seen. A batch
        counts as one of the largest files.
        """
        largest = sorted(samples.file_bytes)[-samples.batch_samples :]
        batch_bytes = sum(largest) + (samples.batch_samples - len(largest)) * largest[-1]
        batches = self.prefetch_queue_depth * samples.accelerators + self.reader_queue_depth + 2
        held_bytes = sum(samples.file_bytes) if samples.in_memory else 0
        return batches * batch_bytes + tensor_count(samples) * samples.batch_bytes + held_bytes

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: where there is one and it was asked for."""
        return samples.check_crc and record_format(samples.record_format).HAS_CRC

    @property
    def sample_bytes_counted(self) -> str:
        """DALI tells nothing of its reads; it reads whole files, ahead of what it hands over."""
        return (
            "when each batch leaves the pipeline, by the size of its files; DALI's threads had "
            "read them earlier, so these times are not those of the I/O"
        )

    @property
    def sample_decode_timed(self) -> str:
        """The pipeline reads and copies in one, and tells no times apart."""
        return (
            "what is done with the output of the pipeline: the copies into rows, and of an npz the "
            "headers and the CRC where it was asked for; of an npy the header and one copy of the "
            "whole payload are in DALI's pipeline, which tells no times"
        )

    @property
    def sample_path_is_direct(self) -> bool:
        """Whether O_DIRECT was asked for; what ``auto`` needs is seen by ``check_samples``."""
        return self.io is Access.o_direct

    def path(self, samples: SampleSet) -> DataPath:
        """Return the way the bytes are asked to take."""
        if samples.in_memory:
            return DataPath(data_path="memory", path_requested="memory")
        if self.device is Device.gpu:
            return DataPath(data_path="DALI readers.numpy on the GPU", path_requested="cufile")
        requested = {Access.o_direct: "o_direct", Access.mmap: "mmap", Access.plain: "page_cache"}
        if samples.record_format == "npy":
            return DataPath(
                data_path="DALI readers.numpy", path_requested=requested[self.access(samples)]
            )
        return DataPath(
            data_path="DALI io.file.read",
            path_requested=requested[self.access(samples)],
            remarks=(NO_READER.format(record_format=samples.record_format),),
        )


def tensor_count(samples: SampleSet) -> int:
    """Return the batch tensors: one being filled, one handed over, one ready per accelerator."""
    return samples.accelerators + 2


def require_dali() -> None:
    """Raise ``MissingExtraError`` where DALI is not installed; it is not imported yet."""
    try:
        found = find_spec("nvidia.dali")
    except ModuleNotFoundError:  # nothing of NVIDIA's is installed
        found = None
    if found is None:
        raise MissingExtraError(MISSING_DALI)


def _check_direct(target: Target) -> None:
    """Raise ``TargetError`` for a target on which DALI's O_DIRECT reads would fail."""
    needs = target.direct_io
    if needs is None:
        raise TargetError(
            f"{target.path} refuses O_DIRECT ({target.direct_io_missing}); use loader.io=mmap, or "
            "another file system"
        )
    align_bytes = max(needs.offset_align_bytes, needs.memory_align_bytes)
    if align_bytes > ALIGN_BYTES:
        raise TargetError(
            f"{target.path} takes O_DIRECT at multiples of {align_bytes} bytes, and DALI reads at "
            f"multiples of {ALIGN_BYTES}; use loader.io=mmap, or another file system"
        )
