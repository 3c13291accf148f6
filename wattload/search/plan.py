"""What a search will run, known before its first run: the counts, and the overrides of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattload.compose import compose
from wattload.config import RunConfig
from wattload.core.errors import ConfigError
from wattload.core.workload import Communicator
from wattload.search.result import Question

_SET_BY_SEARCH = ("label", "seed", "accelerator.count")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """A search: its question, and what each of its runs is given beside the user's overrides."""

    question: Question
    given: tuple[str, ...]
    """The user's overrides without those that the search sets itself."""
    label: str
    seed: int
    settings: Mapping[int, Mapping[str, int]]

    def point(self, accelerators: int, repetition: int) -> tuple[str, ...]:
        """Return the overrides of a run: its label bears the count, each repetition has a seed."""
        workload = self.settings[accelerators]
        return (
            *self.given,
            *(f"workload.{name}={value}" for name, value in workload.items()),
            f"accelerator.count={accelerators}",
            f"label={self.label}-n{accelerators}",
            f"seed={self.seed + repetition}",
        )

    def widest(self) -> tuple[str, ...]:
        """Return the overrides of the run with the most accelerators; its data fits all others."""
        return self.point(max(self.settings), 0)


def plan_search(overrides: Sequence[str], world: Communicator) -> SearchPlan:
    """Return the search that the overrides ask for; every rank must call it.

    Raises:
        ConfigError: the workload emulates no accelerators, none of the counts can be run by these
            ranks, the data set does not fit, or a setting is the search's own.
    """
    config, _ = compose(overrides)
    keys = [_key(text) for text in overrides]
    _refuse_own(config, keys)
    unit = world.world_size
    question = _question(config, unit)
    counts = range(unit, question.maximum + 1, unit)
    settings = config.workload.search_settings(
        scale=config.scale.name,
        accelerators=counts,
        communicator=world,
        given="workload.file_count" in keys,
    )
    own = {*_SET_BY_SEARCH, *(f"workload.{name}" for of in settings.values() for name in of)}
    plan = SearchPlan(
        question=question,
        given=tuple(
            text
            for text, key in zip(overrides, keys, strict=True)
            if key not in own and key.partition(".")[0] != "sweep"
        ),
        label=config.label,
        seed=config.seed,
        settings=settings,
    )
    compose(plan.widest())  # what no run could be composed of is refused before the first
    return plan


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _refuse_own(config: RunConfig, keys: Sequence[str]) -> None:
    if not hasattr(config.workload, "search_settings"):
        raise ConfigError(
            f"sweep={config.sweep.name} searches accelerators and {config.workload._target_} "
            "emulates none; use workload=unet3d, or sweep=none"
        )
    if "accelerator.count" in keys:
        raise ConfigError(
            f"accelerator.count={config.accelerator.count} and sweep={config.sweep.name} exclude "
            "each other: the search sets it; sweep.start and sweep.maximum bound it"
        )
    if config.repeat > 1:
        raise ConfigError(
            f"repeat={config.repeat} and sweep={config.sweep.name} exclude each other; "
            f"sweep.confirmations={config.repeat - 1} runs the result so often"
        )


def _question(config: RunConfig, unit: int) -> Question:
    sweep, name = config.sweep, _name(config.workload)
    if not config.accelerator.step_s.get(name):
        raise ConfigError(
            f"accelerator={config.accelerator.name} has no step time for {name}, so that nothing "
            "is utilised; use accelerator=a100, h100 or b200"
        )
    start = unit if sweep.start == 1 else sweep.start
    if start % unit or sweep.maximum < start:
        raise ConfigError(
            f"{unit} ranks emulate a multiple of {unit} accelerators; sweep.start must be 1 (one "
            f"per rank) or such a multiple and sweep.maximum at least that, got {sweep.start} and "
            f"{sweep.maximum}"
        )
    threshold = sweep.au_threshold
    return Question(
        workload=name,
        loader=type(config.loader).__module__.rpartition(".")[2],
        scale=config.scale.name,
        accelerator=config.accelerator.name,
        threshold=config.workload.au_threshold if threshold is None else threshold,
        start=start,
        maximum=sweep.maximum - sweep.maximum % unit,
        unit=unit,
        confirmations=sweep.confirmations,
    )


def _name(workload: Any) -> str:  # noqa: ANN401 - the Config of whichever workload was chosen
    """Return a workload's name: the module that its class is named with."""
    return str(workload._target_).rpartition(".")[0].rpartition(".")[2]
