"""Configuration files besides wattload's own, and those of Hydra's settings that are refused.

``--config-dir DIR`` is the override ``hydra.searchpath=[file://DIR]``, so that the command line of
a run, its journal and its record have it like any other setting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.home import expanded
from wattload.core.record.run import ConfigFile
from wattload.core.settings import shown
from wattload.run.config import override_of, quote_text

CONFIG_MODULE = "wattload.configs"
CONFIG_NAME = "main"
SEARCH_PATH = "hydra.searchpath"
ENTRY_POINTS = "wattload.workloads"
"""Entry points of installed packages that have workloads: the value is the package."""

_FILE = "file://"
_RUNS = "wattload names the folder of each run itself; use runs=FOLDER for another place"
_OWN_WAYS: Mapping[str, str] = {
    "hydra.launcher": "wattload makes its runs one after another, because two at a time would "
    "share the drive; start processes with --hosts, mpirun or srun",
    "hydra.sweeper": "wattload orders the runs of a sweep itself, so that arms can alternate; use "
    "-m with a,b, range(), choice() or glob(), or sweep=accelerators to search",
    "hydra.run": _RUNS,
    "hydra.sweep": _RUNS,
    "hydra.job.chdir": "a run stays in the current folder, so that relative paths keep their "
    "meaning; use runs=FOLDER for its results",
    "hydra.mode": "it works only in a file of the group experiment; use -m",
    "hydra.verbose": "use --debug for tracebacks",
    "hydra.searchpath": "use --config-dir DIR on the command line",
}
"""What Hydra's settings are for, and how to do that with wattload."""

_IGNORED = ("hydra.runtime", "hydra.overrides", "hydra.job.override_dirname", "hydra.job.id")
_OF_EXPERIMENTS = ("hydra.mode", "hydra.sweeper.params")


def search_override(folder: str) -> str:
    """Return the override with which a run also reads the configuration files in a folder."""
    path = override_of("", f"{_FILE}{expanded(folder).resolve()}").removeprefix("=")
    return f"{SEARCH_PATH}=[{path}]"


def config_folders(overrides: Iterable[str]) -> tuple[Path, ...]:
    """Return the folders that overrides add, the first of which is searched first.

    Raises:
        ConfigError: one is no folder, or has a ``main.yaml`` or a schema, which would replace
            wattload's.
    """
    given = [text for text in overrides if key_of(text) == SEARCH_PATH]
    return tuple(map(_folder, _listed(given[-1]))) if given else ()


def _listed(override: str) -> Sequence[str]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        value = OverridesParser.create().parse_override(quote_text(override)).value()
    except HydraException:
        value = None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(
            f"{SEARCH_PATH} must be a list of folders, got {shown(override.partition('=')[2])}; "
            "use --config-dir DIR"
        )
    return value


def _folder(text: str) -> Path:
    path = text.removeprefix(_FILE)
    if "://" in path:
        raise ConfigError(
            f"{SEARCH_PATH} takes folders, got {shown(text)}: importing a package would run its "
            "code; use --config-dir DIR"
        )
    folder = expanded(path).resolve()
    if not folder.is_dir():
        raise ConfigError(
            f"--config-dir: there is no folder {folder}; name one with files such as "
            "experiment/NAME.yaml or workload/NAME.yaml"
        )
    own = [folder / f"{CONFIG_NAME}.yaml", *folder.glob("schema_*.yaml")]
    for file in (*own, *folder.glob("*/schema_*.yaml")):
        if file.exists():
            raise ConfigError(
                f"{file} would replace wattload's own; rename it, and put settings of a run in "
                "experiment/NAME.yaml"
            )
    return folder


def files_used(names: Iterable[str], folders: Sequence[Path]) -> tuple[ConfigFile, ...]:
    """Return the files of these folders among those that were composed.

    Args:
        names: the composed files, as Hydra names them: ``workload/unet3d``.
        folders: as from ``config_folders``.

    Raises:
        OSError: a file can't be read.
    """
    return tuple(
        ConfigFile(
            path=str(path),
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            replaces=files(CONFIG_MODULE).joinpath(f"{name}.yaml").is_file(),
        )
        for name in dict.fromkeys(names)
        for path in [folder / f"{name}.yaml" for folder in folders if _has(folder, name)][:1]
    )


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.yaml").is_file()


def replaced_text(used: Sequence[ConfigFile]) -> str:
    """Return the sentence on files that replace wattload's of the same name; empty if none does."""
    replacing = [each.path for each in used if each.replaces]
    return f"instead of wattload's own: {', '.join(replacing)}" if replacing else ""


def hydra_refusal(key: str) -> str:
    """Return why a setting of Hydra's can't be set, and what to do instead."""
    dotted = key.replace("/", ".")
    known = [own for own in _OWN_WAYS if dotted == own or dotted.startswith(f"{own}.")]
    way = "wattload only composes its configuration with Hydra; see wattload run --help"
    return f"{key} can't be set: {_OWN_WAYS[known[0]] if known else way}"


def refuse_hydra_settings(overrides: Iterable[str]) -> None:
    """Raise ``ConfigError`` for a setting of Hydra's on the command line."""
    for text in overrides:
        key = key_of(text.lstrip("+~"))
        if key == "hydra" or key.startswith(("hydra.", "hydra/")):
            raise ConfigError(hydra_refusal(key))


def refuse_changed(hydra: Mapping[str, object], plain: Mapping[str, object]) -> None:
    """Raise ``ConfigError`` if files changed a setting of Hydra's that wattload does not heed.

    Args:
        hydra: the composed settings of Hydra's by their keys.
        plain: those without the files.
    """
    for key, value in hydra.items():
        is_heeded = key.startswith((*_IGNORED, *_OF_EXPERIMENTS))
        if not is_heeded and (key not in plain or plain[key] != value):
            raise ConfigError(f"{hydra_refusal(key)}; remove it from the file")


def refuse_foreign_classes(leaves: Iterable[tuple[str, object]]) -> None:
    """Raise ``ConfigError`` for a class outside of wattload: to import it would run its code.

    Installed packages may declare that they have workloads: entry points of ``ENTRY_POINTS``.
    """
    for key, value in leaves:
        if key.rpartition(".")[2] == "_target_" and not _is_trusted(str(value)):
            raise ConfigError(
                f"{key} must be a class of wattload, got {shown(str(value))}: another is not "
                "imported, because that would run its code"
            )


def refuse_resolvers(values: object, prefix: str, used: Sequence[ConfigFile]) -> None:
    """Raise ``ConfigError`` for ``${oc.env:NAME}`` and the like: a record would publish a secret.

    Args:
        values: composed values, references not resolved.
        prefix: the key of all of them; may be empty.
        used: files in which the value is looked for, to name the file.
    """
    for key, text in _texts(values, prefix):
        if _has_resolver(text):
            file = next((f"{u.path}: " for u in used if text in Path(u.path).read_text()), "")
            raise ConfigError(
                f"{file}{key} can't be {shown(text)}: what it reads, such as a password, would be "
                "in the record and on pages; write the value, refer to a setting, as ${seed} does, "
                "or in power.command.run write $NAME"
            )


def _texts(node: object, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, Mapping):
        for name, value in node.items():
            yield from _texts(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, Sequence):
        for index, value in enumerate(node):
            yield from _texts(value, f"{key}[{index}]")


def _has_resolver(text: str) -> bool:
    from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
    from omegaconf.grammar_parser import parse

    def is_in(node: Any) -> bool:  # noqa: ANN401 - a node of ANTLR's
        is_resolver = isinstance(node, OmegaConfGrammarParser.InterpolationResolverContext)
        return is_resolver or any(map(is_in, getattr(node, "children", None) or ()))

    return "${" in text and ":" in text and is_in(parse(text))


def _is_trusted(path: str) -> bool:
    return path.startswith("wattload.") or any(
        path.startswith(f"{each.value}.") for each in entry_points(group=ENTRY_POINTS)
    )


def flat(node: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the settings of composed values by their keys: ``target.path``."""
    if not isinstance(node, Mapping) or not node:
        yield prefix, node
        return
    for key, value in node.items():
        yield from flat(value, f"{prefix}.{key}" if prefix else str(key))


def key_of(override: str) -> str:
    return override.partition("=")[0].strip()
