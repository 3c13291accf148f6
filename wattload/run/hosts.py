"""The hosts of a run, and what keeps them from making it together, listed for all at once.

Each host is compared with the first one before a byte is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from wattload.core.errors import ConfigError, MissingExtraError, WattloadError, host_fault
from wattload.core.host.facts import software_facts
from wattload.core.workload import Communicator

T = TypeVar("T")

ALSO = "  also        "
"""How the note on an error begins that is a further reason for a refusal."""
CLOCK_WARNING_S = 1.0
CLOCK_LIMIT_S = 60.0
"""Clocks that nobody sets drift apart by seconds a day."""
_MOST_SETTINGS = 3
_HASH_LENGTH = 12


class Faults:
    """What keeps this host from taking part in a run, found by several checks."""

    def __init__(self) -> None:
        self._found: list[WattloadError] = []

    def of(self, check: Callable[[], T]) -> T | None:
        """Return what a check returns, or ``None`` if it fails: ``raise_all`` then says why.

        An exception that is neither an error of ours nor a fault of the host is raised at once.
        """
        try:
            return check()
        except Exception as error:
            fault = error if isinstance(error, WattloadError) else host_fault(error)
            if fault is None:
                raise
            self.add(fault)
        return None

    def add(self, fault: WattloadError) -> None:
        self._found.append(fault)

    def raise_all(self) -> None:
        """Raise the first failure, if there is one; its notes name the others."""
        if self._found:
            first, *others = self._found
            reasons = dict.fromkeys(reason for error in others for reason in _reasons(error))
            _add_reasons(first, [reason for reason in reasons if reason not in _reasons(first)])
            raise first


def compare_hosts(
    leaders: Communicator,
    hosts: Sequence[str],
    config_values: Mapping[str, Any],
    warn: Callable[[Sequence[str]], None],
) -> None:
    """Refuse a host that differs from the first one; the leaders of all hosts must call it.

    Args:
        leaders: the leaders of all hosts.
        hosts: the names of the hosts, by the rank of their leaders.
        config_values: the composed configuration.
        warn: takes warnings on the root.

    Raises:
        ConfigError: the version of wattload or Python, the I/O engine, the composed configuration
            or the time of day differs; the notes name what else does.
    """
    root, faults = hosts[0], Faults()
    own = faults.of(_software) or {}
    leaders.barrier()  # the time is read at the same moment, but for a message
    software, settings, time_s = leaders.broadcast((own, dict(config_values), time.time()))
    ahead_s = time.time() - time_s
    others = zip(hosts, leaders.gather(ahead_s), strict=False)  # none but on the root
    warn(
        [
            f"warning: the clock of {host} is {_apart(each_s, root)}"
            for host, each_s in others
            if CLOCK_WARNING_S < abs(each_s) <= CLOCK_LIMIT_S
        ]
    )
    found = [
        f"{name} is {value} here and {software[name]} on {root}; install the same one on all hosts"
        for name, value in own.items()
        if value != software.get(name, value)
    ]
    differing = _differing(config_values, settings)
    if differing:
        named = differing[:_MOST_SETTINGS]
        more = f" and {len(differing) - len(named)} more" if len(differing) > len(named) else ""
        found.append(
            f"the configuration differs from that of {root} ({'; '.join(named)}{more}); use the "
            "same configuration files, variables and current folder on all hosts"
        )
    if abs(ahead_s) > CLOCK_LIMIT_S:
        found.append(
            f"the clock is {_apart(ahead_s, root)}, and {CLOCK_LIMIT_S:g} s are allowed; set it, "
            "for example by chrony"
        )
    for sentence in found:
        faults.add(ConfigError(sentence))
    faults.raise_all()


def error_of_hosts(
    failures: Sequence[tuple[str, WattloadError]], hosts: Sequence[str]
) -> WattloadError:
    """Return the first of some failures, with the reasons of all hosts.

    A reason names its hosts, unless it is that of all.

    Args:
        failures: at least one, each with the host that it is from.
        hosts: the names of all hosts.
    """
    first = failures[0][1]
    if len(hosts) == 1:
        return first
    found: dict[str, list[str]] = {}
    for host, error in failures:
        for reason in _reasons(error):
            if host not in found.setdefault(reason, []):
                found[reason].append(host)
    reasons = [
        reason if len(names) == len(hosts) else f"{', '.join(names)}: {reason}"
        for reason, names in found.items()
    ]
    notes = [note for note in getattr(first, "__notes__", ()) if not note.startswith(ALSO)]
    first.args = (reasons[0], *first.args[1:])
    first.__notes__ = notes
    _add_reasons(first, reasons[1:])
    return first


def _reasons(error: WattloadError) -> list[str]:
    """Return why an error was raised, and why else it would have been."""
    notes = getattr(error, "__notes__", ())
    return [str(error), *(note.removeprefix(ALSO) for note in notes if note.startswith(ALSO))]


def _add_reasons(error: WattloadError, reasons: Sequence[str]) -> None:
    for reason in reasons:
        error.add_note(ALSO + reason)


def _software() -> dict[str, str]:
    facts = software_facts()
    commit = f" of commit {facts.git_commit[:_HASH_LENGTH]}" if facts.git_commit else ""
    changed = ", changed" if facts.git_dirty else ""
    return {
        "wattload": f"{facts.wattload}{commit}{changed}",
        "Python": facts.python,
        "the I/O engine": _engine(),
    }


def _engine() -> str:
    """Return the hash of the sources that the engine was built from, or that it was not built."""
    from wattload.loaders.engine.library import load

    try:
        return str(load().wl_sources().decode())[:_HASH_LENGTH]
    except MissingExtraError:
        return "not built"


def _differing(own: Mapping[str, Any], root: Mapping[str, Any], above: str = "") -> list[str]:
    """Return the settings that differ, with this host's value and the root's."""
    found: list[str] = []
    for name in {**root, **own}:
        here, there = own.get(name), root.get(name)
        if isinstance(here, dict) and isinstance(there, dict):
            found += _differing(here, there, f"{above}{name}.")
        elif here != there:
            found.append(f"{above}{name}={here} here and {there} there")
    return found


def _apart(ahead_s: float, root: str) -> str:
    return f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} that of {root}"
