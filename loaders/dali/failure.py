"""From DALI's many-lined errors to one sentence that names the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.loaders.formats import record_format
from wattload.loaders.samples import SampleSet


def failure(
    samples: SampleSet, sources: Sequence[str], indices: Sequence[int], error: Exception | None
) -> DataError:
    """Return what is wrong with the first of these samples that is no record, as loaders say it.

    DALI names some files in its errors, others not, and fails batches before the one that is at
    fault: the files are looked at again, their headers alone. ``sources`` are the paths that were
    read, one per sample. Where all are as they should be the sentence is DALI's.
    """
    for index in dict.fromkeys(indices):
        found = _looked_at(samples, sources, index)
        if found is not None:
            return found
    said = "the array it read is not uint8" if error is None else one_line(error)
    names = f"{samples.paths[indices[0]]} to {samples.paths[indices[-1]]}"
    return DataError(f"DALI could not load the samples from {names}: {said}")


def wrong_size(
    samples: SampleSet, sources: Sequence[str], indices: Sequence[int]
) -> DataError | None:
    """Return what to say of the first of these files that has another size than was planned with.

    Bytes are counted by those sizes; and DALI's reader on the GPU (2.4) takes a file that was cut
    short for a whole one.
    """
    for index in indices:
        found_bytes, size_bytes = Path(sources[index]).stat().st_size, samples.file_bytes[index]
        if found_bytes != size_bytes:
            what = "is truncated" if found_bytes < size_bytes else "was changed"
            return DataError(
                f"{samples.paths[index]} {what}: it has {found_bytes} bytes, {size_bytes} were "
                "expected; remove the data folder to have it made again"
            )
    return None


def one_line(error: Exception) -> str:
    """Return what DALI says was wrong, without its traceback and the place in its source."""
    text = str(error).rpartition("encountered:")[2].partition("C++ context")[0].strip()
    text = re.sub(r"^Assert on .*? failed: ", "", text, flags=re.DOTALL)
    return " ".join(text.split()) or type(error).__name__


def _looked_at(samples: SampleSet, sources: Sequence[str], index: int) -> DataError | None:
    path = samples.paths[index]
    try:
        record_format(samples.record_format).payload(_mapped(sources[index]), str(path))
        return wrong_size(samples, sources, [index])
    except DataError as error:
        return error
    except OSError as error:
        return DataError(f"{path} can't be read: {error.strerror}; generate the data again")


def _mapped(source: str) -> NDArray[np.uint8]:
    """Return the bytes of a file, of which only those that are looked at are read."""
    try:
        return np.memmap(source, dtype=np.uint8, mode="r")
    except ValueError:  # an empty file can't be mapped
        return np.zeros(0, dtype=np.uint8)
