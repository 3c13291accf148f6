"""Drives of a test: real loop devices, a made-up NVMe namespace, and programs that use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.core.storage.loops import (
    SIZE_BYTES,
    digest,
    must,
)
from wattload.core.errors import PowerError, TargetError
from wattload.core.io import BlockIdentity
from wattload.core.storage.guard import Guard, NvmeFacts, Permission
from wattload.core.storage.raw_writes import Begin, RawWriteLog
from wattload.core.storage.targets import Target, TargetKind, resolve_targets
from wattload.core.sysfs import Roots
from wattload.loaders.stamps import seal
from wattload.run.raw_drive import is_sealed

HEALTHY = NvmeFacts(
    critical_warning=0,
    spare_percent=100,
    spare_threshold_percent=10,
    percentage_used=3,
    is_shareable=False,
    is_reserved=False,
    controller_count=1,
    used_bytes=0,
    written_bytes=0,
)


EVERY_NAME = ("unknown", "unsampled", "unseen", "worn")


def refuse_nvme(controller: str, namespace: int, node: Path) -> NvmeFacts:
    raise PowerError(f"{controller} does not tell")


@dataclass
class Bench:
    """A loop device, its image, and a log of raw writes."""

    device: Path
    image: Path
    log: RawWriteLog

    @property
    def target(self) -> Target:
        (target,) = resolve_targets([self.device], host="here", kind=TargetKind.BLOCK)
        return target

    def guard(self, *overwrite: str, serial: str | None = None, block_bytes: int = 16384) -> Guard:
        permission = Permission(
            serials=(str(self.image) if serial is None else serial,),
            overwrite=frozenset(overwrite),
            shared=False,
            block_bytes=block_bytes,
        )
        return Guard(self.target, permission, self.log, read_nvme=refuse_nvme, is_sealed=is_sealed)

    def refused(self, *overwrite: str, serial: str | None = None) -> str:
        """Return why the drive is refused; it is proved that not a byte has changed."""
        before = digest(self.device)
        with pytest.raises(TargetError) as refused:
            self.guard(*overwrite, serial=serial).claim()
        assert digest(self.device) == before
        return str(refused.value)

    def accepted(self, *overwrite: str) -> Guard:
        guard = self.guard(*overwrite)
        guard.claim().close()
        return guard

    def write(self, offset_bytes: int, content: bytes) -> None:
        with self.device.open("r+b") as device:
            device.seek(offset_bytes)
            device.write(content)
            device.flush()
            os.fsync(device.fileno())

    def completed(self, *overwrite: str, nonce: int) -> None:
        """Make a run that writes the whole drive."""
        run_id = f"run-{nonce}"
        guard = self.accepted(*overwrite)
        self.began(guard, run_id, nonce)
        self.stamp(nonce)
        self.log.end(run_id, "complete", own_bytes=SIZE_BYTES, left=guard.read_counts())

    def allocate(self) -> None:
        """Give the image all its blocks, so that it could hold data anywhere."""
        with self.image.open("r+b") as file:
            file.write(bytes(SIZE_BYTES))
            os.fsync(file.fileno())
        must("blockdev", "--flushbufs", str(self.device))

    def stamp(self, nonce: int, size_bytes: int = SIZE_BYTES) -> None:
        content = np.random.default_rng(1).integers(0, 256, size_bytes, np.uint8)
        seal(content, BlockIdentity(nonce, 7))
        self.write(0, content.tobytes())

    def began(self, guard: Guard, run_id: str, nonce: int, covered_bytes: int = SIZE_BYTES) -> None:
        """Write the row of a run that the guard allowed."""
        if guard.name is None:
            guard.inspect()
        assert guard.name is not None
        assert guard.counts is not None
        self.log.begin(
            Begin(
                run_id=run_id,
                command=("wattload", "run"),
                path=str(self.device),
                serial=guard.name.serial,
                size_bytes=SIZE_BYTES,
                disk_sequence=guard.identity.disk_sequence,
                findings=guard.findings,
                overwrite=guard.overwritten,
                nonce=nonce,
                planned_bytes=SIZE_BYTES,
                covered_bytes=covered_bytes,
                devices=guard.counts.written,
            )
        )


@contextmanager
def mounted_elsewhere(folder: Path, device: str) -> Iterator[int]:
    """Mount a device in a mount namespace of a process, below ``folder``; yield its number."""
    at = folder / "elsewhere"
    at.mkdir()
    script = f"mount {device} {at} && echo $$ && exec cat"
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as held:
        assert held.stdin is not None
        assert held.stdout is not None
        line = held.stdout.readline()
        if not line:
            pytest.skip("no mount namespace here")
        try:
            yield int(line)
        finally:
            held.stdin.close()


@contextmanager
def holding(path: Path, script: str) -> Iterator[int]:
    """Start a process that is no child of this one and has a device open; yield its number."""
    code = "import fcntl, os, sys, time\n{}\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    words = ["setsid", "--fork", sys.executable, "-c", code.format(script), str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        process = int(started.stdout.readline())
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@dataclass
class FakeNvme:
    """A real loop device that a made-up sysfs shows as the NVMe namespace ``nvme0n1``."""

    bench: Bench
    roots: Roots

    @property
    def disk(self) -> Path:
        return self.roots.sys / "devices/nvme0/nvme0n1"

    def refusals(
        self, facts: NvmeFacts | None = HEALTHY, *, serial: str = "S1", **permitted: Any
    ) -> list[str]:
        found = self.guard(facts, serial=serial, **permitted).inspect()
        return [each.sentence for each in found.refusals]

    def guard(
        self, facts: NvmeFacts | None = HEALTHY, *, serial: str = "S1", **permitted: Any
    ) -> Guard:
        def read(controller: str, namespace: int, node: Path) -> NvmeFacts:
            assert (controller, namespace, node) == ("nvme0", 1, self.bench.device)
            return refuse_nvme(controller, namespace, node) if facts is None else facts

        (target,) = resolve_targets(
            [self.bench.device], host="here", roots=self.roots, kind=TargetKind.BLOCK
        )
        permission = {"serials": (serial,), "overwrite": frozenset(), "shared": False, **permitted}
        return Guard(
            target,
            Permission(**permission),
            self.bench.log,
            read_nvme=read,
            is_sealed=is_sealed,
            roots=self.roots,
        )

    def completed(self, facts: NvmeFacts = HEALTHY, **permitted: Any) -> None:
        """Make a run that writes the whole drive; the counter of the kernel is the real one."""
        guard = self.guard(facts, **permitted)
        guard.inspect()
        self.bench.began(guard, "run-42", nonce=42)
        self.bench.stamp(nonce=42)
        left = guard.read_counts()
        self.bench.log.end("run-42", "complete", own_bytes=SIZE_BYTES, left=left)


def fill(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"{text}\n")
