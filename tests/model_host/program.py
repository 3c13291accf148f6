"""The sampler's own program on a host whose drives are models: run as a process by tests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.model_host.drive import ModelDrive, load
from wattload.cli.sampler import add_arguments
from wattload.core.errors import WattloadError
from wattload.core.power import PowerSource
from wattload.power.config import PowerConfig
from wattload.power.control.journal import ChangeJournal
from wattload.power.nvme.admin import DeviceWithTimeout
from wattload.power.sampler import __main__ as sampler
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.service import serve
from wattload.power.sources import nvme
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.nvme import find as find_nvme

_folder = Path()


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    return find_nvme(
        devices,
        config,
        open_device=lambda name: ModelDrive(_folder, name),
        holds_system=holds_system,
    )


def serial_of(name: str) -> str:
    path = _folder / f"{name}.json"
    return load(path).serial if path.exists() else name


def holds_system(name: str) -> bool | None:
    return (_folder / f"{name}.system").exists()


def main() -> int:
    global _folder  # noqa: PLW0603 - one host per process
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="serve the run that starts this program")
    parser.add_argument("--service", type=int)
    parser.add_argument("--name", default="host-1", help="the name of the host")
    arguments = parser.parse_args()
    _folder = arguments.models
    host = SamplerHost(
        is_service=arguments.runs is None,
        devices=None if arguments.device is None else frozenset(arguments.device),
        allows_system_drive=arguments.allow_system_drive,
        journal=ChangeJournal(_folder / "state"),
        name=arguments.name,
        open_device=lambda name: DeviceWithTimeout(ModelDrive(_folder, name)),
        list_names=lambda: sorted(path.stem for path in _folder.glob("nvme*.json")),
        serial_of=serial_of,
        holds_system=holds_system,
    )
    if arguments.runs is not None:
        sampler.serve_run(arguments, host)
        return 0
    serve(arguments.socket, arguments.group, host)
    return 0


if __name__ == "__main__":
    nvme.find = find  # type: ignore[assignment]  # the drives of this host are models
    try:
        sys.exit(main())
    except WattloadError as error:
        sys.exit(str(error))
