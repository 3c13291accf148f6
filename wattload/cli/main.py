"""The command line: names and help of all commands; a command's code is imported when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from wattload import __version__
from wattload.core.errors import ConfigError

COMMANDS = {
    "run": "one run, or a sweep with -m: wattload run workload=unet3d target.path=/mnt/nvme",
    "devices": "targets and controllers: link, power states, and what is unavailable and why",
    "doctor": "what can be measured here, and how to fix the rest",
    "power": "watch a device's power, show its power states, set one",
    "sampler": "serve the runs of unprivileged users; the only process that needs root",
    "report": "one HTML page from run folders: single runs, or a comparison of A and B",
    "check": "the checks of runs; exit status 3 if one failed, 2 if a record can't be read",
    "import": "read published results of MLPerf Storage, and store them for reports and checks",
    "datagen": "only generate the data of a workload",
    "settings": "all settings: meaning, unit, range and default",
    "plan": "bytes, time and space of a run before it, also of checkpoints too large to run here",
    "clean": "delete wattload's data from a target, by its manifests",
}

NESTED_COMMANDS = frozenset({"power"})
COMPOSING = frozenset({"run", "datagen", "plan"})
"""Commands that take ``overrides``, and files of them from a folder."""

EPILOG = """exit status: 0 good, 1 failed, 2 bad input or configuration, 3 a check failed,
130 interrupted
--debug anywhere shows tracebacks"""


class Parser(argparse.ArgumentParser):
    """Names the choices of an option also where its value is missing."""

    def error(self, message: str) -> NoReturn:
        for action in self._actions:
            option = "/".join(action.option_strings)
            if action.choices and message.startswith(f"argument {option}: expected"):
                *others, last = action.choices
                message = f"{option} needs {', '.join(others)} or {last}"
        super().error(message)


def dispatch(argv: Sequence[str]) -> int:
    if argv and argv[0] in COMMANDS:
        return _command(argv[0], argv[1:])
    if argv and not argv[0].startswith("-"):
        raise _unknown(argv[0])
    parser = argparse.ArgumentParser(
        prog="wattload",
        description="Which SSD feeds my AI jobs faster, and for how many joules?",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wattload {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
    parser.parse_args(argv)
    parser.print_help(sys.stderr)
    return ConfigError.exit_code


def _unknown(word: str) -> Exception:
    """Return the error for a first word that is not a command; settings are those of a run."""
    import difflib

    if "=" in word:
        return ConfigError(f"{word} is a setting, not a command; did you mean wattload run {word}?")
    near = difflib.get_close_matches(word, COMMANDS, n=1)
    meant = f" did you mean {near[0]}?" if near else ""
    return ConfigError(f"unknown command {word};{meant} wattload --help lists the commands")


def _command(name: str, argv: Sequence[str]) -> int:
    """Run one command; only its module is imported. Options may be anywhere between arguments."""
    module = import_module(f"wattload.cli.{name}")
    parser = Parser(
        prog=f"wattload {name}",
        description=COMMANDS[name],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    if name in COMPOSING:
        parser.add_argument(
            "-cd",
            "--config-dir",
            metavar="DIR",
            help="also read configuration files from DIR, such as DIR/experiment/NAME.yaml",
        )
    # argparse can't intermix options with nested commands
    is_nested = name in NESTED_COMMANDS
    arguments = parser.parse_args(argv) if is_nested else parser.parse_intermixed_args(argv)
    if name in COMPOSING and arguments.config_dir is not None:
        from wattload.run.config_folders import search_override

        arguments.overrides.insert(0, search_override(arguments.config_dir))
    from wattload.core.leftovers import remove_leftovers
    from wattload.core.record.file import RUNS_FOLDER

    remove_leftovers(Path(RUNS_FOLDER))
    return int(module.run(arguments))
