"""How many bytes a RAID level, a mapping or a pool writes for each byte that it is given."""

from __future__ import annotations

from pathlib import Path

from wattload.core.sysfs import explain, read_int, read_text

_ONE_COPY_UUIDS = ("CRYPT-", "mpath-", "VERITY-")
"""Device-mapper tables that pass each byte on once, by the prefix of their uuid."""

_BTRFS_COPIES = {
    "single": 1.0,
    "raid0": 1.0,
    "dup": 2.0,
    "raid1": 2.0,
    "raid10": 2.0,
    "raid1c3": 3.0,
    "raid1c4": 4.0,
}


def md_redundancy(folder: Path) -> tuple[float | None, str]:
    """Return an md array's factor from its sysfs folder, or ``None`` and the reason.

    Mirrors count the members that are there, parity RAID its full stripes: a partial stripe also
    rewrites its parity, and may read for it.
    """
    try:
        level = read_text(folder / "md/level")
        count = read_int(folder / "md/raid_disks")
        present = count - read_int(folder / "md/degraded") if level == "raid1" else count
        layout = read_int(folder / "md/layout") if level == "raid10" else 0
    except (OSError, ValueError) as error:
        return None, explain(error)
    if level in ("linear", "raid0"):
        return 1.0, ""
    if level == "raid1":
        return float(present), ""
    if level == "raid10":  # md(4): near copies in bits 7:0, far copies in bits 15:8
        return float((layout & 0xFF) * (layout >> 8 & 0xFF)), ""
    parity = {"raid4": 1, "raid5": 1, "raid6": 2}.get(level)
    if parity is None or count <= parity:
        return None, f"md level {level} over {count} devices has no known factor"
    return count / (count - parity), ""


def dm_redundancy(folder: Path) -> tuple[float | None, str]:
    """Return a device-mapper device's factor, or ``None`` where several devices lie under it."""
    try:
        uuid = read_text(folder / "dm/uuid")
    except OSError:
        uuid = ""
    below = len(list((folder / "slaves").glob("*")))
    if below == 1 or uuid.startswith(_ONE_COPY_UUIDS):
        return 1.0, ""
    return (
        None,
        f"sysfs does not show how the mapping uses its {below} devices (dmsetup table does)",
    )


def btrfs_redundancy(pool: Path) -> tuple[float | None, str]:
    """Return a btrfs pool's factor from the profiles of its data block groups.

    Args:
        pool: ``/sys/fs/btrfs/<uuid>``; the profiles are folders under ``allocation/data``.
    """
    profiles = sorted(entry.name for entry in (pool / "allocation/data").glob("*/"))
    if len(profiles) == 1 and profiles[0] in _BTRFS_COPIES:
        return _BTRFS_COPIES[profiles[0]], ""
    return None, f"its data profiles have no one factor: {', '.join(profiles) or 'none shown'}"
