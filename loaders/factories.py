"""The modules that make a loader's objects, found by the name of its configuration.

``wattload.loaders.<name>`` has ``config`` and, for what it can do, ``loader`` (samples),
``checkpoint`` (shards) or ``harness`` (a whole training). These import ``config``. The other
direction goes by name: a loader's library is imported only when the loader is used, so that every
configuration can be read and checked where the library is not installed.
"""

from __future__ import annotations

from importlib import import_module

from wattload.core.io import Harness, Loader
from wattload.core.workload import LoaderConfig
from wattload.loaders.checkpoint_store import Shard, ShardStore
from wattload.loaders.samples import ReadCounter, SampleSet, Training, TrainingResult


def make_loader(config: LoaderConfig, samples: SampleSet, on_read: ReadCounter) -> Loader:
    """Return what ``make_loader`` of the loader's module ``loader`` makes.

    Raises:
        ConfigError: a setting is out of range, or does not fit these samples.
        MissingExtraError: the library behind the loader is not installed.
    """
    module = import_module(f"wattload.loaders.{config.name}.loader")
    made: Loader = module.make_loader(config, samples, on_read)
    return made


def make_store(config: LoaderConfig, shard: Shard, *, seed: int, diskless: bool) -> ShardStore:
    """Return what ``make_store`` of the loader's module ``checkpoint`` makes.

    Raises:
        MissingExtraError: the library behind the loader is not installed.
    """
    module = import_module(f"wattload.loaders.{config.name}.checkpoint")
    made: ShardStore = module.make_store(config, shard, seed=seed, diskless=diskless)
    return made


def make_harness(config: LoaderConfig, training: Training) -> Harness[TrainingResult]:
    """Return what ``make_harness`` of the loader's module ``harness`` makes."""
    module = import_module(f"wattload.loaders.{config.name}.harness")
    made: Harness[TrainingResult] = module.make_harness(config, training)
    return made
