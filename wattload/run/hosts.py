"""The hosts of a run, each compared with the first one before a byte is written.

What keeps hosts from making one run together is listed for all of them at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from wattload.core.errors import ConfigError, MissingExtraError, WattloadError
from wattload.core.host.facts import software_facts
from wattload.core.workload import Communicator

ALSO = "  also        "
"""How the note on an error begins that is a further reason for a refusal."""
CLOCK_WARNING_S = 1.0
CLOCK_LIMIT_S = 60.0
"""Clocks that nobody sets drift apart by seconds a day."""
_MOST_SETTINGS = 3
_HASH_LENGTH = 12


@contextmanager
def compared_hosts(
    leaders: Communicator | None,
    hosts: Sequence[str],
    config_values: Mapping[str, Any],
    warn: Callable[[Sequence[str]], None],
) -> Iterator[None]:
    """Refuse a host that differs from the first one, together with what the block refuses there.

    Args:
        leaders: the leaders of all hosts, each of which enters the block; ``None`` on other ranks.
        hosts: the names of the hosts, by the rank of their leaders.
        config_values: the composed configuration.
        warn: takes warnings on the root.

    Raises:
        ConfigError: the version of wattload or Python, the I/O engine, the composed configuration
            or the time of day differs; the notes name what else does.
    """
    differences = []
    if leaders is not None and len(hosts) > 1:
        differences = _differences(leaders, hosts, config_values, warn)
    try:
        yield
    except WattloadError as error:
        _add_reasons(error, differences)
        raise
    if differences:
        refusal = ConfigError(differences[0])
        _add_reasons(refusal, differences[1:])
        raise refusal


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
        notes = getattr(error, "__notes__", ())
        also = [note.removeprefix(ALSO) for note in notes if note.startswith(ALSO)]
        for reason in (str(error), *also):
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


def _add_reasons(error: WattloadError, reasons: Sequence[str]) -> None:
    for reason in reasons:
        error.add_note(ALSO + reason)


def _differences(
    leaders: Communicator,
    hosts: Sequence[str],
    config_values: Mapping[str, Any],
    warn: Callable[[Sequence[str]], None],
) -> list[str]:
    """Return in which ways this host differs from the first one."""
    root = hosts[0]
    own = (_software(), dict(config_values))
    leaders.barrier()  # the time is read at the same moment, but for a message
    software, settings, time_s = leaders.broadcast((*own, time.time()))
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
        for name, value in own[0].items()
        if value != software[name]
    ]
    differing = _differing(own[1], settings)
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
    return found


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
