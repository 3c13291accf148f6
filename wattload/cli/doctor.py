"""``wattload doctor``: what can be measured here, and how to fix the rest.

Each finding is about one capability: of storage, the I/O engine, power or installed software.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattload.cli.terminal import NARROWEST
from wattload.core.errors import (
    ConfigError,
    MissingExtraError,
    PowerError,
    PowerPermissionError,
    RunError,
    TargetError,
)
from wattload.core.host.block_trace import TraceError, find_tracefs
from wattload.core.host.counters import read_block_stat
from wattload.core.host.gpus import list_gpus
from wattload.core.host.memory_limit import LimitProbe
from wattload.core.host.memory_limit import probe as probe_memory_limit
from wattload.core.host.memory_traffic import NEEDS_PERMISSION, FoundMeter, Kind, find_meter
from wattload.core.host_paths import mounted
from wattload.core.installation import install_command
from wattload.core.storage.controllers import list_controllers
from wattload.core.storage.targets import Target, check_writable, counting_devices, resolve_targets
from wattload.core.sysfs import LIVE, Roots, read_text
from wattload.core.units import format_bytes
from wattload.core.workload import command_for
from wattload.loaders.engine.library import IO_URING, PREAD, backend_unavailable
from wattload.loaders.gpu.paths_here import Lack, PathName, paths_here
from wattload.loaders.gpu.probe import Probe, probe
from wattload.loaders.gpu_queue.kernels import BINDINGS, NVRTC
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal
from wattload.power.control.power_settings import left_text, sentence_of
from wattload.power.sources.hwmon import list_channels
from wattload.power.sources.ipmi import DEVICE, IpmiDevice, IpmiSource, OpenLink
from wattload.power.sources.rapl import find_zones
from wattload.power.sources.redfish import PASSWORD_VARIABLE, USER_VARIABLE
from wattload.run.config import TARGET_VARIABLE

if TYPE_CHECKING:
    from rich.console import Console

    from wattload.core.workload import Requirement

_COLOURS = {"yes": "green", "partly": "yellow", "no": "red"}

_TIMEOUT_S = 30.0

_ENGINE_ADDS = "loader=direct at the speed of the drive, at little CPU"

_CUFILE_ANY = "loader=cufile: GPUDirect Storage, or cuFile's path through host memory"

_CUFILE_ADDS: dict[PathName, str] = {
    "compat": "loader=cufile through host memory: not GPUDirect Storage",
    "nvidia-fs": "GPUDirect Storage by NVIDIA's kernel module: loader=cufile loader.mode=direct",
    "PCI P2PDMA": "GPUDirect Storage by the kernel alone: loader=cufile loader.mode=direct",
}
_DIRECT_ADDS = "GPUDirect Storage: loader=cufile loader.mode=direct"
_QUEUE_ADDS = "small random reads and rows of graphs that a GPU asks for: loader=gpu_queue"
_VFIO_ADDS = "nothing here: drives of user-space drivers, which wattload does not have"

_NVME_CLASS = "0x0108"
"""Of PCI functions: non-volatile memory controllers."""

_METERS: dict[Kind, str] = {
    "uncore": "counters of the memory controllers (uncore)",
    "resctrl": "resctrl counts what the L3 caches and memory exchange",
}
_PERF_STEP = "sudo sysctl kernel.perf_event_paranoid=0"

_GPU_ADDS = "the GPUs' power and energy (power=nvml), not the drive's"

_HWMON_ADDS = (
    "the drive's power if power.hwmon.rails names its rails, else the node's (power=hwmon)"
)

_RAPL_ADDS = "the processors' energy (power=rapl), not the drive's"

_IPMI_ADDS = "the whole node's power (power=ipmi), not the drive's"

_REDFISH_ADDS = "the power of the node, and of drives that the BMC reports (power=redfish)"

_PERIOD_S = 1.0

_CHANNELS_SHOWN = 8

FindProgram = Callable[[str], str | None]
"""Returns the path of a program, or ``None``: ``shutil.which``."""

_MPI_QUESTION = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0])"

_ENGINES = {"docker": "{{.Driver}}", "podman": "{{.Store.GraphDriverName}}"}
"""Container engines, and the format that prints the storage driver; it needs a running engine."""

_SECCOMP_FILTER = 2
"""``proc(5)``: the value of Seccomp in a process under a filter, as in a container."""

_WITH_PROFILE = "docker compose -f docker/compose.yaml run --rm wattload doctor"
"""The file names a seccomp profile that allows io_uring, which Docker's own forbids."""

_WITH_POWER = (
    "NVME={node} docker compose -f docker/compose.yaml -f docker/compose.power.yaml "
    "run --rm wattload run workload=unet3d power=nvme"
)

_RUN = Path("/run")
_UNITS = Path("/etc/systemd/system")
_RESTORE_UNIT, _SAMPLER_UNIT = "wattload-power-restore.service", "wattload-sampler.service"
"""Both restore when they start; see docs/power.md."""

_CAP_IPC_LOCK, _CAP_SYS_ADMIN = 14, 21
"""Bits of ``linux/capability.h``. With the first, the limit on locked memory does not count."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path(os.environ.get(TARGET_VARIABLE, ".")),
        help=f"where to try O_DIRECT (default: {TARGET_VARIABLE}, else the current directory)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings and return 0, whatever they are.

    Raises:
        TargetError: the directory is not one.
    """
    if not os.path.isdir(arguments.directory):  # noqa: PTH112 - never raises
        raise TargetError(
            f"{arguments.directory} is not a directory; name the one that runs will use, such as "
            "/mnt/nvme"
        )
    found = [
        *storage_findings(arguments.directory),
        *io_findings(),
        *gpu_path_findings(),
        *gpu_queue_findings(),
        memory_traffic_finding(),
        memory_limit_finding(),
        block_trace_finding(),
        *power_findings(),
        *change_findings(),
        *software_findings(),
    ]
    findings = [replace(finding, mend=runnable(finding.mend)) for finding in found]
    if arguments.json:
        document = [finding.document() for finding in findings]
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    from rich.console import Console

    show(findings, Console(highlight=False))
    return 0


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print each finding: verdict, observation, purpose, fix; wrapped on a terminal only."""
    from rich.text import Text

    width = max(len(finding.verdict) for finding in findings)
    indent = width + 2
    for finding in findings:
        start = Text(f"{finding.verdict:<{width}}  ", style=_COLOURS[finding.verdict])
        texts = [Text.assemble((finding.name, "bold"), f": {finding.says}")]
        if finding.verdict != "yes":
            purpose = "needed for" if finding.verdict == "no" else "limits"
            texts.append(Text(f"{purpose} {finding.adds}", style="dim"))
        if not console.is_terminal:
            rows = texts
        else:
            columns = max(NARROWEST, console.width - indent)
            rows = [row for text in texts for row in text.wrap(console, columns)]
        console.print(Text.assemble(start, rows[0]), soft_wrap=True)
        for row in rows[1:]:
            console.print(Text.assemble(" " * indent, row), soft_wrap=True)
        if finding.mend:
            # A command is on one line, however narrow the terminal: it must survive copying.
            console.print(f"{'':{indent}}$ {finding.mend}", soft_wrap=True, markup=False)


class Verdict(StrEnum):
    """Whether a capability is available."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One capability of this host.

    ``says`` is the observation and ``adds`` what the capability is needed for. ``mend`` is a
    command that makes it available; empty if no command can.
    """

    name: str
    verdict: Verdict
    says: str
    adds: str
    mend: str = ""

    def document(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


def first_line_of(command: Sequence[str]) -> tuple[bool, str]:
    """Run a program; returns whether it succeeded and the first line that it printed."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return done.returncode == 0, lines[0] if lines else "it printed nothing"


def runnable(
    mend: str, *, is_root: bool | None = None, find: FindProgram | None = None, run: Path = _RUN
) -> str:
    """Return a command as it works here: root needs no sudo, and sudo does not know a venv.

    It is empty where systemd, which it starts a service with, is not in charge.
    """
    if "systemctl" in mend and not (run / "systemd/system").is_dir():
        return ""
    if os.geteuid() == 0 if is_root is None else is_root:
        return mend.removeprefix("sudo ").removeprefix("-E ")
    if mend.startswith("sudo -E wattload "):
        own = (find or find_program)("wattload") or "wattload"
        return mend.replace("wattload", shlex.quote(own), 1)
    return mend


def io_findings() -> Iterator[Finding]:
    """Yield whether the engine is built, can use io_uring, and can pin its buffers."""
    try:
        reason = backend_unavailable(IO_URING)
    except MissingExtraError as error:
        yield Finding(
            name="I/O engine",
            verdict=Verdict.NO,
            says=str(error),
            adds=_ENGINE_ADDS,
            mend="make setup",
        )
        return
    if reason is not None:
        yield Finding(
            name="I/O engine",
            verdict=Verdict.PARTLY,
            says=f"{reason}; loader.engine=auto uses {PREAD}: blocking threads",
            adds=_ENGINE_ADDS,
            mend=_allow_io_uring(LIVE),
        )
        return
    yield Finding(
        name="I/O engine", verdict=Verdict.YES, says="io_uring is available", adds=_ENGINE_ADDS
    )
    yield _locked_memory()


def _allow_io_uring(roots: Roots) -> str:
    """Return the command that allows io_uring where the sysctl or a container forbids it."""
    if _text_or_empty(roots.proc / "sys/kernel/io_uring_disabled") in ("1", "2"):
        return "sudo sysctl kernel.io_uring_disabled=0"
    filtered = f"Seccomp:\t{_SECCOMP_FILTER}" in read_text(roots.proc / "self/status").splitlines()
    return _WITH_PROFILE if filtered and not mounted() else ""


def _locked_memory() -> Finding:
    """Return how much memory can be pinned; registered buffers save a lookup per operation."""
    adds = "buffers that the kernel looks up once instead of for each operation"
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit_bytes == resource.RLIM_INFINITY or _has_capability(_CAP_IPC_LOCK, LIVE):
        return Finding(name="locked memory", verdict=Verdict.YES, says="unlimited", adds=adds)
    return Finding(
        name="locked memory",
        verdict=Verdict.PARTLY,
        says=f"{format_bytes(limit_bytes)} can be pinned; larger buffers are not registered",
        adds=adds,
        mend="" if mounted() else "ulimit -l unlimited",
    )


def gpu_path_findings(ask: Callable[[], Probe] = probe, roots: Roots = LIVE) -> Iterator[Finding]:
    """Yield a finding for each of cuFile's paths, and one for each thing that a path lacks.

    What several paths lack is one finding. Without a GPU, or an answer from CUDA and cuFile, there
    is one in all, with the reason.
    """
    if not list_gpus(roots):
        yield Finding(
            name="GPU reads", verdict=Verdict.NO, says="no NVIDIA GPU", adds="workload=gpu_read"
        )
        return
    cufile = partial(Finding, name="cuFile", adds=_CUFILE_ANY, verdict=Verdict.NO)
    try:
        found = ask()
    except (ConfigError, MissingExtraError, RunError) as error:
        yield cufile(says=str(error))
        return
    if found.cufile_refusal is not None:
        yield cufile(says=str(found.cufile_refusal))
        return
    paths = paths_here(found.cufile, roots)
    for path in paths:
        finding = partial(Finding, adds=_CUFILE_ADDS[path.name])
        name = f"cuFile by {path.name}"
        if not path.lacks:
            says = f"libcufile {found.cufile or 'of an unknown version'} has what it needs"
            yield finding(name=name, verdict=Verdict.YES, says=says)
        for lack in path.lacks:
            names = [each.name for each in paths if lack in each.lacks]
            if len(names) == 1:
                yield _lacking(finding, name, Verdict.NO, lack)
            elif names[0] == path.name:
                shared = partial(Finding, adds=_DIRECT_ADDS)
                yield _lacking(shared, f"cuFile by {' or '.join(names)}", Verdict.NO, lack)
        yield from (_lacking(finding, name, Verdict.PARTLY, lack) for lack in path.notes)


def _lacking(finding: Callable[..., Finding], name: str, verdict: Verdict, lack: Lack) -> Finding:
    return finding(name=name, verdict=verdict, says=lack.what, mend=lack.step)


def gpu_queue_findings(roots: Roots = LIVE) -> Iterator[Finding]:
    """Yield whether a GPU can ask for reads, and which drives a user-space driver may hold."""
    queue = partial(Finding, name="GPU queue", adds=_QUEUE_ADDS)
    missing = [each for each in (BINDINGS, NVRTC) if not each.is_installed]
    if not list_gpus(roots):
        says = "no NVIDIA GPU; loader.requester=cpu runs the same queue from CPU threads"
        yield queue(verdict=Verdict.PARTLY, says=says)
    elif missing:
        says = f"{' and '.join(each.software for each in missing)} not installed"
        yield queue(verdict=Verdict.NO, says=says, mend=install_command(["cuda"]))
    else:
        says = "the GPU pulls blocks that pollers have read into host memory"
        yield queue(verdict=Verdict.YES, says=says)
    held = [
        path.name
        for path in (roots.sys / "bus/pci/drivers/vfio-pci").glob("*:*")
        if read_text(path / "class").startswith(_NVME_CLASS)
    ]
    if held:
        says = f"vfio-pci holds {', '.join(sorted(held))}: Linux reads no file from these drives"
        yield Finding(name="VFIO", verdict=Verdict.PARTLY, says=says, adds=_VFIO_ADDS)


def memory_traffic_finding(found: FoundMeter | None = None) -> Finding:
    """Return which meter counts the memory traffic of a load, and what refuses a better one."""
    found = found or find_meter()
    finding = partial(
        Finding, name="memory traffic", adds="the memory traffic of all programs under load=busy"
    )
    mend = "" if mounted() or NEEDS_PERMISSION not in found.remarks else _PERF_STEP
    remarks = "; ".join(found.remarks)
    if found.meter is None:
        reason = remarks or "no counters of the memory controllers or of resctrl"
        says = f"{reason}; a load counts its own copies"
        return finding(verdict=Verdict.PARTLY, says=says, mend=mend)
    found.meter.close()
    says = "; ".join(filter(None, (_METERS[found.meter.kind], remarks)))
    return finding(verdict=Verdict.YES, says=says, mend=mend)


def memory_limit_finding(found: LimitProbe | None = None) -> Finding:
    found = found or probe_memory_limit()
    finding = partial(
        Finding, name="memory limit", adds="workload=gnn with the memory of a larger graph's share"
    )
    if found.place is None:
        says = f"{found.reason}; the page cache is dropped before each step instead"
        return finding(verdict=Verdict.PARTLY, says=says)
    kind = {"cgroup1": "version 1", "cgroup2": "version 2"}[found.place.method]
    says = f"a control group ({kind}) in {found.place.parent}"
    return finding(verdict=Verdict.YES, says=says)


def block_trace_finding(roots: Roots = LIVE) -> Finding:
    """Return whether the requests of block devices can be traced."""
    finding = partial(
        Finding, name="block trace", adds="request sizes, depth and latency at the drive in gnn"
    )
    try:
        folder = find_tracefs(roots)
    except TraceError as error:
        says = f"{error}; the devices' counters give means alone"
        mend = "sudo mount -t tracefs tracefs /sys/kernel/tracing" if error.is_unmounted else ""
        return finding(verdict=Verdict.PARTLY, says=says, mend=mend)
    return finding(verdict=Verdict.YES, says=f"by tracefs in {folder}")


def power_findings(
    roots: Roots = LIVE,
    load: Callable[[str], Any] = import_module,
    *,
    ipmi: Path = DEVICE,
    open_link: OpenLink = IpmiDevice,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Finding]:
    """Yield the power meters of this host other than the drives themselves."""
    yield _nvml(load)
    yield _hwmon(roots)
    yield _rapl(roots)
    yield _ipmi(ipmi, open_link, roots)
    yield _redfish(environment)


def _nvml(load: Callable[[str], Any]) -> Finding:
    finding = partial(Finding, name="NVML", adds=_GPU_ADDS)
    try:
        pynvml = load("pynvml")
    except ImportError:
        return finding(
            verdict=Verdict.NO,
            says="the module pynvml is not installed",
            mend=install_command(["gpu"]),
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return finding(
            verdict=Verdict.NO,
            says=f"no NVIDIA driver answers: {error}",
        )
    try:
        count = pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()
    return finding(
        verdict=Verdict.YES if count else Verdict.NO,
        says=f"{count} GPU{'' if count == 1 else 's'}",
    )


def _hwmon(roots: Roots) -> Finding:
    finding = partial(Finding, name="hwmon", adds=_HWMON_ADDS)
    channels = list_channels(roots)
    if not channels:
        return finding(
            verdict=Verdict.NO,
            says="the kernel has no sensor of power or energy",
            mend="sudo modprobe acpi_power_meter" if _has_acpi_power_meter(roots) else "",
        )
    shown = ", ".join(channel.key for channel in channels[:_CHANNELS_SHOWN])
    more = f" and {len(channels) - _CHANNELS_SHOWN} more" * (len(channels) > _CHANNELS_SHOWN)
    return finding(verdict=Verdict.YES, says=f"{shown}{more}")


def _has_acpi_power_meter(roots: Roots) -> bool:
    """Return whether the firmware describes a power meter (ACPI000D), whose driver is missing."""
    return any((roots.sys / "bus/acpi/devices").glob("ACPI000D:*"))


def _rapl(roots: Roots) -> Finding:
    finding = partial(Finding, name="RAPL", adds=_RAPL_ADDS)
    try:
        sources = find_zones(roots, period_s=_PERIOD_S)
    except PowerError:
        return finding(
            verdict=Verdict.NO,
            says="the kernel has no RAPL zone; most virtual machines have none",
            mend="" if _is_virtual(roots) else "sudo modprobe intel_rapl_msr",
        )
    for source in sources:
        try:
            source.open()
        except PowerPermissionError:
            return finding(
                verdict=Verdict.NO,
                says=f"only root can read the counters, and this is user {os.geteuid()}",
                mend=_as_root(),
            )
        except PowerError as error:
            return finding(verdict=Verdict.NO, says=str(error))
        finally:
            source.close()
    names = ", ".join(source.facts().device for source in sources)
    return finding(verdict=Verdict.YES, says=names)


def _as_root() -> str:
    return f"env UID=0 GID=0 {_WITH_PROFILE}" if mounted() else "sudo -E wattload doctor"


def _is_virtual(roots: Roots) -> bool:
    """Return whether the processor reports a hypervisor, in ``/proc/cpuinfo``."""
    return " hypervisor" in _text_or_empty(roots.proc / "cpuinfo")


def _text_or_empty(path: Path) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""


def _ipmi(path: Path, open_link: OpenLink, roots: Roots) -> Finding:
    """Read the BMC once, which takes milliseconds."""
    finding = partial(Finding, name="IPMI", adds=_IPMI_ADDS)
    if not path.exists():
        return finding(
            verdict=Verdict.NO,
            says=f"{path} does not exist: no BMC, or its driver is not loaded",
            mend="" if _is_virtual(roots) else "sudo modprobe -a ipmi_si ipmi_devintf",
        )
    source = IpmiSource(period_s=_PERIOD_S, open_link=open_link)
    try:
        source.open()
        (sample,) = source.read()
    except PowerPermissionError as error:
        return finding(verdict=Verdict.NO, says=str(error), mend=_as_root())
    except PowerError as error:
        return finding(verdict=Verdict.NO, says=str(error))
    finally:
        source.close()
    watts = "busy at the moment" if sample.value is None else f"now {sample.value:g} W"
    return finding(verdict=Verdict.YES, says=f"{path} reports the node's power by DCMI, {watts}")


def _redfish(environment: Mapping[str, str]) -> Finding:
    """Return whether there are credentials; a run's settings name the BMC."""
    finding = partial(Finding, name="Redfish", adds=_REDFISH_ADDS)
    lacking = [name for name in (USER_VARIABLE, PASSWORD_VARIABLE) if name not in environment]
    if lacking:
        return finding(
            verdict=Verdict.NO,
            says=f"{' and '.join(lacking)} not set: no BMC can be read over HTTPS",
            mend=f"read -rsp 'password: ' {PASSWORD_VARIABLE} && "
            f"export {PASSWORD_VARIABLE} {USER_VARIABLE}=monitor",
        )
    return finding(
        verdict=Verdict.YES,
        says="user and password are set; name the BMC with power.redfish.url=https://bmc.example",
    )


def change_findings(host: PowerHost | None = None, units: Path = _UNITS) -> Iterator[Finding]:
    """Yield the power settings that a killed run left changed, and whether a restart undoes them.

    The latter only if this host has an NVMe controller.

    The changes of a run that goes on, and those of ``power set``, are not left behind.
    """
    here = host or PowerHost()
    found = partial(
        Finding,
        name="power settings restored",
        adds="runs in a drive's own power state after one was killed together with its sampler",
    )
    try:
        left = list(_left_changes(here.journal))
    except PowerError as error:
        yield found(verdict=Verdict.NO, says=str(error))
    else:
        if left:
            says, mend = "; ".join(left), "wattload power restore"
            yield found(verdict=Verdict.PARTLY, says=says, mend=mend)
        else:
            says = f"no change is open in the journal {here.journal.folder}"
            yield found(verdict=Verdict.YES, says=says)
    if here.list_names() and not mounted():
        yield _restore_at_boot(units)


def _left_changes(journal: ChangeJournal) -> Iterator[str]:
    for key in journal.changes("run"):
        try:
            entry = journal.read(key, "run")
        except PowerError as error:
            yield str(error)
            continue
        try:
            with journal.lock(key.serial, needed=False):
                pass
        except PowerError:  # its run goes on
            continue
        if entry is not None:
            state = "not undone yet" if entry.left is None else left_text(entry, entry.left)
            yield sentence_of(entry, state)


def _restore_at_boot(units: Path) -> Finding:
    """Return whether a systemd unit undoes at boot what the journal holds."""
    finding = partial(
        Finding,
        name="power restore at boot",
        adds="drives that a killed run left in another power state: a restart restores them",
    )
    for unit in (_RESTORE_UNIT, _SAMPLER_UNIT):
        if any((wants / unit).is_symlink() for wants in units.glob("*.wants")):
            return finding(verdict=Verdict.YES, says=f"{unit} is enabled")
    if (units / _RESTORE_UNIT).exists():
        return finding(
            verdict=Verdict.NO,
            says=f"{_RESTORE_UNIT} is installed but not enabled",
            mend=f"sudo systemctl enable {_RESTORE_UNIT}",
        )
    return finding(
        verdict=Verdict.NO,
        says=f"{_RESTORE_UNIT} is not installed; see docs/power.md, Power states",
    )


def find_program(name: str) -> str | None:
    """Return the path of a program; look next to this Python first, as a venv may be inactive."""
    own = Path(sys.executable).parent / name
    return str(own) if own.exists() else shutil.which(name)


def software_findings(find: FindProgram = find_program) -> Iterator[Finding]:
    yield from _loader_extras()
    yield _mpi(find)
    if not mounted():
        yield _fio(find)
        yield _engine(find)


def _loader_extras() -> Iterator[Finding]:
    """Yield a finding for each extra of wattload that some loader requires."""
    from wattload.core.workload import LoaderConfig
    from wattload.run.compose import loaders_with

    requirements: dict[str, dict[Requirement, None]] = {}
    users: dict[str, dict[str, None]] = {}
    for config in loaders_with(LoaderConfig):
        for requirement in config.requires:
            requirements.setdefault(requirement.extra, {})[requirement] = None
            users.setdefault(requirement.extra, {})[f"loader={config.name}"] = None
    for extra, needed in sorted(requirements.items()):
        finding = partial(Finding, name=extra, adds=", ".join(users[extra]))
        missing = [requirement for requirement in needed if not requirement.is_installed]
        if missing:
            modules = ", ".join(requirement.module for requirement in missing)
            yield finding(
                verdict=Verdict.NO,
                says=f"the module {modules} is not installed",
                mend=command_for(missing),
            )
        else:
            yield finding(verdict=Verdict.YES, says=_version(next(iter(needed)).module))


def _version(module: str) -> str:
    try:
        return version(module.replace("_", "-"))
    except PackageNotFoundError:
        return "installed"


def _mpi(find: FindProgram) -> Finding:
    finding = partial(Finding, name="MPI", adds="several processes: mpirun -n N wattload run ...")
    mend = install_command(["mpi"])
    if find_spec("mpi4py") is None:
        return finding(
            verdict=Verdict.NO,
            says="the module mpi4py is not installed: one process only",
            mend=mend,
        )
    # Importing mpi4py starts MPI, so do it in another process.
    loads, line = first_line_of([sys.executable, "-c", _MPI_QUESTION])
    if not loads:
        return finding(
            verdict=Verdict.NO,
            says=f"mpi4py does not find an MPI library: {line}",
            mend=mend,
        )
    launcher = find("mpirun")
    if launcher is None:
        return finding(
            verdict=Verdict.PARTLY,
            says=f"{_bare(line)}, but there is no mpirun",
            mend=mend,
        )
    return finding(verdict=Verdict.YES, says=f"{_bare(line)}, {launcher}")


def _bare(line: str) -> str:
    """Return a line with single spaces, without the NUL at the end of some MPI versions."""
    return " ".join(line.replace("\0", " ").split())


def _fio(find: FindProgram) -> Finding:
    adds = "make bench: compares our engine with fio's"
    path = find("fio")
    works, line = first_line_of([path, "--version"]) if path else (False, "fio is not installed")
    return Finding(
        name="fio",
        verdict=Verdict.YES if works else Verdict.NO,
        says=line,
        adds=adds,
        mend="" if works else "sudo apt-get install fio",
    )


def _engine(find: FindProgram) -> Finding:
    finding = partial(
        Finding,
        name="container engine",
        adds="runs in a container: docker compose -f docker/compose.yaml run --rm wattload run ...",
    )
    found = [name for name in _ENGINES if find(name)]
    if not found:
        return finding(
            verdict=Verdict.NO,
            says="neither docker nor podman is installed",
            mend="sudo apt-get install docker.io",
        )
    program = found[0]
    answers, line = first_line_of([find(program) or program, "info", "--format", _ENGINES[program]])
    if not answers:
        return finding(
            verdict=Verdict.PARTLY,
            says=f"{program} is installed but does not answer: {line}",
            mend=f"sudo systemctl start {program}",
        )
    return finding(verdict=Verdict.YES, says=f"{program}, storage {line}")


def storage_findings(
    directory: Path, roots: Roots = LIVE, devices: Path = Path("/dev")
) -> Iterator[Finding]:
    """Yield what can be measured in ``directory`` and on this host's NVMe drives."""
    try:
        (target,) = resolve_targets([directory], host=socket.gethostname(), roots=roots)
        check_writable(target)
    except TargetError as error:
        yield Finding(
            name="target directory",
            verdict=Verdict.NO,
            says=str(error),
            adds="the directory that a run reads and writes",
        )
    else:
        yield _direct_io(target)
        yield _counters(target, roots)
        yield from _caveats(target)
    yield _controllers(roots)
    yield from (_admin_queue(name, roots, devices) for name in list_controllers(roots))


def _direct_io(target: Target) -> Finding:
    adds = "loader=direct, and reads that do not come from the page cache"
    found = target.direct_io
    if found is None:
        return Finding(
            name="O_DIRECT",
            verdict=Verdict.NO,
            says=f"{target.path}: {target.direct_io_missing}",
            adds=adds,
        )
    return Finding(
        name="O_DIRECT",
        verdict=Verdict.YES,
        says=f"works in {target.path}; offsets in multiples of {found.offset_align_bytes} B, "
        f"buffers of {found.memory_align_bytes} B (by {found.found_by})",
        adds=adds,
    )


def _counters(target: Target, roots: Roots) -> Finding:
    adds = "proof that bytes reached the device, and its queue depth"
    names = counting_devices(target)
    try:
        for name in names:
            read_block_stat(name, roots)
    except TargetError as error:
        names, why = (), str(error)
    else:
        why = target.facts.missing.get("stack", "the file system has no block device here")
    if not names:
        return Finding(
            name="device counters",
            verdict=Verdict.NO,
            says=why,
            adds=adds,
        )
    return Finding(name="device counters", verdict=Verdict.YES, says=", ".join(names), adds=adds)


def _caveats(target: Target) -> Iterator[Finding]:
    for warning in target.facts.warnings:
        yield Finding(
            name="target",
            verdict=Verdict.PARTLY,
            says=warning,
            adds="figures for the drive alone",
        )


def _controllers(roots: Roots) -> Finding:
    names = list_controllers(roots)
    adds = "a drive's power states, health and own power figures"
    if names:
        return Finding(
            name="NVMe controllers", verdict=Verdict.YES, says=", ".join(names), adds=adds
        )
    return Finding(
        name="NVMe controllers",
        verdict=Verdict.NO,
        says="this host has none; power=declared uses a data sheet's watts instead",
        adds=adds,
    )


def _admin_queue(name: str, roots: Roots, devices: Path) -> Finding:
    """Try to open the controller's device node, without sending a command."""
    node = devices / name
    finding = partial(
        Finding,
        name=f"admin queue of {name}",
        adds="setting and watching power states, SMART, watts if the drive reports them",
    )
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return finding(
            verdict=Verdict.NO,
            says=f"{node} does not exist; a container needs the device node",
            mend=_WITH_POWER.format(node=node),
        )
    except OSError as error:
        return finding(
            verdict=Verdict.NO,
            says=f"{node}: {error.strerror}; model, serial, link and temperature are readable",
            mend=_as_root(),
        )
    if _has_capability(_CAP_SYS_ADMIN, roots):
        return finding(verdict=Verdict.YES, says=f"{node} opens")
    return finding(
        verdict=Verdict.PARTLY,
        says=f"{node} opens, but without CAP_SYS_ADMIN: the power state table only, no state or "
        "SMART",
        mend=_as_root(),
    )


def _has_capability(bit: int, roots: Roots) -> bool:
    """Return whether this process has a capability in its effective set (``proc(5)``, CapEff)."""
    for line in read_text(roots.proc / "self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False
