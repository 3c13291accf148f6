"""What ``mlpstorage`` v3 records beside a benchmark's own files.

``KIND_TIME_metadata.json`` has command, parameters and hosts, ``KIND_TIME_timeseries.json`` each
host's ``/proc/diskstats`` every 10 s in UTC, ``systems/SYSTEM.yaml`` the description of the system
(mlcommons/storage, ``mlpstorage_py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from wattload.core.mlperf.files import Part, RunFolder, Values, When, flat
from wattload.core.mlperf.published import Setting
from wattload.core.sysfs import SECTOR_BYTES

_WHOLE_DEVICE = re.compile(r"nvme\d+n\d+|(sd|vd|xvd)[a-z]+")
"""No partition, none of several paths to a namespace (nvme0c0n1), and nothing that is made of
devices (md, dm, loop), so that no byte counts twice."""
_ZONE_STEP_S = 15 * 60
"""Time zones differ by multiples of a quarter of an hour."""
_STAMP_S = 1.0
"""Times of samples are cut to whole seconds."""

Counters = Sequence[Sequence[tuple[float, tuple[int, int]]]]
"""By host, the bytes that its devices had read and written, with the time by the run's clock."""


@lru_cache(maxsize=1)
def metadata_of(folder: RunFolder) -> Values:
    """Return a run's metadata; empty without the file, or if it can't be read."""
    names = [match[0] for match in folder.matching(r"\w+_metadata\.json")]
    found = folder.optional(lambda: folder.json(names[0])) if names else None
    return Values(folder, names[0] if found else "", found)


def recorded(folder: RunFolder) -> tuple[dict[str, Setting], dict[str, str]]:
    """Return the settings, the tool's own as ``args.NAME``, and those that the command changed."""
    found = metadata_of(folder)
    parts = (found.get(name, dict) or {} for name in ("parameters", "args", "override_parameters"))
    parameters, own, changes = parts
    changed = {name: str(value) for name, value in flat(changes)}
    if accelerator := found.get("accelerator", str):
        changed["workload"] = f"{found.get('model', str)}_{accelerator}"
    return {**dict(flat(parameters)), **dict(flat(own, "args."))}, changed


def times_of(folder: RunFolder) -> dict[str, object]:
    """Return ``start`` and ``end`` of the whole run, as the tool wrote them."""
    found = metadata_of(folder)
    return {edge: found.get(f"invocation_{edge}_time", str) for edge in ("start", "end")}


def memory_of(folder: RunFolder) -> tuple[int | None, ...]:
    """Return the memory in bytes of each host that the metadata lists."""
    hosts = metadata_of(folder).each("system_info.hosts")
    return tuple(host.whole("memory.total") for host in hosts)


def storage_location(folder: RunFolder) -> str | None:
    """Return where the description of a run's system has its storage, such as ``local``."""
    home, _, below = f"/{folder.path}".rpartition("/results/")
    home, name = home.strip("/"), f"systems/{below.split('/')[0]}.yaml"
    if not (folder.root / home / name).is_file():
        return None
    above = RunFolder(folder.root, home, "", [name])
    found = Values(above, name, folder.optional(lambda: above.yaml(name)))
    folder.sources.update(above.sources)
    return found.get("system_under_test.solution.architecture.storage_location", str)


class _Device(Part):
    device_name: str
    sectors_read: int
    sectors_written: int


class _Sample(Part):
    timestamp: When
    diskstats: Sequence[_Device]

    @property
    def moved(self) -> tuple[int, int]:
        whole = [d for d in self.diskstats if _WHOLE_DEVICE.fullmatch(d.device_name)]
        read, written = (d.sectors_read for d in whole), (d.sectors_written for d in whole)
        return sum(read) * SECTOR_BYTES, sum(written) * SECTOR_BYTES


class _Series(Part):
    samples_by_host: Mapping[str, Sequence[_Sample]]


def counters_of(folder: RunFolder, started_s: float, hosts: int) -> Counters:
    """Return the counters of the local devices of a run that started at ``started_s``.

    Empty if the samples of a host are missing, or if no device moved anything in the whole run:
    then its counters don't see the storage.
    """
    names = [match[0] for match in folder.matching(r"\w+_timeseries\.json")]
    if not names:
        return ()
    series = folder.optional(lambda: folder.part(names[0], _Series, folder.json(names[0])))
    by_host = list(series.samples_by_host.values()) if series else []
    if len(by_host) < hosts or not all(by_host):
        return ()
    late_s = started_s - by_host[0][0].timestamp
    zone_s = round(late_s / _ZONE_STEP_S) * _ZONE_STEP_S
    found = [[(each.timestamp + zone_s, each.moved) for each in samples] for samples in by_host]
    return found if any(samples[0][1] != samples[-1][1] for samples in found) else ()


def moved_bytes(counters: Counters, start_s: float, end_s: float, is_write: bool) -> int | None:
    """Return the bytes between the last samples before a span of the run and the first after it.

    ``None`` without counters, if a host lacks one of the two, or if they ran backwards.
    """
    total = 0
    for samples in counters:
        before = [moved[is_write] for at_s, moved in samples if at_s + _STAMP_S <= start_s]
        after = [moved[is_write] for at_s, moved in samples if at_s >= end_s]
        if not before or not after or after[0] < before[-1]:
            return None
        total += after[0] - before[-1]
    return total if counters else None
