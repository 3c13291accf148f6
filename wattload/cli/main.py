"""The command line: names and help of all commands here, their code imported when one is called."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from wattload import __version__

COMMANDS = {
    "run": "one run, or a sweep with -m: wattload run workload=unet3d target.path=/mnt/nvme",
    "devices": "targets and controllers: link, power states, what is missing and why",
    "doctor": "what this host can and can't measure, and the command that mends each",
    "power": "watch a device's power, show its power states, set one",
    "sampler": "serve runs of users without privilege: the one process that needs root",
    "report": "one HTML page from run folders: single runs, or A against B",
    "check": "the checks of runs; exit status 3 when one failed",
    "datagen": "generate the data of a workload and nothing else",
    "plan": "size, time, energy and drives of a checkpoint too large to run here",
    "clean": "give back what wattload wrote to a target, by its manifests",
}

NESTED_COMMANDS = frozenset({"power"})

EPILOG = """exit status: 0 good, 1 failed, 2 bad input or configuration, 3 a check failed,
130 interrupted
--debug anywhere shows tracebacks"""


def dispatch(argv: Sequence[str]) -> int:
    """Parse the command line and run its command; returns the exit status."""
    if argv and argv[0] in COMMANDS:
        return _command(argv[0], argv[1:])
    parser = argparse.ArgumentParser(
        prog="wattload",
        description="Which SSD feeds my AI jobs faster, and for how many joules?",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wattload {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
    parser.parse_args(argv)
    raise AssertionError("argparse ends a command line without a command")


def _command(name: str, argv: Sequence[str]) -> int:
    """Run one command; only its module is imported. Options may stand anywhere between words."""
    module = import_module(f"wattload.cli.{name}")
    parser = argparse.ArgumentParser(
        prog=f"wattload {name}",
        description=COMMANDS[name],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    if name in NESTED_COMMANDS:  # argparse can't mix options among the words of nested commands
        return int(module.run(parser.parse_args(argv)))
    return int(module.run(parser.parse_intermixed_args(argv)))
