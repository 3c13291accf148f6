"""Which CPUs a device's interrupts may run on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from wattload.core.sysfs import Roots, block_folder, read_text


def interrupt_affinity(devices: Sequence[str], roots: Roots) -> dict[str, str]:
    """Return interrupt name to CPU list for the PCI functions that block devices hang on.

    Empty where the devices have no interrupt that sysfs shows, as with a software device. Keys are
    ``<number> <name>``: names alone may repeat.

    Raises:
        OSError: ``/proc/interrupts`` can't be read.
    """
    names = _interrupt_names(roots)
    affinity: dict[str, str] = {}
    for device in devices:
        for number in _numbers(device, roots):
            if number not in names:  # it is allocated and was never asked for
                continue
            file = roots.proc / "irq" / number / "smp_affinity_list"
            affinity[f"{number} {names[number]}"] = read_text(file)
    return affinity


def _interrupt_names(roots: Roots) -> dict[str, str]:
    names: dict[str, str] = {}
    for line in read_text(roots.proc / "interrupts").splitlines()[1:]:
        number, _, rest = line.strip().partition(":")
        if number.isdecimal() and rest.split():
            names[number] = rest.split()[-1]
    return names


def _numbers(device: str, roots: Roots) -> Iterator[str]:
    folder = block_folder(device, roots)
    if folder is None:
        return
    for parent in folder.parents:
        if (parent / "msi_irqs").is_dir():
            yield from sorted(_names(parent / "msi_irqs"), key=int)
            return
        if (parent / "config").exists() and (parent / "irq").exists():
            yield read_text(parent / "irq")
            return


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]
