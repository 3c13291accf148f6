"""Which GPU a target or a process uses, as named or by place, and how GPUs and drives connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattload.core.errors import ConfigError, NoGpuError
from wattload.core.host.gpus import (
    Gpu,
    Link,
    drive_node,
    drive_places,
    find_gpu,
    link_between,
    list_gpus,
    nearest_gpus,
    normal_address,
)
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE, Roots


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A target and the GPU that its blocks are read into."""

    target: Target
    gpu: Gpu
    drive_node: int | None
    link: Link

    def as_json(self) -> Mapping[str, Any]:
        return {
            "target": self.target.index,
            "path": str(self.target.path),
            "gpu": self.gpu.address,
            "gpu_name": self.gpu.name,
            "gpu_node": self.gpu.node,
            "drive_node": self.drive_node,
            "link": self.link,
        }

    def text(self) -> str:
        """Return it in words: ``/mnt/n0 into GPU 0000:07:00.0 (A100, node 3), same switch``."""
        gpu = self.gpu
        node = "" if gpu.node is None else f"node {gpu.node}"
        cpus = f" with CPUs {gpu.cpus}" if node and gpu.cpus else ""
        about = ", ".join(filter(None, [gpu.name, node + cpus]))
        link = "link unknown" if self.link == "unknown" else self.link
        return f"{self.target.path} into GPU {gpu.address}{f' ({about})' if about else ''}, {link}"


def named_gpus(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - a setting of any type
    """Return the GPUs that the setting ``workload.gpus`` names, as text; empty if it is unset."""
    if value is None:
        return ()
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(str(each).strip() for each in (value if is_list else (value,)))


def check_names(named: Sequence[str]) -> None:
    """Raise ``ConfigError`` for what can't name a GPU; whether it exists is another question."""
    for name in named:
        if not name.isdecimal() and normal_address(name) is None:
            raise ConfigError(
                f"workload.gpus must be numbers or PCI addresses of GPUs, such as [0,1] or "
                f"[0000:65:00.0], got {name!r}; nvidia-smi lists both"
            )


def gpu_of_process(
    number: int, count: int, named: Sequence[str], roots: Roots = LIVE
) -> Gpu | None:
    """Return the GPU of process ``number`` of ``count`` on this host, ``None`` if it has none.

    It is the one that ``named`` has at this place, or else the one at this place by PCI address.

    Raises:
        ConfigError: there are more processes than GPUs or names, or the GPU does not exist or is
            divided by MIG.
    """
    found = list_gpus(roots)
    if named:
        if len(named) < count:
            raise ConfigError(
                f"{count} processes on this host, but workload.gpus names {len(named)}: each "
                f"process needs a GPU of its own; use at most {len(named)} processes"
            )
        gpu = _named(named[number], found, roots)
        _refuse_divided([gpu])
        return gpu
    if not found:
        return None
    whole = [gpu for gpu in found if not gpu.is_divided]
    if not whole:
        _refuse_divided(found)
    if len(whole) < count:
        raise ConfigError(
            f"{count} processes on this host, but it has {len(whole)} GPUs: each process needs one "
            f"of its own; use at most {len(whole)} processes"
        )
    return whole[number]


def connect(
    targets: Sequence[Target], named: Sequence[str], roots: Roots = LIVE
) -> tuple[Connection, ...]:
    """Return the GPU of each target: the named one, or the nearest by PCI Express.

    ``named`` has one GPU for all targets, or one for each; empty for the nearest ones.

    Raises:
        ConfigError: a GPU does not exist or is divided by MIG, or there are neither as many as
            targets nor one.
        NoGpuError: there is none.
    """
    if named and len(named) not in (1, len(targets)):
        raise ConfigError(
            f"workload.gpus must name one GPU for each of the {len(targets)} targets, or one for "
            f"all, got {len(named)}"
        )
    found, places = list_gpus(roots), [drive_places(target, roots) for target in targets]
    if named:
        each_named = named if len(named) == len(targets) else list(named) * len(targets)
        chosen = [_named(name, found, roots) for name in each_named]
    else:
        if not found:
            raise NoGpuError(
                f"no NVIDIA GPU in {roots.sys}/bus/pci; use a host with one, or, where a container "
                "hides it, name it by its PCI address: workload.gpus=[0000:65:00.0]"
            )
        chosen = nearest_gpus(places, [gpu for gpu in found if not gpu.is_divided] or found)
    _refuse_divided(chosen)
    return tuple(
        Connection(
            target=target, gpu=gpu, drive_node=drive_node(place), link=link_between(gpu, place)
        )
        for target, gpu, place in zip(targets, chosen, places, strict=True)
    )


def _named(name: str, found: Sequence[Gpu], roots: Roots) -> Gpu:
    """Return the GPU that a number or an address names.

    Where this host shows no GPU at all, as in some containers, an address is left to CUDA.
    """
    address = normal_address(name)
    if address is not None and not found:
        return find_gpu(address, roots)
    by_name = {str(number): gpu for number, gpu in enumerate(found)}
    by_name |= {gpu.address: gpu for gpu in found}
    gpu = by_name.get(address or str(int(name)))
    if gpu is None:
        listed = ", ".join(f"{number} ({each.address})" for number, each in enumerate(found))
        raise ConfigError(
            f"GPU {name} does not exist; "
            + (
                f"workload.gpus can be {listed}"
                if found
                else f"there is no NVIDIA GPU in {roots.sys}/bus/pci; where a container hides it, "
                "name it by its PCI address: workload.gpus=[0000:65:00.0]"
            )
        )
    return gpu


def _refuse_divided(chosen: Sequence[Gpu]) -> None:
    for gpu in chosen:
        if gpu.is_divided:
            raise ConfigError(
                f"GPU {gpu.address} is divided into MIG instances, which wattload does not "
                "support; disable MIG with `nvidia-smi -mig 0`, or name another GPU with "
                "workload.gpus"
            )
