"""``wattload plan``: what a checkpoint too large for this host would take, by arithmetic."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.errors import ConfigError

if TYPE_CHECKING:
    from wattload.cli.plan_record import Rates
    from wattload.workloads.checkpoint.estimate import Drives, Energy, Shape

KEYS = ("model", "ranks", "rate", "record", "power_w", "interval_s", "overhead")
OVERHEAD = 0.05
LEAST, MOST = 1e-6, 1e12
"""What a number may be: wider than any drive or job, and no result runs over."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("what", choices=("checkpoint",), help="what to plan")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="KEY=VALUE",
        help="model=405b [ranks=8]; rate=GB/s and power_w=W of one drive, or record=RUN for both "
        f"from a run; interval_s=S between checkpoints, overhead={OVERHEAD} of it lost at most",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a machine to read")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan and return 0.

    Raises:
        ConfigError: a setting is unknown, missing or out of range.
        RecordError: the record is missing, unfinished, or has no write rate.
    """
    from wattload.cli.plan_record import given_rates, rates_of_record
    from wattload.workloads.checkpoint import estimate

    given = _settings(arguments.settings)
    shape = estimate.shape(_model(given), _count(given, "ranks"))
    power_w = _number(given, "power_w")
    if "record" in given:
        if "rate" in given:
            raise ConfigError("give rate= or record=, not both: power belongs to a rate")
        rates = rates_of_record(Path(given["record"]), power_w)
    else:
        rate = _number(given, "rate")
        rates = given_rates(rate * 1e9 if rate is not None else None, power_w)
    drives = _drives(given, shape.total_bytes, rates)
    seconds = energy = None
    if rates.rate_bytes_per_s is not None:
        seconds = estimate.write_seconds(shape.total_bytes, rates.rate_bytes_per_s)
        energy = estimate.write_energy(seconds, rates.watts) if rates.watts else None
    if arguments.json:
        print(json.dumps(_document(shape, rates, seconds, energy, drives), indent=1))
    else:
        from wattload.cli.plan_text import lines

        print("\n".join(lines(shape, rates, seconds, energy, drives)))
    return 0


def _settings(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise ConfigError(f"settings are KEY=VALUE, e.g. model=405b; got {word!r}")
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{key} is no setting of a plan{meant}; there are {', '.join(KEYS)}")
        if key in found:
            raise ConfigError(f"{key} is given twice, as {found[key]} and {value}")
        found[key] = value
    return found


def _model(given: dict[str, str]) -> str:
    from wattload.workloads.checkpoint.models import NAMES

    if "model" not in given:
        raise ConfigError(f"model has no value; add model= and one of {', '.join(NAMES)}")
    return given["model"]


def _number(given: dict[str, str], key: str) -> float | None:
    """Return a setting from ``LEAST`` to ``MOST``, ``None`` where it is not given."""
    if key not in given:
        return None
    try:
        value = float(given[key])
    except ValueError as error:
        raise ConfigError(f"{key} must be a number, got {given[key]!r}") from error
    if not LEAST <= value <= MOST:
        raise ConfigError(f"{key} must be from {LEAST:g} to {MOST:g}, got {given[key]}")
    return value


def _count(given: dict[str, str], key: str) -> int | None:
    value = _number(given, key)
    if value is not None and not value.is_integer():
        raise ConfigError(f"{key} must be a whole number, got {given[key]}")
    return None if value is None else int(value)


def _drives(given: dict[str, str], total_bytes: int, rates: Rates) -> Drives | None:
    from wattload.workloads.checkpoint.estimate import drives_needed

    interval_s, overhead = _number(given, "interval_s"), _number(given, "overhead")
    if overhead is not None and overhead >= 1:
        raise ConfigError(f"overhead is a share of training time, below 1; got {overhead:g}")
    if interval_s is None:
        if overhead is not None:
            raise ConfigError("overhead is a share of the interval; add interval_s=")
        return None
    if rates.rate_bytes_per_s is None:
        raise ConfigError("the number of drives follows from the rate of one; add rate= or record=")
    return drives_needed(
        total_bytes,
        rates.rate_bytes_per_s,
        interval_s=interval_s,
        overhead=OVERHEAD if overhead is None else overhead,
    )


def _document(
    shape: Shape,
    rates: Rates,
    seconds: float | None,
    energy: Energy | None,
    drives: Drives | None,
) -> dict[str, object]:
    return {
        **asdict(shape),
        **asdict(rates),
        "seconds": seconds,
        "energy": asdict(energy) if energy else None,
        "drives": asdict(drives) if drives else None,
    }
