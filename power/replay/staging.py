"""A trace in the run's own folder: what the sampler reads, wherever it runs and as whom.

The sampler takes no path from a client. A trace that the user names is read here, by the run and
with its rights, and lies in the run's folder as plain CSV under one name; so the record keeps what
its joules rest on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.errors import PowerError
from wattload.power.replay.config import START

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

STAGED_NAME = "replay.csv"


def stage(config: PowerConfig, folder: Path) -> PowerConfig:
    """Put the trace into the run's folder, if one is replayed; returns what to ask the sampler for.

    Raises:
        DataError: the file is no trace.
    """
    if config.source != "replay" or config.replay is None:
        return config
    from wattload.power.replay.files import read_trace, write_trace

    trace = read_trace(Path(config.replay.path).resolve(), growing=config.replay.align != START)
    write_trace(trace, folder / STAGED_NAME)
    return replace(config, replay=replace(config.replay, path=STAGED_NAME))


def stage_again(config: PowerConfig, folder: Path) -> None:
    """Bring over what a meter has written since, where its log is attached to the run.

    Raises:
        DataError: the file is no trace any more.
    """
    if config.replay is not None and config.replay.align != START:
        stage(config, folder)


def is_staged(config: PowerConfig) -> bool:
    """Return whether the trace asked for is the one in the run's folder, if one is."""
    return config.replay is not None and config.replay.path == STAGED_NAME


def unstage(config: PowerConfig, folder: Path) -> PowerConfig:
    """Return the configuration with the staged trace's place: the sampler's side of ``stage``.

    Raises:
        PowerError: another file is asked for.
    """
    if config.source != "replay" or config.replay is None:
        return config
    if not is_staged(config):
        raise PowerError(
            f"the sampler replays {STAGED_NAME} in the run's folder and nothing else, "
            f"got {config.replay.path!r}"
        )
    return replace(config, replay=replace(config.replay, path=str(folder / STAGED_NAME)))
