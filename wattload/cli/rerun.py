"""``wattload run --rerun RUN``: the settings of a recorded run."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.host.facts import host_facts, software_facts
from wattload.core.record.file import read_record
from wattload.core.record.host import SoftwareFacts
from wattload.core.record.run import RunRecord
from wattload.run.compose import compose
from wattload.run.config import override_of
from wattload.run.config_folders import SEARCH_PATH, config_folders, flat, key_of
from wattload.run.config_groups import PACKAGES, compose_values, groups, has_setting, options
from wattload.run.launcher import is_first_rank
from wattload.session.axes import makes_arms, read_axes

_OF_SESSIONS = ("repeat", "interleave", "interleave_by", "start_wait_max_s", "runs", "sweep")
"""Settings of a session, not of its runs; and where the results go."""
_PERMISSIONS: Mapping[str, object] = {
    "target.overwrite": [],
    "target.max_write_bytes": None,
    "target.allow_unmounted": False,
    "power.allow_system_drive": False,
}
"""What is permitted for one run only; the values permit nothing."""
_OF_HOSTS = ("name", "cpu_model", "cpu_count", "memory_bytes", "kernel")


def rerun_overrides(run: str, overrides: Sequence[str], *, multirun: bool) -> list[str]:
    """Return the overrides that compose the settings of a recorded run, and those given.

    They are the recorded command's, with the absolute path of its target; values that its command
    no longer composes, for example because a default was changed, are added. If its files don't
    compose any more, the recorded values replace them. Permissions are not repeated, nor is the
    label if arms are swept, as each arm has its own.

    Raises:
        RecordError: there is no valid record.
        ConfigError: the recorded command is no longer valid.
    """
    record = read_record(Path(run))
    given = {key_of(text) for text in overrides}
    has_arms = any(map(makes_arms, read_axes(overrides, multirun=multirun)))
    search = [text for text in overrides if key_of(text) == SEARCH_PATH]
    left_out = {*_PERMISSIONS, *map(key_of, search)}
    command = [*_without(record.command[2:], left_out), *search]
    paths = list(dict.fromkeys(each.facts.path for each in record.targets if each.facts.path))
    if paths:
        path = paths[0] if len(paths) == 1 else paths
        command = [*_without(command, {"target.path"}), f"target.path={_literal(path)}"]
    base, now = _composed(run, record, command)
    changed = dict(_changed(record.config, now))
    _note(record, changed, overrides)
    changed |= {key: none for key, none in _PERMISSIONS.items() if now.get(key, none) != none}
    base = [*base, *(f"{key}={_literal(value)}" for key, value in changed.items())]
    base = _without(base, {*given, *(["label"] if has_arms else [])})
    return [*_fitting(base, overrides), *overrides]


def _composed(
    run: str, record: RunRecord, command: Sequence[str]
) -> tuple[list[str], Mapping[str, object]]:
    """Return overrides of a recorded run, and the values by key that they compose.

    They are those of its command, or choices of wattload's own options in place of its files.
    """
    try:
        now = _by_key(compose(command)[1])
    except ConfigError as error:
        own = _own_options(record)
        if not own:
            raise ConfigError(f"the settings of {run} are no longer valid: {error}") from error
    else:
        has_all = all(key in now for key, _ in flat(record.config))
        own = [] if has_all else _own_options(record)
    if not own:
        return list(command), now
    own += [text for text in command if key_of(text) == "target.path"]
    return own, _by_key(compose_values(own))


def _own_options(record: RunRecord) -> list[str]:
    """Return the options of wattload that have the settings of a run with files of others.

    It is empty if the run had no such files, or a workload or loader of another package.
    """
    config: Mapping[str, Any] = record.config
    chosen = {
        group: config[group]["_target_"].removeprefix(f"{package}.").partition(".")[0]
        for group, package in PACKAGES.items()
    }
    chosen |= {
        "target": config["target"]["kind"],
        "power": config["power"]["source"],
        "load": config["load"]["name"],
        "scale": config["scale"]["name"],
    }
    if config["power"]["profile"] is not None:
        chosen["power/profile"] = "custom"
    had_files = any(key_of(text) == SEARCH_PATH for text in record.command)
    is_own = had_files and all(option in options(group) for group, option in chosen.items())
    return [f"{group}={option}" for group, option in chosen.items()] if is_own else []


def _by_key(composed: Mapping[str, object]) -> Mapping[str, object]:
    """Return composed values as a record has them, by the keys of settings."""
    return dict(flat(json.loads(json.dumps(composed, default=lambda each: each.value))))


def _changed(
    recorded: Mapping[str, object], now: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    """Yield the settings of a run that are now composed with another value."""
    own = ("target.path", "scale.allows_root", *_PERMISSIONS)
    for key, value in flat(recorded):
        is_kept = key.partition(".")[0] in _OF_SESSIONS or key in own
        if not is_kept and key in now and now[key] != value and not key.endswith("_target_"):
            yield key, value


def _fitting(base: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return overrides without the settings that a newly selected option does not have."""
    folders = config_folders([*base, *overrides])
    chosen = {
        key_of(text): text.partition("=")[2] for text in overrides if key_of(text) in groups()
    }
    return [
        text
        for text in base
        for group in [key_of(text).partition(".")[0]]
        if "." not in key_of(text)
        or group not in chosen
        or has_setting(group, chosen[group], key_of(text), folders)
    ]


def _note(record: RunRecord, changed: Mapping[str, object], overrides: Sequence[str]) -> None:
    """Say which run is repeated, and in a line each how the version, the host or files differ.

    And which permissions are not repeated, and which defaults have changed.
    """
    if not is_first_rank():
        return
    settings = " ".join(text for text in overrides if key_of(text) != SEARCH_PATH)
    print(f"repeats {record.run_id}{f', with {settings}' * bool(settings)}", file=sys.stderr)
    given = {key_of(text) for text in overrides}
    there, here = _version(record.software), _version(software_facts())
    if there != here:
        print(f"recorded by wattload {there}, this is {here}", file=sys.stderr)
    if record.hosts:
        then, now = record.hosts[0].facts, host_facts(())
        differing = [
            f"{name} {getattr(now, name)} instead of {getattr(then, name)}"
            for name in _OF_HOSTS
            if getattr(now, name) != getattr(then, name)
        ]
        if differing:
            print(f"another host than the run's: {', '.join(differing)}", file=sys.stderr)
    _note_files(record)
    recorded = dict(flat(record.config))
    permitted = {
        key: recorded[key]
        for key, none in _PERMISSIONS.items()
        if key not in given and recorded.get(key, none) != none
    }
    if permitted:
        values = " ".join(f"{key}={_literal(value)}" for key, value in permitted.items())
        print(f"not repeated, because a permission is for one run: {values}", file=sys.stderr)
    if changed:
        values = ", ".join(f"{key}={_literal(value)}" for key, value in changed.items())
        print(f"set as recorded, because defaults or files have changed: {values}", file=sys.stderr)


def _note_files(record: RunRecord) -> None:
    """Say which files of ``--config-dir`` are no longer those of the run."""
    missing, changed = [], []
    for file in record.config_files:
        try:
            digest = hashlib.sha256(Path(file.path).read_bytes()).hexdigest()
        except OSError:
            missing.append(file.path)
        else:
            changed += [file.path] * (digest != file.sha256)
    if missing:
        print(f"files of the run are missing: {', '.join(missing)}", file=sys.stderr)
    if changed:
        print(f"files have changed since the run: {', '.join(changed)}", file=sys.stderr)


def _version(software: SoftwareFacts) -> str:
    commit = (software.git_commit or "")[:8]
    state = f" ({commit}{', with changes' * bool(software.git_dirty)})" if commit else ""
    return f"{software.wattload}{state}"


def _literal(value: object) -> str:
    """Return a recorded value in the grammar of overrides."""
    if isinstance(value, str):
        return override_of("", value).removeprefix("=")
    if isinstance(value, Mapping):
        inner = ",".join(f"{key}:{_literal(each)}" for key, each in value.items())
        return f"{{{inner}}}"
    if isinstance(value, Sequence):
        return f"[{','.join(map(_literal, value))}]"
    return json.dumps(value)


def _without(texts: Sequence[str], keys: set[str]) -> list[str]:
    return [text for text in texts if key_of(text) not in keys]
