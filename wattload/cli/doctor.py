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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattload.cli.findings import Answer, Finding, no, partly, show, yes
from wattload.cli.meters import drive_energy, meter_findings, settings_of
from wattload.cli.readiness import headline, workload_findings, workload_refusals
from wattload.core.clock import utc_text
from wattload.core.errors import (
    ConfigError,
    MissingExtraError,
    PowerError,
    PowerPermissionError,
    RunError,
    TargetError,
)
from wattload.core.host.block_trace import TraceError, find_tracefs
from wattload.core.host.capabilities import Capability, has_capability
from wattload.core.host.cgroups import cpu_limit, usable_cpus
from wattload.core.host.counters import read_block_stat
from wattload.core.host.gpus import list_gpus
from wattload.core.host.memory_group import LimitProbe
from wattload.core.host.memory_group import probe as probe_memory_limit
from wattload.core.host.memory_traffic import NEEDS_PERMISSION, FoundMeter, Kind, find_meter
from wattload.core.host_paths import mounted
from wattload.core.installation import install_command
from wattload.core.record.sensor_text import age_s, sensor_text
from wattload.core.storage.controllers import list_controllers
from wattload.core.storage.targets import Target, check_writable, counting_devices, resolve_targets
from wattload.core.sysfs import LIVE, Roots, read_text, text_or_empty
from wattload.core.units import format_bytes
from wattload.core.workload import command_for
from wattload.loaders.engine.library import IO_URING, PREAD, backend_unavailable
from wattload.loaders.gpu.cufile_paths import PathName, paths_here
from wattload.loaders.gpu.host import Probe, probe
from wattload.loaders.gpu_queue.kernels import BINDINGS, NVRTC
from wattload.power.control.calibrations import CalibrationCache
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal
from wattload.power.control.undo import left_text, sentence_of
from wattload.power.sources.hwmon import list_channels
from wattload.power.sources.ipmi import DEVICE, IpmiDevice, IpmiSource, OpenLink
from wattload.power.sources.rapl import find_zones
from wattload.run.config import TARGET_VARIABLE, override_of
from wattload.run.config_errors import blanks_hint

if TYPE_CHECKING:
    from wattload.core.workload import Requirement

_TIMEOUT_S = 30.0

_CUFILE_NEEDED_FOR: dict[PathName, str] = {
    "compat": "loader=cufile through host memory: not GPUDirect Storage",
    "nvidia-fs": "GPUDirect Storage by NVIDIA's kernel module: loader=cufile loader.mode=direct",
    "PCI P2PDMA": "GPUDirect Storage by the kernel alone: loader=cufile loader.mode=direct",
}
_DIRECT_NEEDED_FOR = "GPUDirect Storage: loader=cufile loader.mode=direct"

_NVME_CLASS = "0x0108"
"""Of PCI functions: non-volatile memory controllers."""

_METERS: dict[Kind, str] = {
    "uncore": "counters of the memory controllers (uncore)",
    "resctrl": "resctrl counts what the L3 caches and memory exchange",
}
_PERF_STEP = "sudo sysctl kernel.perf_event_paranoid=0"

_PERIOD_S = 1.0

_CHANNELS_SHOWN = 8

FindProgram = Callable[[str], str | None]
"""Returns the path of a program, or ``None``: ``shutil.which``."""

_MPI_QUESTION = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0])"

OPEN_MPI = "Open MPI"
"""In the versions that its library and its mpirun print; in those of no other MPI."""

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="DIRECTORY | KEY=VALUE",
        help=f"where to try O_DIRECT (default: {TARGET_VARIABLE}, else the current directory); "
        "settings of meters to read, as of a run: power=redfish power.redfish.url=https://bmc; "
        "the exit status is 1 if a meter that they name can't be read",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings, those of the meters in the settings first; return 1 if one fails.

    Raises:
        ConfigError: a setting is invalid.
        TargetError: the directory is not one.
    """
    named = [word for word in arguments.words if "=" not in word]
    if len(named) > 1:
        raise ConfigError(
            f"give one directory, got {' '.join(named)}{blanks_hint(arguments.words)}"
        )
    settings = [word for word in arguments.words if word not in named]
    config = settings_of([*settings, *(override_of("target.path", word) for word in named)])
    directory = config.target.paths()[0]
    if not os.path.isdir(directory):  # noqa: PTH112 - never raises
        raise TargetError(
            f"{directory} is not a directory; name the one that runs will use, such as /mnt/nvme"
        )
    refusals = workload_refusals(directory)
    names = [f"power={name}" for name in config.power.named_meters]
    meters = list(meter_findings(config))
    read = [finding for finding in meters if finding.name in names]
    energy = Finding.of("drive energy", drive_energy(config))
    found = [
        *read,
        *storage_findings(directory),
        energy,
        *workload_findings(refusals),
        *io_findings(),
        *gpu_path_findings(),
        *gpu_queue_findings(),
        *measuring_findings(),
        *power_findings(),
        *(finding for finding in meters if finding not in read),
        Finding.of("meter calibrated", meter_calibrated(CalibrationCache(), utc_text())),
        *change_findings(),
        *software_findings(),
    ]
    findings = [replace(finding, fix=runnable(finding.fix)) for finding in found]
    status = int(any(finding.verdict != "yes" for finding in read))
    if arguments.json:
        document = [asdict(finding) for finding in findings]
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return status
    from wattload.cli.console import Console

    console = Console()
    console.print(headline(refusals, energy), style="bold", soft_wrap=not console.is_terminal)
    show(findings, console)
    return status


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
    fix: str, *, is_root: bool | None = None, find: FindProgram | None = None, run: Path = _RUN
) -> str:
    """Return a command as it works here: root needs no sudo, and sudo does not know a venv.

    It is empty where systemd, which it starts a service with, is not in charge.
    """
    if "systemctl" in fix and not (run / "systemd/system").is_dir():
        return ""
    if os.geteuid() == 0 if is_root is None else is_root:
        return fix.removeprefix("sudo ").removeprefix("-E ")
    if fix.startswith("sudo -E wattload "):
        own = (find or find_program)("wattload") or "wattload"
        return fix.replace("wattload", shlex.quote(own), 1)
    return fix


def io_findings() -> Iterator[Finding]:
    """Yield whether the engine is built, can use io_uring, and can pin its buffers."""
    try:
        reason = backend_unavailable(IO_URING)
    except MissingExtraError as error:
        yield Finding.of("I/O engine", no(str(error), "make setup"))
        return
    if reason is not None:
        detail = f"{reason}; loader.engine=auto uses {PREAD}: blocking threads"
        yield Finding.of("I/O engine", partly(detail, _allow_io_uring(LIVE)))
        return
    yield Finding.of("I/O engine", yes("io_uring is available"))
    yield Finding.of("locked memory", _locked_memory())


def _allow_io_uring(roots: Roots) -> str:
    """Return the command that allows io_uring where the sysctl or a container forbids it."""
    if text_or_empty(roots.proc / "sys/kernel/io_uring_disabled") in ("1", "2"):
        return "sudo sysctl kernel.io_uring_disabled=0"
    filtered = f"Seccomp:\t{_SECCOMP_FILTER}" in read_text(roots.proc / "self/status").splitlines()
    return _WITH_PROFILE if filtered and not mounted() else ""


def _locked_memory() -> Answer:
    """Return how much memory can be pinned; registered buffers save a lookup per operation."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit_bytes == resource.RLIM_INFINITY or has_capability(Capability.IPC_LOCK):
        return yes("unlimited")
    return partly(
        f"{format_bytes(limit_bytes)} can be pinned; larger buffers are not registered",
        "" if mounted() else "ulimit -l unlimited",
    )


def gpu_path_findings(ask: Callable[[], Probe] = probe, roots: Roots = LIVE) -> Iterator[Finding]:
    """Yield a finding for each of cuFile's paths, and one for each thing that a path lacks.

    What several paths lack is one finding. Without a GPU, or an answer from CUDA and cuFile, there
    is one in all, with the reason.
    """
    if not list_gpus(roots):
        yield Finding.of("GPU reads", no("no NVIDIA GPU"))
        return
    try:
        found = ask()
        refusal: object = found.cufile_refusal
    except (ConfigError, MissingExtraError, RunError) as error:
        refusal = error
    if refusal is not None:
        yield Finding.of("cuFile", no(str(refusal)))
        return
    paths = paths_here(found.cufile, roots)
    for path in paths:
        path_finding = partial(Finding, f"cuFile by {path.name}", _CUFILE_NEEDED_FOR[path.name])
        if not path.lacks:
            version = found.cufile or "of an unknown version"
            yield path_finding(*yes(f"libcufile {version} has what it needs"))
        for lack in path.lacks:
            names = [each.name for each in paths if lack in each.lacks]
            if len(names) == 1:
                yield path_finding(*no(lack.what, lack.step))
            elif names[0] == path.name:
                name = f"cuFile by {' or '.join(names)}"
                yield Finding(name, _DIRECT_NEEDED_FOR, *no(lack.what, lack.step))
        yield from (path_finding(*partly(lack.what, lack.step)) for lack in path.notes)


def gpu_queue_findings(roots: Roots = LIVE) -> Iterator[Finding]:
    """Yield whether a GPU can ask for reads, and which drives a user-space driver may hold."""
    yield Finding.of("GPU queue", _gpu_queue(roots))
    held = [
        path.name
        for path in (roots.sys / "bus/pci/drivers/vfio-pci").glob("*:*")
        if read_text(path / "class").startswith(_NVME_CLASS)
    ]
    if held:
        detail = f"vfio-pci holds {', '.join(sorted(held))}: Linux reads no file from these drives"
        yield Finding.of("VFIO", partly(detail))


def _gpu_queue(roots: Roots) -> Answer:
    missing = [each for each in (BINDINGS, NVRTC) if not each.is_installed]
    if not list_gpus(roots):
        return partly("no NVIDIA GPU; loader.requester=cpu runs the same queue from CPU threads")
    if missing:
        names = " and ".join(each.software for each in missing)
        return no(f"{names} not installed", install_command(["cuda"]))
    return yes("the GPU pulls blocks that pollers have read into host memory")


def measuring_findings() -> Iterator[Finding]:
    """Yield what this host can measure or limit besides power."""
    limit, _ = cpu_limit(LIVE)
    if limit is not None:
        yield Finding.of("CPU quota", cpu_quota(limit))
    yield Finding.of("memory traffic", memory_traffic(find_meter()))
    yield Finding.of("memory limit", memory_limit(probe_memory_limit()))
    yield Finding.of("block trace", block_trace(LIVE))


def cpu_quota(limit: float) -> Answer:
    cpus = len(os.sched_getaffinity(0))
    return partly(f"{limit:g} of {cpus} CPUs, by a control group; workers=0 starts {usable_cpus()}")


def memory_traffic(found: FoundMeter) -> Answer:
    """Return which meter counts the memory traffic of a load, and what refuses a better one."""
    fix = "" if mounted() or NEEDS_PERMISSION not in found.remarks else _PERF_STEP
    remarks = "; ".join(found.remarks)
    if found.meter is None:
        reason = remarks or "no counters of the memory controllers or of resctrl"
        return partly(f"{reason}; a load counts its own copies", fix)
    found.meter.close()
    return yes("; ".join(filter(None, (_METERS[found.meter.kind], remarks))), fix)


def memory_limit(found: LimitProbe) -> Answer:
    if found.place is None:
        return partly(f"{found.reason}; the page cache is dropped before each step instead")
    kind = {"cgroup1": "version 1", "cgroup2": "version 2"}[found.place.method]
    return yes(f"a control group ({kind}) in {found.place.parent}")


def block_trace(roots: Roots) -> Answer:
    try:
        return yes(f"by tracefs in {find_tracefs(roots)}")
    except TraceError as error:
        fix = "sudo mount -t tracefs tracefs /sys/kernel/tracing" if error.is_unmounted else ""
        return partly(f"{error}; the devices' counters give means alone", fix)


def power_findings(
    roots: Roots = LIVE,
    load: Callable[[str], Any] = import_module,
    *,
    ipmi: Path = DEVICE,
    open_link: OpenLink = IpmiDevice,
) -> Iterator[Finding]:
    """Yield the power meters of this host other than the drives themselves."""
    yield Finding.of("NVML", _nvml(load))
    yield Finding.of("hwmon", _hwmon(roots))
    yield Finding.of("RAPL", _rapl(roots))
    yield Finding.of("IPMI", _ipmi(ipmi, open_link, roots))


def meter_calibrated(cache: CalibrationCache, utc: str) -> Answer:
    """Return how each drive's meter answered its last calibration, and how long that was ago."""
    from wattload.power.energy.calibration import calibrate

    latest = {(each.record.source, each.record.device): each for each in cache.all()}
    if not latest:
        return no(
            "no meter of a drive was calibrated on this host yet",
            "wattload power calibrate target.path=/mnt/nvme",
        )
    texts, are_calibrated = [], []
    for (source, device), stored in latest.items():
        sensor = calibrate(stored.record, stored.facts)
        are_calibrated.append(sensor.basis == "calibrated")
        texts.append(f"{source} of {device}: {sensor_text(sensor, age_s(stored.record, utc))}")
    answer = yes if all(are_calibrated) else partly if any(are_calibrated) else no
    return answer("; ".join(texts))


def _nvml(load: Callable[[str], Any]) -> Answer:
    try:
        pynvml = load("pynvml")
    except ImportError:
        return no("the module pynvml is not installed", install_command(["gpu"]))
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return no(f"no NVIDIA driver answers: {error}")
    try:
        count = pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()
    return yes(f"{count} GPU{'' if count == 1 else 's'}") if count else no("0 GPUs")


def _hwmon(roots: Roots) -> Answer:
    channels = list_channels(roots)
    if not channels:
        # ACPI000D is a power meter that the firmware describes, and whose driver is missing.
        described = any((roots.sys / "bus/acpi/devices").glob("ACPI000D:*"))
        return no(
            "the kernel has no sensor of power or energy",
            "sudo modprobe acpi_power_meter" if described else "",
        )
    shown = ", ".join(channel.key for channel in channels[:_CHANNELS_SHOWN])
    more = f" and {len(channels) - _CHANNELS_SHOWN} more" * (len(channels) > _CHANNELS_SHOWN)
    return yes(f"{shown}{more}")


def _rapl(roots: Roots) -> Answer:
    try:
        sources = find_zones(roots, period_s=_PERIOD_S)
    except PowerError:
        return no(
            "the kernel has no RAPL zone; most virtual machines have none",
            "" if _is_virtual(roots) else "sudo modprobe intel_rapl_msr",
        )
    for source in sources:
        try:
            source.open()
        except PowerPermissionError:
            user = os.geteuid()
            return no(f"only root can read the counters, and this is user {user}", _as_root())
        except PowerError as error:
            return no(str(error))
        finally:
            source.close()
    return yes(", ".join(source.facts().device for source in sources))


def _as_root() -> str:
    return f"env UID=0 GID=0 {_WITH_PROFILE}" if mounted() else "sudo -E wattload doctor"


def _is_virtual(roots: Roots) -> bool:
    """Return whether the processor reports a hypervisor, in ``/proc/cpuinfo``."""
    return " hypervisor" in text_or_empty(roots.proc / "cpuinfo")


def _ipmi(path: Path, open_link: OpenLink, roots: Roots) -> Answer:
    """Read the BMC once, which takes milliseconds."""
    if not path.exists():
        return no(
            f"{path} does not exist: no BMC, or its driver is not loaded",
            "" if _is_virtual(roots) else "sudo modprobe -a ipmi_si ipmi_devintf",
        )
    source = IpmiSource(period_s=_PERIOD_S, open_link=open_link)
    try:
        source.open()
        (sample,) = source.read()
    except PowerPermissionError as error:
        return no(str(error), _as_root())
    except PowerError as error:
        return no(str(error))
    finally:
        source.close()
    watts = "busy at the moment" if sample.value is None else f"now {sample.value:g} W"
    return yes(f"{path} reports the node's power by DCMI, {watts}")


def change_findings(host: PowerHost | None = None, units: Path = _UNITS) -> Iterator[Finding]:
    """Yield the power settings that a killed run left changed, and whether a restart undoes them.

    The latter only if this host has an NVMe controller. The changes of a run that goes on, and
    those of ``power set``, are not left behind.
    """
    here = host or PowerHost()
    yield Finding.of("power settings restored", _settings_restored(here.journal))
    if here.list_names() and not mounted():
        yield Finding.of("power restore at boot", _restore_at_boot(units))


def _settings_restored(journal: ChangeJournal) -> Answer:
    try:
        left = list(_left_changes(journal))
    except PowerError as error:
        return no(str(error))
    if left:
        return partly("; ".join(left), "wattload power restore")
    return yes(f"no change is open in the journal {journal.folder}")


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


def _restore_at_boot(units: Path) -> Answer:
    """Return whether a systemd unit undoes at boot what the journal holds."""
    for unit in (_RESTORE_UNIT, _SAMPLER_UNIT):
        if any((wants / unit).is_symlink() for wants in units.glob("*.wants")):
            return yes(f"{unit} is enabled")
    if (units / _RESTORE_UNIT).exists():
        return no(
            f"{_RESTORE_UNIT} is installed but not enabled",
            f"sudo systemctl enable {_RESTORE_UNIT}",
        )
    return no(f"{_RESTORE_UNIT} is not installed; see docs/power.md, Power states")


def find_program(name: str) -> str | None:
    """Return the path of a program; look next to this Python first, as a venv may be inactive."""
    own = Path(sys.executable).parent / name
    return str(own) if own.exists() else shutil.which(name)


def software_findings(find: FindProgram = find_program) -> Iterator[Finding]:
    yield from _loader_extras()
    yield Finding.of("MPI", _mpi(find))
    if not mounted():
        yield Finding.of("fio", _fio(find))
        yield Finding.of("container engine", _container_engine(find))


def _loader_extras() -> Iterator[Finding]:
    """Yield a finding for each extra of wattload that some loader requires."""
    from wattload.core.workload import LoaderConfig
    from wattload.results.quantity import listed
    from wattload.run.compose import loaders_with

    requirements: dict[str, dict[Requirement, None]] = {}
    users: dict[str, dict[str, None]] = {}
    for config in loaders_with(LoaderConfig):
        for requirement in config.requires:
            requirements.setdefault(requirement.extra, {})[requirement] = None
            users.setdefault(requirement.extra, {})[f"loader={config.name}"] = None
    for extra, needed in sorted(requirements.items()):
        missing = [requirement for requirement in needed if not requirement.is_installed]
        if missing:
            modules = listed([requirement.module for requirement in missing])
            are = "modules {} are" if len(missing) > 1 else "module {} is"
            answer = no(f"the {are.format(modules)} not installed", command_for(missing))
        else:
            answer = yes(_version(next(iter(needed)).module))
        yield Finding(extra, ", ".join(users[extra]), *answer)


def _version(module: str) -> str:
    try:
        return version(module.replace("_", "-"))
    except PackageNotFoundError:
        return "installed"


def _mpi(find: FindProgram) -> Answer:
    fix = install_command(["mpi"])
    if find_spec("mpi4py") is None:
        return no("the module mpi4py is not installed: one process only", fix)
    # Importing mpi4py starts MPI, so do it in another process.
    loads, line = first_line_of([sys.executable, "-c", _MPI_QUESTION])
    if not loads:
        return no(f"mpi4py does not find an MPI library: {line}", fix)
    launcher = find("mpirun")
    if launcher is None:
        return partly(f"{_bare(line)}, but there is no mpirun", fix)
    is_open, is_open_launcher = (
        OPEN_MPI in text for text in (line, first_line_of([launcher, "--version"])[1])
    )
    if is_open is not is_open_launcher:
        return partly(
            f"mpi4py loads {_bare(line)}, but {launcher} is {'not ' * is_open}of {OPEN_MPI}; start "
            "runs with --hosts, or with the library's own mpirun"
        )
    return yes(f"{_bare(line)}, {launcher}")


def _bare(line: str) -> str:
    """Return a line with single spaces, without the NUL at the end of some MPI versions."""
    return " ".join(line.replace("\0", " ").split())


def _fio(find: FindProgram) -> Answer:
    path = find("fio")
    works, line = first_line_of([path, "--version"]) if path else (False, "fio is not installed")
    return yes(line) if works else no(line, "sudo apt-get install fio")


def _container_engine(find: FindProgram) -> Answer:
    program = next(filter(find, _ENGINES), None)
    if program is None:
        return no("neither docker nor podman is installed", "sudo apt-get install docker.io")
    answers, line = first_line_of([find(program) or program, "info", "--format", _ENGINES[program]])
    if not answers:
        return partly(
            f"{program} is installed but does not answer: {line}", f"sudo systemctl start {program}"
        )
    return yes(f"{program}, storage {line}")


def storage_findings(
    directory: Path, roots: Roots = LIVE, devices: Path = Path("/dev")
) -> Iterator[Finding]:
    """Yield what can be measured in ``directory`` and on this host's NVMe drives."""
    try:
        (target,) = resolve_targets([directory], host=socket.gethostname(), roots=roots)
        check_writable(target)
    except TargetError as error:
        yield Finding.of("target directory", no(str(error)))
    else:
        yield Finding.of("O_DIRECT", _direct_io(target))
        yield Finding.of("device counters", _counters(target, roots))
        for warning in target.facts.warnings:
            yield Finding.of("target", partly(warning))
    names = list_controllers(roots)
    none = "this host has none; power=declared uses a data sheet's watts instead"
    yield Finding.of("NVMe controllers", yes(", ".join(names)) if names else no(none))
    for name in names:
        yield Finding(
            f"admin queue of {name}",
            "setting and watching power states, SMART, watts if the drive reports them",
            *_admin_queue(devices / name, roots),
        )


def _direct_io(target: Target) -> Answer:
    found = target.direct_io
    if found is None:
        return no(f"{target.path}: {target.direct_io_missing}")
    return yes(
        f"works in {target.path}; offsets in multiples of {found.offset_align_bytes} B, "
        f"buffers of {found.memory_align_bytes} B (by {found.found_by})"
    )


def _counters(target: Target, roots: Roots) -> Answer:
    names = counting_devices(target)
    try:
        for name in names:
            read_block_stat(name, roots)
    except TargetError as error:
        return no(str(error))
    if not names:
        missing = target.facts.missing
        return no(missing.get("stack", "the file system has no block device here"))
    return yes(", ".join(names))


def _admin_queue(node: Path, roots: Roots) -> Answer:
    """Try to open the controller's device node, without sending a command."""
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return no(
            f"{node} does not exist; a container needs the device node",
            _WITH_POWER.format(node=node),
        )
    except OSError as error:
        return no(
            f"{node}: {error.strerror}; model, serial, link and temperature are readable",
            _as_root(),
        )
    if has_capability(Capability.SYS_ADMIN, roots):
        return yes(f"{node} opens")
    return partly(
        f"{node} opens, but without CAP_SYS_ADMIN: the power state table only, no state or SMART",
        _as_root(),
    )
