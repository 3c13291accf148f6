"""loader=gdsio: NVIDIA's own program, which owns the loop of reads into GPU memory.

The user installs it: it comes with CUDA's package ``gds-tools`` and with no wheel. It prints one
line per job, in KiB, GiB/s and microseconds.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import ConfigError, MissingExtraError, RunError
from wattload.core.files import open_folder
from wattload.core.io import DataPath, PathCounts
from wattload.core.launch import with_this_process
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE, Roots
from wattload.core.units import GIB, KIB, NS_PER_S
from wattload.core.workload import Requirement
from wattload.loaders.block_reads import Ability, BlockReader, ReadPlan, ReadResult, ReadsWatch
from wattload.loaders.gpu.cufile_paths import nvidia_fs_reads, nvidia_fs_version

_LINE = re.compile(
    r"^(?:IoType: )?(?P<io>\S+) XferType: (?P<transfer>\S+) Threads: (?P<threads>\d+)"
    r"(?: IoDepth: \d+)?\s+DataSetSize: (?P<done>\d+)/(?P<planned>\d+)\(KiB\) "
    r"IOSize: [\d:]+\(KiB\) Throughput: (?P<rate>[\d.]+) GiB/sec, "
    r"Avg_Latency: (?P<latency>[\d.]+) usecs ops: (?P<operations>\d+) "
    r"total_time (?P<seconds>[\d.]+) secs",
    re.MULTILINE,
)
"""Of the GDS configuration guide's examples, and of public logs of several versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job's figures: what it moved, its mean latency, and the seconds that it took.

    ``planned_bytes`` is the size of the data set; a job limited by time moves more or less than
    that. ``transfer`` is the name of the transfer type, which does not prove the path.
    """

    kind: str
    transfer: str
    threads: int
    moved_bytes: int
    planned_bytes: int
    rate_bytes_per_s: float
    mean_latency_s: float
    operations: int
    seconds: float


def read_lines(text: str) -> tuple[JobLine, ...]:
    """Return the result lines of jobs that read, in their order; other lines are skipped."""
    lines = (_job(found) for found in _LINE.finditer(text))
    return tuple(line for line in lines if "READ" in line.kind)


def _job(found: re.Match[str]) -> JobLine:
    return JobLine(
        kind=found["io"],
        transfer=found["transfer"],
        threads=int(found["threads"]),
        moved_bytes=int(found["done"]) * KIB,
        planned_bytes=int(found["planned"]) * KIB,
        rate_bytes_per_s=float(found["rate"]) * GIB,
        mean_latency_s=float(found["latency"]) / 1e6,
        operations=int(found["operations"]),
        seconds=float(found["seconds"]),
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """The jobs of one command together; gdsio prints no percentile."""

    jobs: Sequence[JobLine]

    @property
    def operations(self) -> int:
        return sum(job.operations for job in self.jobs)

    @property
    def moved_bytes(self) -> int:
        """The bytes of all jobs."""
        return sum(job.moved_bytes for job in self.jobs)

    @property
    def seconds(self) -> float:
        """The time of the longest job: they run at the same time."""
        return max(job.seconds for job in self.jobs)

    @property
    def mean_latency_s(self) -> float:
        summed = sum(job.mean_latency_s * job.operations for job in self.jobs)
        return summed / self.operations


DIRECT, THROUGH_CPU = 0, 2
"""gdsio's transfer types: storage to GPU by cuFile, and storage to pinned memory to GPU."""
OUTPUT, COMMAND = "gdsio.log", "command.txt"
RANDOM_READ = "2"
START_S, START_S_PER_THREAD = 120.0, 0.1
"""How long it may take besides reading; buffers of 512 threads were registered in 4 to 5 s."""
END_TIMEOUT_S = 10.0
"""Longer than its launcher waits for processes that it has killed."""
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
                "jobs": [asdict(job) for job in totals.jobs],
                "command": shlex.join(command),
                "planned_file_bytes": planned_bytes,
            },
        )

    def close(self) -> None:
        """End the program, and what it has started, if it runs; safe to call twice."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
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


_TOOLS = "gds/tools/gdsio"
_CUDA = Path("/usr/local/cuda")


@dataclass(slots=True, kw_only=True)
class Config:
    """gdsio, with one thread per read in flight, on the same files.

    Its reads are at its own random offsets, its bytes are not checked, and it reports a mean
    latency only. Its transfer type does not prove a path: compatibility mode prints the same.
    """

    name: ClassVar[str] = "gdsio"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.gdsio.Config"
    binary: str | None = setting(
        None,
        "Path of the program.",
        unset="$CUDA_HOME/gds/tools/gdsio, /usr/local/cuda/gds/tools/gdsio, or that in PATH",
    )
    transfer: int = setting(
        DIRECT,
        "gdsio's -x: 0 by cuFile, 2 by pinned host memory and a copy.",
        least=DIRECT,
        most=THROUGH_CPU,
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")
        if self.transfer not in (DIRECT, THROUGH_CPU):
            raise ConfigError(f"loader.transfer must be 0 or 2, got {self.transfer}")

    @property
    def abilities(self) -> Ability:
        return Ability.FILES | Ability.GPU | Ability.THREADS

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise for a missing program, and for a plan that its options can't express."""
        self.program()
        if plan.duration_s != round(plan.duration_s):
            raise ConfigError(
                f"gdsio takes whole seconds, got workload.duration_s={plan.duration_s:g}"
            )
        for file in plan.files:
            if file.size_bytes % KIB:
                raise ConfigError(
                    f"gdsio takes sizes in KiB, and {file.path} is of {file.size_bytes} bytes; "
                    "set workload.file_bytes to a multiple of 1024"
                )
        for gpu in plan.gpus:
            gpu_number(gpu)

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the program, ready to run."""
        return GdsioReader(self.program(), self.transfer, plan, folder)

    def program(self, environment: Mapping[str, str] = os.environ, installed: Path = _CUDA) -> Path:
        """Return the path of gdsio.

        Raises:
            MissingExtraError: it is in none of the usual places.
            ConfigError: the setting names something that can't be started.
        """
        if self.binary is not None:
            if not os.access(self.binary, os.X_OK):
                raise ConfigError(
                    f"loader.binary={self.binary} is not a program that can be started; name "
                    "gdsio, such as /usr/local/cuda/gds/tools/gdsio"
                )
            return Path(self.binary).absolute()
        homes = [Path(environment["CUDA_HOME"])] if environment.get("CUDA_HOME") else []
        places = [home / _TOOLS for home in (*homes, installed)]
        found = next((place for place in places if os.access(place, os.X_OK)), None)
        in_path = shutil.which("gdsio", path=environment.get("PATH"))
        if found is None and in_path is None:
            raise MissingExtraError(
                f"loader=gdsio needs gdsio, which is neither in "
                f"{', '.join(str(place.parent) for place in places)} nor in PATH; install CUDA's "
                "package gds-tools, set loader.binary, or use loader=bounce and loader=cufile"
            )
        return found or Path(in_path or "")
