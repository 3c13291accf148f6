"""The settings of loader=dali: NVIDIA DALI's own readers, threads and prefetching.

Its shuffling is off. Records in ``.npy`` files are read by ``readers.numpy``, by O_DIRECT, a
mapping or plain reads. DALI has no reader for ``.npz``: there its ``io.file.read`` reads whole
files, and wattload finds the payload in them. ``io.file.read`` can't use O_DIRECT (DALI 2.4 reads
into unaligned buffers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import ClassVar

from wattload.core.errors import ConfigError, TargetError
from wattload.core.io import DataPath, Loader
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement, missing_error, require_installed
from wattload.loaders.data.record_formats import record_format
from wattload.loaders.samples import ReadCounter, SampleSet, make_loader

DALI = Requirement(
    module="nvidia.dali",
    software="NVIDIA DALI",
    extra="dali",
)
NO_READER = (
    "DALI has no reader for {record_format}: it read whole files through the page cache, and "
    "wattload found the payloads in them. workload.record_format=npy uses DALI's numpy reader, by "
    "O_DIRECT."
)
THREAD_LIMIT = 1024
ALIGN_BYTES = 4096
"""The alignment of DALI's O_DIRECT reads, unless DALI_ODIRECT_ALIGNMENT sets another."""


class Access(Enum):
    """How DALI's readers on the CPU read a file."""

    auto = "auto"
    """O_DIRECT for npy, a mapping for npz."""
    o_direct = "o_direct"
    mmap = "mmap"
    """A mapping of the file, through the page cache; DALI's own default."""
    plain = "plain"
    """``read`` through the page cache."""


class Device(Enum):
    """Where the pipeline runs."""

    cpu = "cpu"
    gpu = "gpu"
    """The first visible GPU: ``readers.numpy`` reads npy files into its memory, through cuFile."""


@dataclass(slots=True, kw_only=True)
class Config:
    """The settings of DALI's pipeline; the first two count per accelerator.

    ``threads`` work in the pipeline, and as many again read by O_DIRECT. DALI holds whole payloads,
    not rows: the pipeline prepares ``prefetch_queue_depth`` batches of them ahead, and
    ``readers.numpy`` another ``reader_queue_depth``. On the GPU ``io`` must be ``auto``.
    """

    name: ClassVar[str] = "dali"
    requires: ClassVar[tuple[Requirement, ...]] = (DALI,)

    _target_: str = "wattload.loaders.dali.config.Config"
    threads: int = setting(
        4, "Threads of the pipeline per accelerator.", least=1, most=THREAD_LIMIT
    )
    prefetch_queue_depth: int = setting(
        2, "Batches that the pipeline prepares ahead.", least=1, most=THREAD_LIMIT
    )
    reader_queue_depth: int = setting(
        1, "Batches that readers.numpy reads ahead.", least=1, most=THREAD_LIMIT
    )
    io: Access = setting(
        Access.auto, "How the CPU reads files; auto: o_direct for npy, mmap for npz."
    )
    device: Device = setting(
        Device.cpu, "Where the pipeline runs; gpu reads npy files through cuFile."
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")
        if self.device is Device.gpu and self.io is not Access.auto:
            raise ConfigError(
                f"loader.io={self.io.name} applies to reads by the CPU; with loader.device=gpu "
                "cuFile chooses the access, so loader.io must be auto"
            )

    def access(self, samples: SampleSet) -> Access:
        """Return how the CPU reads files: ``auto`` resolved for these samples."""
        if self.io is not Access.auto:
            return self.io
        return Access.o_direct if samples.record_format == "npy" else Access.mmap

    def check_samples(self, samples: SampleSet, targets: Sequence[Target]) -> None:
        """Raise for missing DALI, an access that it can't use for this format, or a missing GPU."""
        require_installed(self.requires, user="loader=dali")
        self.check_format(samples)
        if self.device is Device.gpu:
            require_gpu()
        elif self.access(samples) is Access.o_direct:
            for target in targets:
                _check_direct(target)

    def check_format(self, samples: SampleSet) -> None:
        """Raise ``ConfigError`` if DALI can't read this format with the requested access."""
        if samples.record_format == "npy":
            return
        for option, needs_reader in (
            ("loader.io=o_direct", self.io is Access.o_direct),
            ("loader.device=gpu", self.device is Device.gpu),
        ):
            if needs_reader:
                raise ConfigError(
                    f"{option} needs DALI's numpy reader, which reads no {samples.record_format}; "
                    "use workload.record_format=npy, or loader.device=cpu and loader.io=mmap"
                )

    def sample_loader(self, samples: SampleSet, on_read: ReadCounter) -> Loader:
        """Return the loader over these samples; DALI has been loaded and tested."""
        return make_loader(self, samples, on_read)

    def sample_memory_bytes(self, samples: SampleSet) -> int:
        """Return a bound on the buffers, mostly of whole payloads.

        The pipeline holds the batches prepared ahead and the one that rows are cut from, the reader
        those of its queue and the one it fills. The defaults give 5, where 4.5 were measured. A
        batch counts as one of the largest files.
        """
        largest = sorted(samples.file_bytes)[-samples.batch_samples :]
        batch_bytes = sum(largest) + (samples.batch_samples - len(largest)) * largest[-1]
        batches = self.prefetch_queue_depth * samples.accelerators + self.reader_queue_depth + 2
        held_bytes = sum(samples.file_bytes) if samples.in_memory else 0
        return batches * batch_bytes + tensor_count(samples) * samples.batch_bytes + held_bytes

    def sample_checks_crc(self, samples: SampleSet) -> bool:
        """Return whether the CRC-32 is computed: where the format has one and it is requested."""
        return samples.check_crc and record_format(samples.record_format).HAS_CRC

    @property
    def sample_decode_timed(self) -> str:
        """The pipeline reads and copies in one step, and reports no times."""
        return (
            "the work on the pipeline's output: the copies into rows, and for an npz the headers "
            "and the CRC if it is checked; for an npy the header and one copy of the whole payload "
            "are in DALI's pipeline, which reports no times"
        )

    @property
    def sample_verified(self) -> str:
        """Payloads in the GPU's memory are copied for verification, so only some of them are."""
        if self.device is Device.gpu:
            return (
                "the payloads of one in 16 samples, drawn by the run and copied from the GPU; DALI "
                "parses the rest of their files"
            )
        return "the payload of each file, in the loader's own thread; DALI parses the rest"

    @property
    def sample_path_is_direct(self) -> bool:
        """Whether O_DIRECT is requested; ``check_samples`` checks what ``auto`` needs."""
        return self.io is Access.o_direct

    def path(self, samples: SampleSet) -> DataPath:
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
    """Return the batch tensors: one being filled, one delivered, one ready per accelerator."""
    return samples.accelerators + 2


def import_dali() -> ModuleType:
    """Return the module ``nvidia.dali``; raises ``MissingExtraError`` if not installed."""
    try:
        import nvidia.dali.fn
        import nvidia.dali.types
    except ImportError as error:
        raise missing_error([DALI], user="loader=dali") from error
    module: ModuleType = nvidia.dali
    return module


def require_gpu() -> None:
    """Raise ``ConfigError`` if DALI finds no GPU that it can use."""
    dali = import_dali()
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=0)
    with pipeline:
        pipeline.set_outputs(dali.types.Constant([0], device="gpu"))
    try:
        pipeline.build()
        pipeline.run()
    except RuntimeError as error:
        raise ConfigError(
            "loader.device=gpu needs a GPU with CUDA, and DALI found none; use loader.device=cpu"
        ) from error.with_traceback(None)


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
            f"O_DIRECT on {target.path} needs multiples of {align_bytes} bytes, and DALI reads at "
            f"multiples of {ALIGN_BYTES}; use loader.io=mmap, or another file system"
        )
