"""The settings of training on images, and the sizes of the records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.mlperf.edition import published_job
from wattload.core.mlperf.rules import DataSetRule
from wattload.core.settings import check_settings, setting
from wattload.core.units import GIB
from wattload.loaders.data.record_formats import FORMATS

DLIO_SEED = 10
"""The seed with which DLIO's generators draw the dimensions."""

MINIMUM_COUNT = 8
"""With fewer files, a mean and a standard deviation do not describe a distribution."""

PAIRS = 512
"""How many pairs of sides are tried for a record, starting from a square."""
MAX_EPOCHS = 10_000
"""The times of each step of each epoch are kept in memory."""

Shape = tuple[int, int, int]

FULL_SCALE = "full"
"""The scale that follows the published rules."""

LEAST_STEPS = 4
"""The fewest steps of an epoch in a search; the utilisation excludes the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Payload bytes of a record: mean and standard deviation of the files, and the minimum."""

    mean_bytes: float
    stdev_bytes: float
    minimum_bytes: int

    def check(self) -> None:
        """Raise ``ConfigError`` if no such records can exist."""
        if not 1 <= self.minimum_bytes <= self.mean_bytes or self.stdev_bytes < 0:
            raise ConfigError(
                f"records need 1 <= minimum <= mean and stdev >= 0 bytes, got minimum "
                f"{self.minimum_bytes}, mean {self.mean_bytes}, stdev {self.stdev_bytes}"
            )


def matched_shapes(distribution: Distribution, count: int, seed: int) -> tuple[Shape, ...]:
    """Return the shapes of ``count`` records with the requested mean and standard deviation.

    The sizes are the quantiles ``(i + 0.5) / count`` of a normal distribution truncated at the
    minimum. Its two parameters are fitted so that the sizes themselves have the requested moments
    (standard deviation with divisor ``count``). A random sample would miss both by several percent,
    and truncation would shift them. Every seed gives the same sizes in a different order, so runs
    with different seeds move the same number of bytes.

    Raises:
        ConfigError: there are fewer than 8 records, or the standard deviation is too large for the
            distance between mean and minimum.
    """
    distribution.check()
    if count < MINIMUM_COUNT:
        raise ConfigError(
            f"workload.file_count must be {MINIMUM_COUNT} or more to match a mean and a standard "
            f"deviation, got {count}; workload.sizes=dlio accepts any count"
        )
    sizes = _matched_sizes(distribution, count)
    np.random.default_rng(seed).shuffle(sizes)
    return tuple(_shape(size, distribution.minimum_bytes) for size in sizes.tolist())


def dlio_shapes(distribution: Distribution, count: int) -> tuple[Shape, ...]:
    """Return the shapes of ``count`` records as DLIO draws them; the minimum has no effect.

    Both dimensions are drawn from N(isqrt(mean), stdev / 2 / sqrt(mean)) after
    ``np.random.seed(10)``. The resulting standard deviation is 1/sqrt(2) of the configured one
    (48.9 MB instead of 68.3 MB).

    Source: DLIO ``data_generator.py`` (``get_dimension``), ``utils/config.py``.
    """
    distribution.check()
    scale = distribution.stdev_bytes / 2.0 / math.sqrt(distribution.mean_bytes)
    dimension = math.isqrt(int(distribution.mean_bytes))
    drawn = np.random.RandomState(DLIO_SEED).normal(dimension, scale, 2 * count)
    sides = np.maximum(drawn.astype(np.int64), 1).reshape(count, 2)
    return tuple((first, second, 1) for first, second in sides.tolist())


def payload_bytes(shape: Shape) -> int:
    """Return the size in bytes of a uint8 record of this shape."""
    return math.prod(shape)


def _matched_sizes(distribution: Distribution, count: int) -> NDArray[np.float64]:
    """Return sizes in bytes, shape ``(count,)``, ascending, with exactly the requested moments.

    Let the distribution be truncated ``a`` standard deviations from its centre, and let
    ``t_i(a) >= 0`` be the distances of the quantiles from that point. Sizes ``minimum + scale *
    t_i`` have the right mean for one ``scale``. They also have the right standard deviation if
    mean(t) / stdev(t) equals (mean - minimum) / stdev. That ratio is continuous in ``a`` and grows
    without bound towards -infinity, where nothing is truncated. Bisection therefore finds ``a`` if
    the ratio is smaller at the other end, an exponential tail.
    """
    above_bytes = distribution.mean_bytes - distribution.minimum_bytes
    if distribution.stdev_bytes == 0:
        return np.full(count, distribution.mean_bytes)
    wanted = above_bytes / distribution.stdev_bytes
    low, high = -4.0 - 2.0 * wanted, 30.0
    if _ratio(high, count) > wanted:
        raise ConfigError(
            f"record_stdev_bytes {distribution.stdev_bytes:.0f} is too large for records of mean "
            f"{distribution.mean_bytes:.0f} and at least {distribution.minimum_bytes} bytes; "
            f"at most {above_bytes / _ratio(high, count):.0f} is possible"
        )
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _ratio(middle, count) > wanted else (low, middle)
    distances = _distances(low, count)
    return distribution.minimum_bytes + distances * (above_bytes / float(distances.mean()))


def _ratio(cut: float, count: int) -> float:
    distances = _distances(cut, count)
    return float(distances.mean() / distances.std())


def _distances(cut: float, count: int) -> NDArray[np.float64]:
    """Return the quantiles of a standard normal above ``cut`` as distances from it, ascending."""
    from scipy.special import ndtr, ndtri

    # Computed in the upper tail, where small probabilities keep their precision.
    above = (np.arange(count, 0, -1) - 0.5) / count * ndtr(-cut)
    return np.asarray(-ndtri(above) - cut)


@lru_cache(maxsize=1)  # records without a spread have all the same
def _shape(size: float, minimum_bytes: int) -> Shape:
    """Return two nearly equal sides, like DLIO's, and one sample, with a product close to ``size``.

    The product is never below the minimum. The closest of about 500 pairs of sides is used, so even
    a record of 100 kB is off by only about a byte.
    """
    root = math.isqrt(int(size))
    first = np.arange(root, max(root - PAIRS, root // 2), -1)
    second = np.rint(size / first).astype(np.int64)
    second += first * second < minimum_bytes
    nearest = int(np.argmin(np.abs(first * second - size)))
    return (int(first[nearest]), int(second[nearest]), 1)


class Sizes(Enum):
    """How record sizes are chosen."""

    matched = "matched"
    """The files have the configured mean and standard deviation."""
    dlio = "dlio"
    """As DLIO draws them: a standard deviation of 48.9 MB where 68.3 MB is configured."""


@dataclass(slots=True, kw_only=True)
class Scale:
    """The counts of one scale; a ``file_count`` of ``None`` follows MLPerf's rule.

    ``record_divisor`` divides mean, standard deviation and resize length of the records. Only
    ``demo`` allows more than 1.
    """

    file_count: int | None = None
    epochs: int = 5
    record_divisor: int = 1


@dataclass(slots=True, kw_only=True)
class Config:
    """A model of MLPerf Storage: whole records, one per file, in batches of their first bytes.

    Sizes are payload bytes (DLIO's ``record_length_bytes``); each file also has a header.
    """

    model: ClassVar[str] = "unet3d"
    """The name of the workload, and of its published job in ``core.mlperf.edition``."""

    _target_: str = "wattload.workloads.training.workload.Unet3d"
    record_format: str = setting("npz", "File format of the records.", choices=sorted(FORMATS))
    sizes: Sizes = setting(
        Sizes.matched,
        "How record sizes are chosen: with exactly the configured mean and standard deviation, or "
        "as DLIO draws them.",
    )
    record_mean_bytes: int = setting(146_600_628, "Mean payload of a record.", least=1)
    record_stdev_bytes: int = setting(68_341_808, "Standard deviation of the payloads.", least=0)
    resize_bytes: int | None = setting(
        2_097_152,
        "First bytes of each record that reach the accelerator; no record is smaller.",
        least=1,
        unset="as many as the mean record has; records may be smaller",
    )
    batch_samples: int = setting(7, "Samples in a batch.", least=1)
    check_crc: bool = setting(False, "Check the CRC-32 of every npz file while reading.")
    data_seed: int = setting(
        10, "Seed of the data; runs that differ only in seed= read the same data.", least=0
    )
    verify_data: bool = setting(False, "Hash reused files before the run.")
    source: str | None = setting(
        None,
        "Folder of a data set on the target's file system, such as one of DLIO's. It is read and "
        "never changed; settings of record sizes have no effect.",
        unset="records are generated",
    )
    file_count: int | None = setting(
        None,
        "Files, one record each.",
        least=1,
        unset="as many as MLPerf's rule needs; with workload.source, all",
    )
    least_file_count: int = setting(
        1, "Fewest files where file_count is null: those of the published data set.", least=1
    )
    epochs: int = setting(5, "Times that all files are read.", least=1, most=MAX_EPOCHS)
    steps_per_epoch: int | None = setting(
        None,
        "Most steps of an epoch; with more files, each epoch reads a different part of them.",
        least=1,
        unset="no limit",
    )
    record_divisor: int = setting(
        1, "Divides mean, standard deviation and resize_bytes; above 1 at scale=demo only.", least=1
    )
    scales: dict[str, Scale] = field(default_factory=dict)
    by_accelerator: dict[str, int] = field(default_factory=dict)
    """The published batch by accelerator, for a model whose batch depends on it."""

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range or not allowed at this scale."""
        check_settings(self, "workload")
        if self.source is not None and self.verify_data:
            raise ConfigError(
                "workload.verify_data=true compares files with what wattload wrote, which those of "
                "workload.source are not; leave out one of the two"
            )
        if self.record_divisor > 1 and scale != "demo":
            raise ConfigError(
                f"workload.record_divisor must be 1 at scale={scale}, got {self.record_divisor}; "
                "only scale=demo may shrink records"
            )
        if self.source is None:
            self.distribution().check()

    def search_settings(
        self, *, scale: str, accelerators: Sequence[int], memory_bytes: int, given: bool
    ) -> Mapping[int, Mapping[str, int]]:
        """Return the settings of each run of a search by its number of accelerators.

        ``given`` is whether the user set ``file_count``; otherwise it comes from the scale. See
        ``search_settings``.
        """
        return search_settings(
            self,
            scale=scale,
            accelerators=accelerators,
            memory_bytes=memory_bytes,
            file_count=self.file_count if given else None,
        )

    def distribution(self) -> Distribution:
        """Return the configured record sizes; a record is at least as long as ``resize_bytes``."""
        return Distribution(
            mean_bytes=self.record_mean_bytes / self.record_divisor,
            stdev_bytes=self.record_stdev_bytes / self.record_divisor,
            minimum_bytes=1 if self.resize_bytes is None else self.row_bytes,
        )

    @property
    def row_bytes(self) -> int:
        """How many bytes of each record reach the accelerator."""
        divisor = self.record_divisor if self.source is None else 1
        return max((self.resize_bytes or self.record_mean_bytes) // divisor, 1)

    @property
    def au_threshold(self) -> float:
        """The utilisation that an accelerator has to reach to count."""
        return published_job(self.model).au


def data_set_rule(config: Config, accelerators: int, memory_bytes: int) -> DataSetRule:
    """Return MLPerf's rule for this job, for full-size records even if these are shrunk.

    The memory is rounded up to whole GiB, so that a kernel update, which changes MemTotal by some
    pages, does not require new data.
    """
    return DataSetRule(
        accelerators=accelerators,
        batch_samples=config.batch_samples,
        record_bytes=config.record_mean_bytes,
        memory_bytes=-(-memory_bytes // GIB) * GIB,
    )


def search_settings(
    config: Config,
    *,
    scale: str,
    accelerators: Sequence[int],
    memory_bytes: int,
    file_count: int | None,
) -> Mapping[int, Mapping[str, int]]:
    """Return the settings of the run with each number of accelerators (ascending, not empty).

    All runs read one data set with the same number of steps an epoch, so they differ only in the
    number of accelerators. At ``full`` each run has as many steps as MLPerf's rule requires for its
    accelerators. ``file_count`` is the size of the data set, ``None`` for as many files as the
    largest number of accelerators needs. ``memory_bytes`` is the memory of all hosts.

    Raises:
        ConfigError: ``file_count`` is too small for the largest number of accelerators.
    """
    common_steps = _steps_of_search(config, file_count, accelerators[-1])
    steps = {
        count: data_set_rule(config, count, memory_bytes).steps
        if scale == FULL_SCALE and config.steps_per_epoch is None
        else common_steps
        for count in accelerators
    }
    needed = max(steps[count] * count * config.batch_samples for count in accelerators)
    if file_count is not None and file_count < needed:
        fits = file_count // (config.batch_samples * max(steps.values()))
        raise ConfigError(
            f"workload.file_count is {file_count}; {accelerators[-1]} accelerators with "
            f"{steps[accelerators[-1]]} steps an epoch and batches of {config.batch_samples} need "
            f"{needed} files; use {needed} or more, or leave it out"
            + (f", or set sweep.maximum={fits}" if fits else "")
        )
    return {
        count: {"file_count": file_count or needed, "steps_per_epoch": steps[count]}
        for count in accelerators
    }


def _steps_of_search(config: Config, file_count: int | None, most: int) -> int:
    """Return the steps of an epoch for any number of accelerators, except at ``full``."""
    if config.steps_per_epoch is not None:
        return config.steps_per_epoch
    if file_count is not None:
        return max(file_count // (config.batch_samples * most), LEAST_STEPS)
    return max((config.file_count or 0) // config.batch_samples, LEAST_STEPS)
