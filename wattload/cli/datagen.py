"""``wattload datagen``: only generate the data of a workload."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="Hydra overrides, e.g. workload=unet3d target.path=/mnt/nvme scale=full",
    )


def run(arguments: argparse.Namespace) -> int:
    from wattload.cli.outcome import Printer
    from wattload.cli.settings import require_workload
    from wattload.session.loop import generate

    require_workload(arguments.overrides, "datagen")
    data = generate(arguments.overrides, Printer())
    if data is not None:
        print(f"{'reused' if data.reused else 'generated'}: {data.folder}")
    return 0
