"""``wattload run --rerun RUN``: the settings of a recorded run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.core.host.facts import host_facts, software_facts
from wattload.core.record.file import read_record
from wattload.core.record.host import SoftwareFacts
from wattload.core.record.run import RunRecord
from wattload.run.compose import compose
from wattload.run.config import override_of
from wattload.run.config_folders import config_folders, flat
from wattload.run.config_groups import groups, has_setting
from wattload.run.launcher import is_first_rank

_OF_SESSIONS = ("repeat", "interleave", "interleave_by", "start_wait_max_s", "runs", "sweep")
"""Settings of a session, not of its runs; and where the results go."""
_OF_HOSTS = ("name", "cpu_model", "cpu_count", "memory_bytes", "kernel")


def rerun_overrides(run: str, overrides: Sequence[str]) -> list[str]:
    """Return the overrides that compose the settings of a recorded run, and those given.

    They are the recorded command's, with the absolute path of its target; values that its command
    no longer composes, for example because a default was changed, are added.

    Raises:
        RecordError: there is no valid record.
        ConfigError: the recorded command is no longer valid.
    """
    record = read_record(Path(run))
    given = {_key(text) for text in overrides}
    search = [text for text in overrides if _key(text) == "hydra.searchpath"]
    base = [*_without(record.command[2:], set(map(_key, search))), *search]
    paths = list(dict.fromkeys(each.facts.path for each in record.targets if each.facts.path))
    if paths:
        path = paths[0] if len(paths) == 1 else paths
        base = [*_without(base, {"target.path"}), f"target.path={_literal(path)}"]
    try:
        composed = compose(base)[1]
    except ConfigError as error:
        raise ConfigError(f"the settings of {run} are no longer valid: {error}") from error
    changed = dict(_changed(record.config, composed))
    _note(record, changed)
    base = _without([*base, *(f"{key}={_literal(value)}" for key, value in changed.items())], given)
    return [*_fitting(base, overrides), *overrides]


def _changed(
    recorded: Mapping[str, object], composed: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    """Yield the settings of a run that are now composed with another value."""
    now = dict(flat(json.loads(json.dumps(composed, default=lambda each: each.value))))
    for key, value in flat(recorded):
        is_kept = key.partition(".")[0] in _OF_SESSIONS or key in (
            "target.path",
            "scale.allows_root",
        )
        if not is_kept and key in now and now[key] != value and not key.endswith("_target_"):
            yield key, value


def _fitting(base: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return overrides without the settings that a newly selected option does not have."""
    folders = config_folders([*base, *overrides])
    chosen = {_key(text): text.partition("=")[2] for text in overrides if _key(text) in groups()}
    return [
        text
        for text in base
        for group in [_key(text).partition(".")[0]]
        if "." not in _key(text)
        or group not in chosen
        or has_setting(group, chosen[group], _key(text), folders)
    ]


def _note(record: RunRecord, changed: Mapping[str, object]) -> None:
    """Say in a line each how the version, the host or the defaults differ from the run's."""
    if not is_first_rank():
        return
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
    if changed:
        values = ", ".join(f"{key}={_literal(value)}" for key, value in changed.items())
        print(f"set as recorded, because defaults or files have changed: {values}", file=sys.stderr)


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
    return [text for text in texts if _key(text) not in keys]


def _key(override: str) -> str:
    return override.partition("=")[0].strip()
