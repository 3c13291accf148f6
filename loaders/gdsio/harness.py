"""gdsio run on our files: its command line, its end, and its figures."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from wattload.core.errors import ConfigError, RunError
from wattload.core.files import open_folder
from wattload.core.io import DataPath, PathCounts
from wattload.core.sysfs import LIVE, Roots
from wattload.core.units import KIB, NS_PER_S
from wattload.loaders.block_reads import ReadPlan, ReadResult, ReadsWatch
from wattload.loaders.gdsio.output import Totals, read_lines
from wattload.loaders.gpu.cufile_paths import nvidia_fs_reads, nvidia_fs_version
from wattload.loaders.launch import with_this_process

DIRECT, THROUGH_CPU = 0, 2
"""gdsio's transfer types: storage to GPU by cuFile, and storage to pinned memory to GPU."""
OUTPUT, COMMAND = "gdsio.log", "command.txt"
RANDOM_READ = "2"
START_S, START_S_PER_THREAD = 120.0, 0.1
"""How long it may take besides reading; buffers of 512 threads were registered in 4 to 5 s."""
_POLL_S = 0.02


class GdsioReader:
    """One call of gdsio, with a group of options for each file."""

    def __init__(
        self, program: Path, transfer: int, plan: ReadPlan, folder: Path, roots: Roots = LIVE
    ) -> None:
        self._program, self._transfer = program, transfer
        self._plan, self._folder, self._roots = plan, folder, roots
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        plan = self._plan
        count = len(plan.files)
        groups: list[str] = []
        for number, file in enumerate(plan.files):
            threads = len(range(number, plan.in_flight, count))
            if not threads:
                continue
            groups += ["-f", str(file.path), "-d", str(gpu_number(file.gpu or "", self._roots))]
            groups += ["-n", str(file.node)] if file.node is not None else []
            groups += ["-w", str(threads), "-s", f"{file.size_bytes // KIB}K"]
        return (
            *(str(self._program), *groups, "-i", f"{plan.block_bytes // KIB}K"),
            *("-x", str(self._transfer), "-I", RANDOM_READ),
            *("-T", f"{max(1, round(plan.duration_s))}", "-k", str(plan.seed)),
        )

    def path(self) -> DataPath:
        """Return the requested path, and what of it can't be known."""
        is_direct = self._transfer == DIRECT
        return DataPath(
            initiator="cpu",
            data_path="cufile" if is_direct else "host_bounce",
            path_requested="auto" if is_direct else "host_bounce",
            engine=f"gdsio -x {self._transfer}, {self._plan.in_flight} threads",
            remarks=(
                "gdsio discards what it reads: its bytes are not checked",
                "gdsio draws its own offsets",
                "the CPU time is that of gdsio's whole process, its start included, and so is the "
                "time of its phase",
            ),
        )

    def run(self, watch: ReadsWatch) -> ReadResult:
        """Run the program; its reads are counted when it has ended, as it reports nothing before.

        Raises:
            RunError: it failed, took too long, or printed no result line.
        """
        plan, command = self._plan, self.command()
        self._folder.mkdir(parents=True, exist_ok=True)
        with open_folder(self._folder) as folder:
            folder.write(COMMAND, shlex.join(command) + "\n")
        before = nvidia_fs_reads(self._roots)
        watch.begin()
        cpu_s = self._execute(command)
        end_ns = time.monotonic_ns()
        after = nvidia_fs_reads(self._roots)
        log = self._folder / OUTPUT
        totals = Totals(read_lines(log.read_text(encoding="utf-8", errors="replace")))
        if not totals.operations:
            raise RunError(f"gdsio printed no result line{self._last_line()}; its output is {log}")
        watch.moved(totals.operations, totals.moved_bytes)
        watch.end(end_ns - round(totals.seconds * NS_PER_S), end_ns)
        driver_reads = None if before is None or after is None else after - before
        version = nvidia_fs_version(self._roots)
        planned_bytes = sum(file.size_bytes for file in plan.files)
        return ReadResult(
            operations=totals.operations,
            drive_bytes=totals.moved_bytes,
            start_ns=end_ns - round(totals.seconds * NS_PER_S),
            end_ns=end_ns,
            cpu_s=cpu_s,
            mean_latency_s=totals.mean_latency_s,
            counts=PathCounts(
                reads=totals.operations,
                read_bytes=totals.moved_bytes,
                nvidia_fs_reads=driver_reads,
            ),
            software={} if version is None else {"nvidia_fs": version},
            reported={
                **totals.as_reported(),
                "command": shlex.join(command),
                "planned_file_bytes": planned_bytes,
            },
        )

    def close(self) -> None:
        """End the program if it runs; safe to call twice."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._process.wait()

    def _execute(self, command: Sequence[str]) -> float:
        """Run a command until its end and return its CPU seconds."""
        environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # it would renumber the GPUs
        limit_s = self._plan.duration_s + START_S + START_S_PER_THREAD * self._plan.in_flight
        with open_folder(self._folder) as folder, os.fdopen(folder.create(OUTPUT), "wb") as log:
            self._process = subprocess.Popen(
                with_this_process(command),
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            status, cpu_s = _wait(self._process, time.monotonic() + limit_s)
        finally:
            self.close()
        if status is None:
            raise RunError(f"gdsio did not end in {limit_s:.0f} s{self._last_line()}")
        if status:
            raise RunError(
                f"gdsio failed with status {status}{self._last_line()}; its output is "
                f"{self._folder / OUTPUT}"
            )
        return cpu_s

    def _last_line(self) -> str:
        text = (self._folder / OUTPUT).read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {lines[-1]}" if lines else ": it printed nothing"


def _wait(process: subprocess.Popen[bytes], until_s: float) -> tuple[int | None, float]:
    """Return the exit status, ``None`` if it still runs at ``until_s``, and CPU seconds."""
    while time.monotonic() < until_s:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime
        time.sleep(_POLL_S)
    return None, 0.0


def gpu_number(address: str, roots: Roots = LIVE) -> int:
    """Return nvidia-smi's number of a GPU: its place in the order of PCI addresses.

    Raises:
        ConfigError: NVIDIA's driver does not list it.
    """
    folder = roots.proc / "driver/nvidia/gpus"
    listed = sorted(entry.name.lower() for entry in folder.iterdir()) if folder.is_dir() else []
    if address.lower() not in listed:
        known = ", ".join(listed) or "none"
        raise ConfigError(
            f"GPU {address} is not in {folder}, which lists {known}; name one of these, or load "
            "NVIDIA's driver"
        )
    return listed.index(address.lower())
