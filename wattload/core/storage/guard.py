"""The guard of whole drives: what must be true before a run may overwrite one.

In order: it is a whole drive that can be written; the user gave its serial number; the running
system does not need it; nothing that can be seen from here uses it, and the kernel grants it
exclusively; it is healthy; no other host may write to it; and all that is on it is blank, ours, or
named by the user. The kernel's grant keeps out mounts and other exclusive users; the others are
looked for (``device_users``), and where some can't be seen the user has to say so.
What can't be read refuses. No message has a serial number in it, so that one has to be read off the
drive and not out of an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wattload.core.errors import TargetError, WattloadError
from wattload.core.io import DeviceIdentity
from wattload.core.record.target import BlockNode
from wattload.core.storage.block_stack import EFI_PARTITION, controllers_in, system_drives
from wattload.core.storage.content import Content, IsSealed, flush, read_content
from wattload.core.storage.device_users import find_users, lock_holder, process_name
from wattload.core.storage.efi import has_efi_partition
from wattload.core.storage.file_system import unescape
from wattload.core.storage.loop_devices import backing_path, holds_data_outside, read_backing
from wattload.core.storage.raw_device import (
    DriveName,
    attachment_text,
    disk_folder,
    drive_name,
    drive_text,
    kind_text,
    partitions,
    require_same,
)
from wattload.core.storage.raw_writes import (
    OWN_STEP_BYTES,
    UNKNOWN,
    UNSEEN,
    WORN,
    DriveLog,
    RawWriteLog,
    WriteCounts,
    read_counts,
)
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE, Roots, explain, read_int, read_text
from wattload.core.units import format_bytes

UNSAMPLED = "unsampled"
"""The name of data that sampling may have missed."""

LOCAL_TRANSPORT = "pcie"
_ALL_PERCENT = 100
_TAIL_BYTES = 2 << 20
"""What blocks of the largest size may leave at the end of a drive; its last block is sampled."""
_ZRAM_STORED, _ZRAM_SAME = 0, 5
"""Columns of ``mm_stat`` (zram.rst): bytes stored, and pages of one repeated word."""
_RELOAD_PARTITIONS = 0x125F
"""``BLKRRPART`` of ``linux/fs.h``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeFacts:
    """What the guard has to know about an NVMe drive that only its admin queue tells.

    ``is_shareable`` is bit 0 of NMIC. ``controller_count`` is that of the whole subsystem, those of
    other hosts included; ``None`` if the drive does not list them. ``used_bytes`` is NUSE.
    ``written_bytes`` is what hosts have written by way of this controller, in whole steps.
    """

    critical_warning: int
    spare_percent: int
    spare_threshold_percent: int
    percentage_used: int
    is_shareable: bool
    is_reserved: bool
    controller_count: int | None
    used_bytes: int
    written_bytes: int


ReadNvme = Callable[[str, int, Path], NvmeFacts]
"""Reads the facts of a controller's namespace: its name, the namespace's number and its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What the user permits: the drives by ``serials``, findings by name, and other hosts.

    ``block_bytes`` is the smallest block that the run will write, ``None`` if it does not say.
    """

    serials: tuple[str, ...]
    overwrite: frozenset[str]
    shared: bool
    block_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse a run, and whether the user can lift it by a setting."""

    sentence: str
    can_be_lifted: bool = False


class Guard:
    """Examines one drive for one run, and keeps what it found.

    ``findings`` are the names that ``target.overwrite`` must have. ``untouched`` is what shows that
    only wattload wrote to it, empty if nothing does. ``content`` and ``log`` are ``None`` if they
    could not be read. ``refusals`` are all reasons why a run would be refused, in order, once
    ``inspect`` has looked for them.
    """

    def __init__(
        self,
        target: Target,
        permission: Permission,
        log: RawWriteLog,
        *,
        read_nvme: ReadNvme,
        is_sealed: IsSealed,
        roots: Roots = LIVE,
    ) -> None:
        """Prepare for a block target; ``read_nvme`` and ``is_sealed`` are the parts outside."""
        if target.device is None or target.facts.stack is None:
            raise TargetError(f"{target.path} is not a drive that can be examined")
        self.identity: DeviceIdentity = target.device
        self.name: DriveName | None = None
        self.log: DriveLog | None = None
        self.content: Content | None = None
        self.nvme: NvmeFacts | None = None
        self.counts: WriteCounts | None = None
        self.findings: tuple[str, ...] = ()
        self.refusals: tuple[Refusal, ...] = ()
        self.untouched = ""
        self._sharing: tuple[str, ...] = ()
        self._hidden: tuple[str, ...] = ()
        self._stack: BlockNode = target.facts.stack
        self._devices = target.facts.devices
        self._permission = permission
        self._write_log = log
        self._read_nvme = read_nvme
        self._is_sealed = is_sealed
        self._roots = roots
        self.folder = disk_folder(self.identity.path, roots)[1]

    @property
    def overwritten(self) -> tuple[str, ...]:
        return tuple(each for each in self.findings if each in self._permission.overwrite)

    @property
    def words(self) -> str:
        return drive_text(self._stack, self.identity.size_bytes)

    @property
    def is_shared(self) -> bool:
        return bool(self._sharing)

    @property
    def is_final(self) -> bool:
        return not all(refusal.can_be_lifted for refusal in self.refusals)

    def inspect(self) -> Guard:
        """Look for all that a run would meet, and return this guard; nothing is held or changed."""
        steps = (*self._first_steps(), *self._last_steps())
        self.refusals = tuple(refusal for step in steps for refusal in _refusals(step))
        return self

    def claim(self) -> Claim:
        """Return the exclusive right to overwrite the drive.

        Raises ``TargetError`` with the first refusal; then nothing is changed or held.
        """
        for step in self._first_steps():
            _refuse(step)
        claim = Claim(self.identity)
        try:
            for step in (self._users, *self._last_steps()):
                _refuse(step)
        except BaseException:
            claim.close()
            raise
        return claim

    def require_unused(self) -> None:
        """Look again for other users of the drive; raises ``TargetError`` if there is one."""
        _refuse(self._users)

    def reread(self, nonce: int) -> Content | None:
        """Return what is on the drive now, with the stamps of this run's ``nonce`` as ours."""
        if self.name is None or self.log is None:
            return None
        return self._read_content(self.name, self.log.nonces | {nonce})

    def read_counts(self) -> WriteCounts:
        """Return what counts the writes to the drive now; raises ``TargetError``."""
        path, drive_bytes, file_ns = self.identity.path, None, None
        flush(path, partitions(self.folder), self._roots)
        try:
            if self._stack.kind == "loop":
                file = backing_path(path, self.folder, read_backing(path), self._roots)
                file_ns = file.stat().st_ctime_ns
            if self.nvme is not None and (self.nvme.controller_count or 0) <= 1:
                # Another controller of the drive has a count of its own.
                drive_bytes = self._nvme_facts().written_bytes
            counts = read_counts(self.folder.name, self._devices, self._roots)
            return replace(counts, drive_bytes=drive_bytes, file_ns=file_ns)
        except (WattloadError, OSError, ValueError) as error:
            raise TargetError(
                f"the counts of writes to {path} can't be read: {explain(error)}"
            ) from error

    def _first_steps(self) -> tuple[Callable[[], Iterator[Refusal]], ...]:
        return (self._drive, self._owner, self._system, self._users)

    def _last_steps(self) -> tuple[Callable[[], Iterator[Refusal]], ...]:
        return (self._health, self._hosts, self._unseen, self._wear, self._content)

    def _drive(self) -> Iterator[Refusal]:
        """Yield why it is not a whole drive that this run can write."""
        path, folder = self.identity.path, self.folder
        if words := kind_text(self._stack):
            yield Refusal(f"{path} is {words}; name the whole drive under it")
        if read_int(folder / "ro"):
            yield Refusal(
                f"{path} is read-only; make it writable (blockdev --setrw), or name another drive"
            )
        zoned = read_text(folder / "queue/zoned")
        if zoned != "none":
            yield Refusal(
                f"{path} is zoned ({zoned}), and takes writes in order only; name another drive"
            )
        if not self.identity.size_bytes:
            yield Refusal(f"{path} has no medium: its size is 0 bytes")
        smallest, block_bytes = self.identity.logical_block_bytes, self._permission.block_bytes
        if block_bytes is not None and block_bytes % smallest:
            yield Refusal(
                f"{path} has logical blocks of {smallest} bytes; workload.block_bytes must be a "
                f"multiple of it, got {block_bytes}"
            )

    def _owner(self) -> Iterator[Refusal]:
        path = self.identity.path
        self.name = drive_name(path, self.folder, self._stack, self._roots)
        if not self._permission.serials:
            yield Refusal(
                f"{path} is {self.words}, all of which would be overwritten; give target.serial= "
                f"{self.name.hint}",
                can_be_lifted=True,
            )
        elif not self.name.accepted.intersection(self._permission.serials):
            yield Refusal(
                f"{path} is not the drive of that serial, but {self.words}; name the right device, "
                f"or give target.serial= {self.name.hint}"
            )

    def _system(self) -> Iterator[Refusal]:
        path, system = self.identity.path, system_drives(self._roots)
        held = system.disks.get(self.folder.name)
        if held and held != EFI_PARTITION:
            yield Refusal(f"{path} holds the running system ({held}) and is never overwritten")
        elif system.unknown and not system.hidden:
            # The folder of an overlay is on a mounted file system: the exclusive opening proves
            # that this is not on the drive.
            yield Refusal(f"whether {path} holds the running system is unknown: {system.unknown}")
        with path.open("rb") as disk:
            if has_efi_partition(disk, self.identity.logical_block_bytes):
                yield Refusal(
                    f"{path} has an EFI system partition, from which a host may boot, and is never "
                    "overwritten; delete that partition first"
                )

    def _users(self) -> Iterator[Refusal]:
        """Yield what uses the drive, or the file behind it, as far as it can be seen from here."""
        path = self.identity.path
        file = read_backing(path).file if self._stack.kind == "loop" else None
        controllers = frozenset(node.name for node in controllers_in(self._stack))
        users = find_users(self.folder, controllers, file, self._roots)
        self._hidden = tuple(users.hidden)
        for words in (*users.mounts, *users.others):
            yield Refusal(f"{path} is in use: {words}")
        for line in (self._roots.proc / "swaps").read_text(encoding="utf-8").splitlines()[1:]:
            swap = Path(unescape(line.split()[0]))
            found = swap.stat() if file is not None and swap.is_file() else None
            if found is not None and (found.st_dev, found.st_ino) == file:
                yield Refusal(f"{path} is in use: its backing file is swap")

    def _unseen(self) -> Iterator[Refusal]:
        """Yield what may use the drive and can't be seen from here, unless that is permitted."""
        self.findings = (UNSEEN,) if self._hidden else ()
        if self._hidden and UNSEEN not in self._permission.overwrite:
            yield Refusal(
                f"{self.identity.path} may be in use by what can't be seen from here "
                f"({_joined(self._hidden)}); run as root on the host itself, or make sure that "
                f"nothing uses it, and add {UNSEEN} to target.overwrite=",
                can_be_lifted=True,
            )

    def _health(self) -> Iterator[Refusal]:
        """Yield what is wrong with the drive; only NVMe drives tell."""
        if self._stack.kind != "namespace":
            return
        path = self.identity.path
        if not controllers_in(self._stack):
            yield Refusal(f"the health of {path} can't be read: sysfs shows no controller of it")
            return
        try:
            self.nvme = found = self._nvme_facts()
        except (WattloadError, OSError, ValueError) as error:
            yield Refusal(f"the health of {path} can't be read: {error}")
            return
        if found.critical_warning:
            yield Refusal(
                f"{path} reports a critical warning (0x{found.critical_warning:02x}); replace the "
                "drive, or cool it"
            )
        if found.spare_threshold_percent and found.spare_percent <= found.spare_threshold_percent:
            yield Refusal(
                f"{path} has {found.spare_percent} % of its spare left, and its threshold is "
                f"{found.spare_threshold_percent} %; replace the drive"
            )

    def _nvme_facts(self) -> NvmeFacts:
        controller, namespace = controllers_in(self._stack)[0], read_int(self.folder / "nsid")
        return self._read_nvme(controller.name, namespace, self.identity.path)

    def _hosts(self) -> Iterator[Refusal]:
        """Yield how another host may write to the drive, unless that is permitted.

        A drive whose way to this host is not known to be private counts as shared.
        """
        self._sharing = tuple(self._other_hosts())
        if self._sharing and not self._permission.shared:
            yield Refusal(
                f"another host may write to it: {self.identity.path} {', and '.join(self._sharing)}"
                "; make sure that none does, and add target.shared=true",
                can_be_lifted=True,
            )

    def _other_hosts(self) -> Iterator[str]:
        if self._stack.kind != "namespace":
            if reason := attachment_text(self._stack, self.folder):
                yield reason
            return
        names = [node.name for node in controllers_in(self._stack)]
        for name in names:
            transport = read_text(self._roots.sys / "class/nvme" / name / "transport")
            if transport != LOCAL_TRANSPORT:
                yield f"is attached by {transport}"
        found = self.nvme
        if found is None:
            yield "does not tell whether it is shared"
            return
        if found.is_shareable:
            yield "can be attached to several controllers (NMIC)"
        if found.is_reserved:
            yield "is reserved by a host"
        count = max(found.controller_count or 0, len(names))
        if count > 1:
            yield f"has {count} controllers in its subsystem"

    def _content(self) -> Iterator[Refusal]:
        """Yield what is on the drive that the user has not named."""
        if self.name is None:
            return
        path = self.identity.path
        self.log = self._write_log.of_drive(self.name.serial)
        self.content = content = self._read_content(self.name, self.log.nonces)
        found = {each.name: each.type for each in content.signatures}
        self.counts = self.read_counts()
        if content.has_unexplained:
            found[UNKNOWN] = "blocks that are neither blank nor ours"
        elif self._is_filled(content, self.log):
            if reason := self._others(self.log, self.counts):
                found[UNKNOWN] = f"possibly other data ({reason})"
        elif reason := self._unsampled(content):
            found[UNSAMPLED] = reason
        self.findings = (*self.findings, *found)
        missing = [name for name in found if name not in self._permission.overwrite]
        if missing:
            words = dict.fromkeys(found[name] for name in missing)
            yield Refusal(
                f"{path} holds {_joined(list(words))}; to overwrite it, set "
                f"target.overwrite=[{','.join(self.findings)}]",
                can_be_lifted=True,
            )

    def _is_filled(self, content: Content, log: DriveLog) -> bool:
        """Return whether our runs have written all of the drive, and the samples are all ours."""
        covered_bytes = log.covered_bytes
        is_filled = self.identity.size_bytes - covered_bytes < _TAIL_BYTES and not content.unknown
        return is_filled and all(offset >= covered_bytes for offset in content.blank)

    def _others(self, log: DriveLog, counts: WriteCounts) -> str:
        """Return why others may have written to a filled drive; empty if that is ruled out."""
        if reason := log.others_since(counts):
            return reason
        if self._sharing and counts.drive_bytes is None:
            return "another host may write to it, and nothing counts what it writes"
        self.untouched = "nothing was written since the last run, by the kernel's count"
        if counts.drive_bytes is not None:
            self.untouched += (
                f" and by its own, in steps of {OWN_STEP_BYTES:,} B: less than that from another "
                "host can't be seen"
            )
        return ""

    def _unsampled(self, content: Content) -> str:
        """Return why data may be on the drive that no sample hit; empty if that is ruled out."""
        size_bytes = self.identity.size_bytes
        if any(start <= 0 and end >= size_bytes for start, end in content.explained):
            return ""  # all of it belongs to what has a name
        if self.nvme is not None:
            if not self.nvme.used_bytes and not content.own_count:
                return ""
            amount = format_bytes(self.nvme.used_bytes)
            return f"data by its own count ({amount}), of which sampling may have missed some"
        return "" if self._shows_no_data(content) else "possibly data that sampling has missed"

    def _shows_no_data(self, content: Content) -> bool:
        """Return whether the device shows that it holds nothing but what has a name."""
        if self._stack.kind == "loop":
            path = self.identity.path
            backing = read_backing(path)
            file = backing_path(path, self.folder, backing, self._roots)
            size_bytes = self.identity.size_bytes
            return not holds_data_outside(path, file, backing, size_bytes, content.explained)
        if self.folder.name.startswith("zram"):
            columns = read_text(self.folder / "mm_stat").split()
            return columns[_ZRAM_STORED] == columns[_ZRAM_SAME] == "0"
        return False

    def _wear(self) -> Iterator[Refusal]:
        if self.nvme is None or self.nvme.percentage_used < _ALL_PERCENT:
            return
        self.findings = (*self.findings, WORN)
        if WORN not in self._permission.overwrite:
            yield Refusal(
                f"{self.identity.path} has used {self.nvme.percentage_used} % of its endurance; "
                f"name another drive, or, to wear it out further, add {WORN} to target.overwrite=",
                can_be_lifted=True,
            )

    def _read_content(self, name: DriveName, nonces: frozenset[int]) -> Content:
        return read_content(
            self.identity,
            partitions(self.folder),
            serial=name.serial,
            nonces=nonces,
            is_sealed=self._is_sealed,
            roots=self._roots,
        )


LOCK_S = 5.0
"""For how long others may keep the node of a drive locked: udev does while it handles a change."""
_POLL_S = 0.01


class Claim:
    """The exclusive right to a drive, held until ``close`` or the end of this process.

    While it is held, the kernel refuses to mount the drive or a partition of it and to make an
    array on it; programs that make file systems ask for the same right; and udev leaves it alone.
    """

    def __init__(self, identity: DeviceIdentity) -> None:
        """Take it; raises ``TargetError`` if others hold the drive, or another has its name."""
        self.identity = identity
        path = identity.path
        with ExitStack() as held:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
                held.callback(os.close, descriptor)
            except OSError as error:
                raise TargetError(_not_opened(path, error)) from error
            deadline_s = time.monotonic() + LOCK_S
            while not _locks(descriptor):
                if time.monotonic() > deadline_s:
                    raise TargetError(
                        f"{path} is held by what can't be seen from here: another program has had "
                        f"its device node locked for {LOCK_S:g} s; end that, or wait for it"
                    )
                time.sleep(_POLL_S)
            if holder := lock_holder(descriptor):
                who = process_name(holder) if holder > 0 else "another process"
                raise TargetError(f"{path} is in use: {who} has locked bytes of it; end that first")
            require_same(descriptor, identity)
            held.pop_all()
        self.descriptor = descriptor
        """The open device, for what only the holder of the drive may do; -1 once it is closed."""

    def close(self, *, reload: bool = False) -> None:
        """Give the drive back; safe to call twice.

        With ``reload`` the kernel looks for partitions again, since they may be overwritten.
        """
        if self.descriptor < 0:
            return
        descriptor, self.descriptor = self.descriptor, -1
        if reload:
            with suppress(OSError):  # a device without partitions refuses
                fcntl.ioctl(descriptor, _RELOAD_PARTITIONS)
        os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Lock a device node, unless others have it locked; return whether it is locked now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _not_opened(path: Path, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return (
            f"{path} is held by what can't be seen from here, such as a mount in another mount "
            "namespace or another program; end that, or name another drive"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{path} can't be opened for writing by user {os.geteuid()}; run as root"
    return f"{path} can't be opened for writing: {error.strerror}"


def _refusals(step: Callable[[], Iterator[Refusal]]) -> Iterator[Refusal]:
    """Yield the refusals of a step; what can't be read is one, too."""
    try:
        yield from step()
    except TargetError as error:
        yield Refusal(str(error))
    except (OSError, ValueError) as error:
        yield Refusal(f"what the guard of drives needs can't be read: {explain(error)}")


def _refuse(step: Callable[[], Iterator[Refusal]]) -> None:
    for refusal in _refusals(step):
        raise TargetError(refusal.sentence)


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
