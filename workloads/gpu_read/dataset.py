"""The files that are read: one per target or per thread, with a stamp per 4096 bytes."""

from __future__ import annotations

from wattload.core.io import Stamps
from wattload.core.storage.targets import Target
from wattload.loaders.data.stamped_files import StampedFile, StampedFiles, key_of, nonce_of
from wattload.workloads.gpu_read.config import STAMP_BYTES, Config, Files

WORKLOAD = "gpu_read"


def dataset_of(config: Config, targets: tuple[Target, ...]) -> StampedFiles:
    """Return the files that a configuration reads; file i is on target i modulo their number."""
    count = config.threads if config.files is Files.per_thread else len(targets)
    parameters = {
        "file_bytes": config.file_bytes,
        "file_count": count,
        "target_count": len(targets),
    }
    key = key_of(WORKLOAD, parameters)
    digits = len(str(count - 1))
    files = tuple(
        StampedFile(
            target=targets[index % len(targets)],
            key=key,
            name=f"file_{index:0{digits}d}.bin",
            size_bytes=config.file_bytes,
            stamps=Stamps(nonce_of(key), index, unit_bytes=STAMP_BYTES),
        )
        for index in range(count)
    )
    return StampedFiles(WORKLOAD, parameters, files)
