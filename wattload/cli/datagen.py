"""``wattload datagen``: generate the data of a workload and nothing else."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments; overrides are Hydra's."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="Hydra overrides, e.g. workload=unet3d target.path=/mnt/nvme scale=full",
    )


def run(arguments: argparse.Namespace) -> int:
    """Generate or complete the data and return 0."""
    from wattload.run import generate

    generate(arguments.overrides)
    return 0
