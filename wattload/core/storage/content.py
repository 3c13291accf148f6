"""What is on a whole drive: signatures, partition tables, and the content of sampled blocks.

A block is blank (all zeros or all ones), ours (it carries the stamp of a run on this drive), or
unknown. One block is drawn from each of 1,024 equal parts, always the same ones of a drive, so that
a plan and its run find the same.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from wattload.core.errors import TargetError
from wattload.core.io import BlockIdentity, DeviceIdentity
from wattload.core.storage.raw_device import Partition, partition_node
from wattload.core.sysfs import LIVE, Roots, explain

SAMPLES = 1024
BLOCK_BYTES = 4096
"""The size of a sampled block, and of the blocks that carry stamps."""

_TABLE_BYTES = {"gpt": 24 << 10, "PMBR": BLOCK_BYTES, "dos": BLOCK_BYTES}
"""The bytes of partition tables, at both ends of a disk; a GPT's with blocks of 4 KiB."""
_READERS = 8
_TIMEOUT_S = 60
_PROTECTIVE = "PMBR"
_FOREIGN_LETTERS = re.compile(r"[^A-Za-z0-9_.-]+")

IsSealed = Callable[[memoryview, BlockIdentity, int], bool]
"""Whether a block at an offset carries this stamp with the right number and sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature: its ``type`` as libblkid calls it, its UUID if it has one, and its place."""

    type: str
    uuid: str
    device: str
    offset_bytes: int

    @property
    def name(self) -> str:
        """What ``target.overwrite`` has to name."""
        return f"{self.type}:{self.uuid}" if self.uuid else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What was found on a drive: signatures, and the sampled blocks by kind.

    ``explained`` are the ranges of bytes, start and end, that the signatures stand for: a file
    system or the like is the content of its whole device, a partition table only that of its own
    blocks. ``blank`` and ``unknown`` are the offsets of such blocks.
    """

    signatures: tuple[Signature, ...]
    explained: tuple[tuple[int, int], ...]
    blank: tuple[int, ...]
    own_count: int
    unknown: tuple[int, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers of sampled blocks, by kind."""
        return {"blank": len(self.blank), "own": self.own_count, "unknown": len(self.unknown)}

    @property
    def counts_text(self) -> str:
        words = {"blank": "blank", "own": "stamped by wattload", "unknown": "unknown"}
        return ", ".join(f"{count:,} {words[kind]}" for kind, count in self.counts.items() if count)

    @property
    def has_unexplained(self) -> bool:
        """Whether an unknown block is outside of what the signatures stand for."""
        return any(
            not any(start <= offset < end for start, end in self.explained)
            for offset in self.unknown
        )


def read_content(
    identity: DeviceIdentity,
    partitions: Sequence[Partition],
    *,
    serial: str,
    nonces: frozenset[int],
    is_sealed: IsSealed,
    roots: Roots = LIVE,
) -> Content:
    """Return what is on a drive and on each of its partitions; reads some 4 MB.

    The ``serial`` decides which blocks are sampled. ``nonces`` are those of the runs that wrote to
    this drive. Raises ``TargetError`` if something can't be read.
    """
    nodes = flush(identity.path, partitions, roots)
    found = tuple(each for node in nodes for each in _signatures(node))
    samples = sorted(_read_samples(identity, serial, nonces, is_sealed))
    return Content(
        signatures=_without_protective(found),
        explained=tuple(_explained(found, identity, partitions)),
        blank=tuple(offset for offset, kind in samples if kind == "blank"),
        own_count=sum(kind == "own" for _, kind in samples),
        unknown=tuple(offset for offset, kind in samples if kind == "unknown"),
    )


def flush(path: Path, partitions: Sequence[Partition], roots: Roots = LIVE) -> list[Path]:
    """Have the kernel write what it still keeps in memory; return a drive's and partitions' nodes.

    Neither samples nor counts have what it keeps. Raises ``TargetError`` if a node can't be read.
    """
    try:
        nodes = [path, *(partition_node(each, roots) for each in partitions)]
        for node in nodes:
            with node.open("rb") as device:
                os.fsync(device)
    except OSError as error:
        raise TargetError(
            f"{path} or a partition of it can't be read ({explain(error)}); make its device node "
            "available, or delete the partition"
        ) from error
    return nodes


def _explained(
    found: Sequence[Signature], identity: DeviceIdentity, partitions: Sequence[Partition]
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a drive's bytes that its signatures stand for, start and end."""
    places = {each.name: (each.start_bytes, each.size_bytes) for each in partitions}
    for signature in found:
        start, size = places.get(signature.device, (0, identity.size_bytes))
        table_bytes = _TABLE_BYTES.get(signature.type)
        if table_bytes is None:
            yield start, start + size
        else:
            yield start, start + table_bytes
            yield start + size - table_bytes, start + size


def _signatures(node: Path) -> Iterator[Signature]:
    """Yield what libblkid recognises on a device (``wipefs``, which changes nothing with -n)."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    environment = {**os.environ, "LC_ALL": "C", "PATH": path}
    command = ["wipefs", "--no-act", "--json", str(node)]
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=_TIMEOUT_S, env=environment
        )
        listed = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
        for each in listed:
            kind, offset_bytes = _plain(each["type"]), int(each["offset"], 16)
            yield Signature(
                type=kind,
                uuid=_plain(each.get("uuid") or "") or _table_uuid(node, kind, offset_bytes),
                device=node.name,
                offset_bytes=offset_bytes,
            )
    except FileNotFoundError as error:
        raise TargetError(
            f"wipefs is not installed, so signatures on {node} can't be read; install util-linux"
        ) from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip() or "wipefs failed"
        raise TargetError(f"signatures on {node} can't be read: {reason}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError) as error:
        raise TargetError(f"signatures on {node} can't be read by wipefs: {error}") from error


def _table_uuid(node: Path, kind: str, offset_bytes: int) -> str:
    """Return a partition table's own identifier as libblkid writes it, which wipefs leaves out.

    UEFI Specification 2.10: the GUID at byte 56 of a GPT's header, and the signature at byte 440
    of an MBR, whose magic is at byte 510. Empty for anything else.
    """
    place = {"gpt": (offset_bytes + 56, 16), "dos": (offset_bytes - 510 + 440, 4)}.get(kind)
    if place is None:
        return ""
    with node.open("rb") as device:
        device.seek(place[0])
        raw = device.read(place[1])
    return str(UUID(bytes_le=raw)) if kind == "gpt" else f"{int.from_bytes(raw, 'little'):08x}"


def _plain(text: str) -> str:
    """Return a name from a drive as it may stand on a command line."""
    return _FOREIGN_LETTERS.sub("_", text)


def _without_protective(found: Sequence[Signature]) -> tuple[Signature, ...]:
    """Leave out the MBR that protects a GPT: whoever names the GPT means it, too."""
    tables = {each.device for each in found if each.type == "gpt"}
    return tuple(each for each in found if not (each.type == _PROTECTIVE and each.device in tables))


def sample_offsets(size_bytes: int, serial: str) -> list[int]:
    """Return the offsets of the blocks that are looked at: both ends, and one of each part."""
    count = size_bytes // BLOCK_BYTES
    if count <= SAMPLES:
        return [number * BLOCK_BYTES for number in range(count)]
    draw = random.Random(hashlib.sha256(serial.encode()).digest())
    edges = [count * number // SAMPLES for number in range(SAMPLES + 1)]
    drawn = {draw.randrange(start, end) for start, end in pairwise(edges)}
    return [number * BLOCK_BYTES for number in sorted(drawn | {0, count - 1})]


def _read_samples(
    identity: DeviceIdentity, serial: str, nonces: frozenset[int], is_sealed: IsSealed
) -> Iterator[tuple[int, str]]:
    offsets = sample_offsets(identity.size_bytes, serial)
    tail_bytes = identity.size_bytes % BLOCK_BYTES
    parts = [offsets[first::_READERS] for first in range(_READERS)]

    def classify(part: Sequence[int]) -> list[tuple[int, str]]:
        return [
            (offset, _kind(block, offset, nonces, is_sealed))
            for offset, block in _blocks(descriptor, part)
        ]

    try:
        with ExitStack() as held:
            descriptor = os.open(identity.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            with ThreadPoolExecutor(_READERS) as pool:
                for classified in pool.map(classify, parts):
                    yield from classified
            if tail_bytes:
                last = [identity.size_bytes - tail_bytes]
                for offset, block in _blocks(descriptor, last, tail_bytes):
                    yield offset, "blank" if _is_blank(block) else "unknown"
    except OSError as error:
        raise TargetError(f"{identity.path} can't be read: {error.strerror}") from error


def _blocks(
    descriptor: int, offsets: Sequence[int], size_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, memoryview]]:
    with mmap.mmap(-1, BLOCK_BYTES) as memory, memoryview(memory)[:size_bytes] as view:
        for offset in offsets:
            if os.preadv(descriptor, [view], offset) != size_bytes:
                raise OSError(5, f"a read at byte {offset} ended early")
            yield offset, view


def _is_blank(block: memoryview) -> bool:
    whole = bytes(block)
    return whole in (bytes(len(whole)), b"\xff" * len(whole))


def _kind(block: memoryview, offset: int, nonces: frozenset[int], is_sealed: IsSealed) -> str:
    if _is_blank(block):
        return "blank"
    nonce, word, number = struct.unpack_from("<QQQ", block)
    is_stamped = nonce in nonces and number == offset // BLOCK_BYTES
    is_own = is_stamped and is_sealed(block, BlockIdentity(nonce, word), offset)
    return "own" if is_own else "unknown"
