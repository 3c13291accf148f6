"""Configuration keys as a command line names them: dotted, to the value that a run had."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.record.run import RunRecord

NEAREST = 5
"""How many valid keys an error names."""


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON
    """Yield every leaf of nested mappings with its dotted key; a list is a leaf."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from flat(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def setting(record: RunRecord, key: str) -> str:
    """Return ``workers=8`` for the key ``workload.workers``; ``not set`` where the run has none."""
    values = dict(flat(record.config))
    value = values.get(key, "not set")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{key.rpartition('.')[2]}={text}"


def require_key(records: Sequence[RunRecord], key: str, named: Sequence[str]) -> None:
    """Refuse a key that no run's configuration has, naming those that are nearest.

    ``named`` are the other words that are allowed in its place.

    Raises:
        ConfigError: no run was configured with this key, or it stands for a group of keys.
    """
    known = sorted({each for record in records for each, _ in flat(record.config)})
    if key not in known:
        raise ConfigError(
            f"--by must be one of {', '.join(named)}, or a configuration key of the runs, "
            f"got {key!r}; {_nearest(key, known)}"
        )


def _nearest(key: str, known: Sequence[str]) -> str:
    """Return the keys under this one, or those spelt most like it, as the end of a sentence."""
    below = [each for each in known if each.startswith(f"{key}.")]
    same_end = [each for each in known if each.rpartition(".")[2] == key]
    near = below or same_end or get_close_matches(key, known, n=NEAREST, cutoff=0.5)
    if not near:
        return f"the runs have {len(known)} keys, none is spelt like it"
    return f"the nearest are {', '.join(near[:NEAREST])}"
