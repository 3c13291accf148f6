"""The papers' files, read from beside this module: one YAML file per paper, validated whole."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from pydantic import ValidationError

from wattload.core.errors import ConfigError
from wattload.reports.claims.model import Paper


@lru_cache(maxsize=1)
def papers() -> tuple[Paper, ...]:
    """Return the papers in order of their ids.

    Raises:
        ConfigError: a file is not what a paper's must be, or two have one id.
    """
    folder = files(__package__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    found = [read_paper((folder / name).read_text(encoding="utf-8"), name) for name in names]
    by_id: dict[str, Paper] = {}
    for name, paper in zip(names, found, strict=True):
        if paper.id in by_id:
            raise ConfigError(f"{name}: id {paper.id} is another file's too; give it its own")
        by_id[paper.id] = paper
    return tuple(sorted(found, key=lambda paper: int(paper.id[1:])))


def read_paper(text: str, name: str) -> Paper:
    """Return the paper in a file's text; ``name`` is the file's, for messages.

    Raises:
        ConfigError: the text is no YAML, has a key twice or one that is unknown, or a value that
            its model refuses; the message is one sentence and names the key.
    """
    from omegaconf import OmegaConf
    from yaml import YAMLError

    try:
        tree: Any = OmegaConf.to_container(OmegaConf.create(text))
    except (YAMLError, ValueError) as error:
        first = " ".join(str(error).split())
        raise ConfigError(f"{name} can't be read as YAML: {first}") from error
    try:
        return Paper.model_validate_json(json.dumps(tree), strict=True)
    except ValidationError as error:
        raise ConfigError(f"{name}: {_sentence(error)}") from error


def _sentence(error: ValidationError) -> str:
    """Return the first fault: which key, what is wrong with it, what was got."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the whole"
    if first["type"] == "extra_forbidden":
        return f"{key} is no key of this format; see docs/claims.md for those that are"
    message = first["msg"].removeprefix("Value error, ")
    got = first["input"]
    return f"{key}: {message}" + (f", got {got!r}" if isinstance(got, str | int | float) else "")
