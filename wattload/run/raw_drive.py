"""The drives of block targets: guarded, claimed, and their history on this host.

What the guard needs of NVMe and of stamps comes from here, since core knows neither.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from pydantic import TypeAdapter, ValidationError

from wattload.core.clock import utc_text
from wattload.core.errors import DataError, PowerError, TargetError
from wattload.core.files import open_folder
from wattload.core.io import BlockIdentity
from wattload.core.record.target import DriveHistory
from wattload.core.storage.block_stack import controllers_in
from wattload.core.storage.guard import Claim, Guard, NvmeFacts, Permission
from wattload.core.storage.raw_writes import Begin, RawWriteLog, Status, counted_bytes
from wattload.core.storage.targets import Target, TargetKind
from wattload.core.sysfs import SECTOR_BYTES, read_int
from wattload.core.units import format_bytes
from wattload.core.workload import Conditioning, PurgeMethod
from wattload.loaders.stamps import bad_blocks
from wattload.power.control.journal import default_state_folder
from wattload.power.nvme.admin import NvmeAdmin
from wattload.power.nvme.identify import identify_namespace
from wattload.power.nvme.logs import DATA_UNIT_BYTES, read_smart
from wattload.power.nvme.namespaces import format_namespace, is_reserved, read_controller_count
from wattload.run.config import RunConfig

_BLKDISCARD = 0x1277
"""``linux/fs.h``."""
_DISCARD_BYTES = 64 << 30
"""Of one ioctl, so that a signal is not kept waiting for a whole drive."""
_NOTES_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What was done to a drive, as far as this host did it; times are UTC."""

    conditioning: Conditioning | None = None
    last_format: str | None = None
    last_trim: str | None = None


_NOTES = TypeAdapter(Notes)


def guard_of(config: RunConfig, target: Target) -> Guard:
    """Return the guard of a block target, with what the user permits."""
    block_bytes = getattr(config.workload, "block_bytes", None)
    permission = Permission(
        serials=config.target.serials(),
        overwrite=config.target.overwritten(),
        shared=config.target.shared,
        block_bytes=block_bytes if isinstance(block_bytes, int) else None,
    )
    log = RawWriteLog(default_state_folder())
    return Guard(target, permission, log, read_nvme=read_nvme, is_sealed=is_sealed)


def inspect_drives(
    config: RunConfig, targets: Sequence[Target]
) -> tuple[dict[int, Guard], dict[int, KnownDrive]]:
    """Return what a run would meet on each drive, by the target's index; changes nothing.

    Also returns those of the drives that can be told from others.
    """
    drives = [each for each in targets if each.kind is TargetKind.BLOCK]
    found = {target.index: guard_of(config, target).inspect() for target in drives}
    known = [KnownDrive(each, found[each.index]) for each in drives if found[each.index].name]
    return found, {drive.target.index: drive for drive in known}


def claim_drives(config: RunConfig, targets: Sequence[Target]) -> dict[int, ClaimedDrive]:
    """Return the drives of the block targets, by index; this process alone may overwrite them.

    Raises ``TargetError`` if the guard refuses one; then none is held.
    """
    claimed: dict[int, ClaimedDrive] = {}
    try:
        for target in targets:
            if target.kind is TargetKind.BLOCK:
                guard = guard_of(config, target)
                claimed[target.index] = ClaimedDrive(target, guard, guard.claim())
    except BaseException:
        for drive in claimed.values():
            drive.close()
        raise
    return claimed


class KnownDrive:
    """The history of a drive, which a preview may read; it releases nothing to be overwritten."""

    def __init__(self, target: Target, guard: Guard) -> None:
        if guard.name is None:
            raise TargetError(f"{target.path} can't be told from other drives")
        self.target = target
        self._guard = guard
        self._serial = guard.name.serial
        self._log = RawWriteLog(default_state_folder())
        self.nonce = secrets.randbits(64)
        self._notes_name = f"drive-{quote(self._serial, safe='')}.json"

    def host_written_bytes(self) -> tuple[int, int] | None:
        """Return the bytes that hosts have written, by the drive's SMART log, and its rounding.

        For a drive without one it is the kernel's count, which begins anew when the disk appears.
        """
        if self._guard.nvme is None:
            counted = counted_bytes(self.target.facts.devices)
            return (sum(counted.values()), SECTOR_BYTES) if counted else None
        with closing(NvmeAdmin(self._controller)) as device:
            return read_smart(device).written_bytes, DATA_UNIT_BYTES

    def conditioning(self) -> Conditioning | None:
        """Return what was last noted, ``None`` if nothing was."""
        return self._notes().conditioning

    def note_conditioning(self, conditioning: Conditioning) -> None:
        """Refuse: a preview changes nothing."""
        raise TargetError(f"{self.target.path} is not held by this run, so nothing is noted")

    def purge(self, method: PurgeMethod) -> Mapping[str, Any]:
        """Refuse: a preview changes nothing."""
        raise TargetError(f"{self.target.path} is not held by this run, so it is not purged")

    def history(self) -> DriveHistory:
        """Return what this host did to the drive, for the record."""
        notes = self._notes()
        conditioning = notes.conditioning
        return DriveHistory(
            last_format=notes.last_format or "unknown",
            last_trim=notes.last_trim or "unknown",
            preconditioning="unknown" if conditioning is None else _conditioning_text(conditioning),
            preconditioning_bytes=(
                None
                if conditioning is None
                else conditioning.sequential_bytes + conditioning.random_bytes
            ),
        )

    @property
    def _controller(self) -> str:
        controllers = controllers_in(self.target.facts.stack)
        if not controllers:
            raise TargetError(
                f"{self.target.path} is not an NVMe namespace, and has no admin queue"
            )
        return controllers[0].name

    def _notes(self) -> Notes:
        content = None
        try:
            with suppress(FileNotFoundError), open_folder(self._log.folder) as folder:
                content = folder.read(self._notes_name)
        except (OSError, DataError) as error:
            raise TargetError(f"the notes on {self.target.path} can't be used: {error}") from error
        if content is None:
            return Notes()
        try:
            return _NOTES.validate_json(content)
        except ValidationError as error:
            raise TargetError(
                f"the notes on {self.target.path} in {self._log.folder} are damaged; remove them"
            ) from error


class ClaimedDrive(KnownDrive):
    """A drive that this process holds; implements ``wattload.core.workload.RawDrive``."""

    def __init__(self, target: Target, guard: Guard, claim: Claim) -> None:
        if guard.log is None:
            raise TargetError(f"{target.path} was not examined")
        super().__init__(target, guard)
        self._claim = claim
        self._earlier = guard.log
        self._run_id: str | None = None
        self._has_begun = False

    @property
    def earlier(self) -> tuple[int, int]:
        """The bytes that earlier runs wrote to the drive, and the number of these runs."""
        return self._earlier.written_bytes, len(self._earlier.begins)

    def begin(
        self, run_id: str, command: Sequence[str], planned_bytes: int, covered_bytes: int
    ) -> None:
        """Write down that a run will overwrite the drive; durable when it returns.

        After a ``TargetError`` (others use the drive by now) nothing may be written to it.
        """
        self._guard.require_unused()
        identity, known = self._claim.identity, self._guard.counts
        counts = self._guard.read_counts()
        # The drive's own count may lag behind what was written before.
        if known is not None and replace(counts, drive_bytes=known.drive_bytes) != known:
            raise TargetError(
                f"another program wrote to {identity.path} after this run had examined it, so "
                "nothing was overwritten; end that program, and start again"
            )
        self._log.begin(
            Begin(
                run_id=run_id,
                command=tuple(command),
                path=str(identity.path),
                serial=self._serial,
                size_bytes=identity.size_bytes,
                disk_sequence=identity.disk_sequence,
                findings=self._guard.findings,
                overwrite=self._guard.overwritten,
                nonce=self.nonce,
                planned_bytes=planned_bytes,
                covered_bytes=covered_bytes,
                devices=counts.written,
            )
        )
        self._run_id, self._has_begun = run_id, True

    def end(self, status: Status, own_bytes: int | None = None) -> None:
        """Write down that the run has ended; raises ``TargetError`` if that is impossible.

        ``own_bytes`` is what a run that completed has counted as written to this drive. Then the
        counts of the drive are kept too, before another process can get hold of it.
        """
        if self._run_id is None:
            return
        left = None
        if own_bytes is not None:
            with suppress(TargetError):
                left = self._guard.read_counts()
        self._log.end(self._run_id, status, own_bytes=own_bytes, left=left)
        self._run_id = None

    def close(self) -> None:
        """Give the drive back; safe to call twice."""
        self._claim.close(reload=self._has_begun)

    def note_conditioning(self, conditioning: Conditioning) -> None:
        """Replace what was noted, durably."""
        self._write(replace(self._notes(), conditioning=conditioning))

    def purge(self, method: PurgeMethod) -> Mapping[str, Any]:
        """Discard all blocks, or format the namespace; see the protocol."""
        notes = replace(self._notes(), conditioning=None)
        path = self._claim.identity.path
        self._write(notes)  # first: a kill must not leave a purged drive that counts as prepared
        sent = self._format() if method == "format" else self._discard()
        if method == "format":
            self._write(replace(notes, last_format=utc_text()))
        else:
            self._write(replace(notes, last_trim=utc_text()))
        content = self._guard.reread(self.nonce)
        if content is None:
            raise TargetError(f"{path} can't be read after the purge")
        return {
            "method": method,
            "sent": sent,
            **{f"{kind}_count": count for kind, count in content.counts.items()},
            "reads_as": f"sampled blocks: {content.counts_text}",
        }

    def _format(self) -> str:
        try:
            with closing(NvmeAdmin(self._controller)) as device:
                command = format_namespace(device, read_int(self._guard.folder / "nsid"))
        except (PowerError, OSError, ValueError) as error:
            raise TargetError(
                f"{self.target.path} is not formatted: {error}; use workload.purge=discard"
            ) from error
        return f"{command.name}, dword 10 0x{command.cdw10:08x}"

    def _discard(self) -> str:
        size_bytes = self._claim.identity.size_bytes
        try:
            for start in range(0, size_bytes, _DISCARD_BYTES):
                length = min(_DISCARD_BYTES, size_bytes - start)
                fcntl.ioctl(self._claim.descriptor, _BLKDISCARD, struct.pack("<QQ", start, length))
        except OSError as error:
            raise TargetError(
                f"{self.target.path} does not discard its blocks ({error.strerror}); leave out "
                "workload.purge"
            ) from error
        return f"BLKDISCARD of {size_bytes} bytes"

    def _write(self, notes: Notes) -> None:
        try:
            with self._log.open_folder() as folder:
                folder.write(self._notes_name, json.dumps(asdict(notes)), _NOTES_MODE)
        except (OSError, DataError) as error:
            raise TargetError(
                f"the notes on {self.target.path} can't be written: {error}; set "
                "WATTLOAD_STATE_DIR to a writable folder"
            ) from error


def read_nvme(controller: str, namespace: int, node: Path) -> NvmeFacts:
    """Return what the guard has to know of an NVMe drive, by its own admin queue.

    Raises ``PowerError`` if the drive does not tell, ``OSError`` if its device can't be used.
    """
    with closing(NvmeAdmin(controller)) as device:
        smart = read_smart(device)
        use = identify_namespace(device, namespace)
        return NvmeFacts(
            critical_warning=smart.critical_warning,
            spare_percent=smart.available_spare_percent,
            spare_threshold_percent=smart.spare_threshold_percent,
            percentage_used=smart.percentage_used,
            is_shareable=use.is_shareable,
            is_reserved=use.has_reservations and is_reserved(node, namespace),
            controller_count=read_controller_count(device),
            used_bytes=use.used_bytes,
            written_bytes=smart.written_bytes,
        )


def is_sealed(block: memoryview, identity: BlockIdentity, offset_bytes: int) -> bool:
    """Return whether a block is as a stamp of this identity says, with its sum."""
    content = np.frombuffer(block, np.uint8)
    return bad_blocks(content, identity, offset_bytes=offset_bytes) == 0


def _conditioning_text(done: Conditioning) -> str:
    passes = done.sequential_bytes / done.range_bytes if done.range_bytes else 0.0
    words = (
        f"sequential, {done.block_bytes // 1024} KiB, {passes:.2f} passes over "
        f"{format_bytes(done.range_bytes)}"
    )
    if done.random_bytes and done.random_block_bytes:
        words += (
            f", then {format_bytes(done.random_bytes)} random, "
            f"{done.random_block_bytes // 1024} KiB, {done.draw}"
        )
    return words if done.complete else f"{words} (not finished)"
