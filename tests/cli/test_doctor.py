"""``wattload doctor``: honest on this machine, and right about machines that it has not seen."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.data.sysfs.tree import expand, write
from tests.power.control.recovery_host import LEFT
from tests.power.sources.sysfs_tree import ACPI, INA226, hwmon_tree, powercap_tree
from wattload.__main__ import main
from wattload.cli import doctor as software
from wattload.cli.doctor import (
    change_findings,
    find_program,
    first_line_of,
    power_findings,
    runnable,
    software_findings,
    storage_findings,
)
from wattload.cli.findings import Finding, Verdict, no, show
from wattload.cli.meters import drive_energy, settings_of
from wattload.cli.readiness import headline, workload_findings, workload_refusals
from wattload.core import workload
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.installation import install_command
from wattload.core.sysfs import Roots
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal, Setting
from wattload.run.config_groups import options

Captured = pytest.CaptureFixture[str]
ADMIN = "CapEff:\t000001fffeffffff\n"
NO_ADMIN = "CapEff:\t0000000000000000\n"


LOOKS = ("lspci", "nvidia-smi", "wattload devices", "dmesg", "ipmitool")


def by_name(findings: Any) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def storage(tmp_path: Path, tree: str, capabilities: str = ADMIN) -> dict[str, Finding]:
    folder = tmp_path / "target"
    folder.mkdir()
    roots = expand(tree, tmp_path / "machine", folder)
    write(roots.proc / "self/status", f"Name: x\n{capabilities}")
    return by_name(storage_findings(folder, roots, tmp_path / "dev"))


class NvmlError(Exception):
    """What pynvml raises."""


def nvml(count: int, *, starts: bool = True) -> Callable[[str], Any]:
    def start() -> None:
        if not starts:
            raise NvmlError("Driver Not Loaded")

    module = SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
    )
    return lambda _: module


def test_this_machine_is_examined(tmp_path: Path, capsys: Captured) -> None:
    assert main(["doctor", str(tmp_path), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    names = [finding["name"] for finding in findings]
    for name in ("O_DIRECT", "device counters", "NVMe controllers", "NVML", "hwmon", "RAPL", "IPMI",
                 "power=quarch", "power=redfish", "meter calibrated", "power settings restored",
                 "dali", "dlio", "torch", "MPI", "fio", "container engine"):  # fmt: skip
        assert name in names
    assert {finding["verdict"] for finding in findings} <= {"yes", "partly", "no"}
    refused = {each for name in names if name.startswith("workload=") for each in name.split(", ")}
    ready = next(each["detail"] for each in findings if each["name"] == "workloads")
    every = {f"workload={name}" for name in ready.split(", ")} | refused
    assert every == {f"workload={name}" for name in options("workload") if name != "null"}
    for finding in findings:  # a command changes something, and is for what is missing
        assert not finding["fix"] or finding["verdict"] != "yes", finding
        assert not any(look in finding["fix"] for look in LOOKS), finding


def changes(
    tmp_path: Path, *, enabled: str = "", drives: Sequence[str] = ("nvme0",)
) -> dict[str, Finding]:
    units = tmp_path / "units"
    (units / "multi-user.target.wants").mkdir(parents=True, exist_ok=True)
    if enabled:
        (units / "multi-user.target.wants" / enabled).symlink_to("/nonexistent")
    host = PowerHost(journal=ChangeJournal(tmp_path / "state"), list_names=lambda: drives)
    return by_name(change_findings(host, units))


def test_change_that_a_killed_run_left_is_reported(tmp_path: Path) -> None:
    assert changes(tmp_path)["power settings restored"].verdict is Verdict.YES
    journal = ChangeJournal(tmp_path / "state")
    journal.write(LEFT)
    finding = changes(tmp_path)["power settings restored"]
    assert (finding.verdict, finding.fix) == (Verdict.PARTLY, "wattload power restore")
    assert finding.detail == (
        "nvme0 (MODEL0001), which run run-1 had set from power state 0 to power state 1: "
        "not undone yet"
    )
    journal.write(replace(LEFT, left=Setting(value=2)))
    assert "left at power state 2" in changes(tmp_path)["power settings restored"].detail
    (path,) = journal.folder.glob("*.json")
    path.write_text("{")
    assert "not a valid journal entry" in changes(tmp_path)["power settings restored"].detail
    journal.folder.chmod(0o777)
    finding = changes(tmp_path)["power settings restored"]
    assert (finding.verdict, finding.fix) == (Verdict.NO, "")


def test_change_of_a_run_that_goes_on_or_of_a_user_is_not_left(tmp_path: Path) -> None:
    journal = ChangeJournal(tmp_path / "state")
    journal.write(LEFT)
    journal.write(replace(LEFT, owner="user", serial="OTHER"))
    with journal.lock(LEFT.serial, needed=True):
        assert changes(tmp_path)["power settings restored"].verdict is Verdict.YES


@pytest.mark.parametrize("unit", ["wattload-power-restore.service", "wattload-sampler.service"])
def test_unit_that_restores_at_boot_is_looked_for(tmp_path: Path, unit: str) -> None:
    finding = changes(tmp_path)["power restore at boot"]
    assert finding.verdict is Verdict.NO
    assert "wattload-power-restore.service is not installed" in finding.detail
    (tmp_path / "units/wattload-power-restore.service").touch()
    finding = changes(tmp_path)["power restore at boot"]
    assert finding.fix == "sudo systemctl enable wattload-power-restore.service"
    finding = changes(tmp_path, enabled=unit)["power restore at boot"]
    assert (finding.verdict, finding.detail) == (Verdict.YES, f"{unit} is enabled")


def test_host_without_a_drive_needs_no_restore_at_boot(tmp_path: Path) -> None:
    assert "power restore at boot" not in changes(tmp_path, drives=())


def directory(capsys: Captured, *words: str) -> str:
    """Return the directory that doctor takes, by its refusal: it is none."""
    assert main(["doctor", *words]) == 2
    return capsys.readouterr().err.removeprefix("wattload: ").partition(" is not a directory")[0]


def test_the_default_directory_is_the_target_of_the_environment(capsys: Captured) -> None:
    command = [sys.executable, "-m", "wattload", "doctor"]  # a process reads it once
    variables = {**os.environ, "WATTLOAD_TARGET": "/nowhere/env"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("wattload: /nowhere/env is not a directory")
    assert directory(capsys, "/nowhere/else", "power=none") == "/nowhere/else"
    assert directory(capsys, "target.path=/nowhere/more") == "/nowhere/more"
    assert directory(capsys, "/a", "/b").startswith("give one directory, got /a /b")
    split = directory(capsys, "power.command.run=ssh", "server", "watch")
    assert split.startswith("give one directory, got server watch; quote a value that has blanks: ")
    assert split.endswith("power.command.run='ssh server ...'\n")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("found no known drive under the target", "no known drive under the target"),
        (
            "found no source for vda (not an NVMe drive, so it has no power telemetry)",
            "vda: not an NVMe drive, so it has no power telemetry",
        ),
        (
            "found no source for vda (not an NVMe drive); also took nvml_power for GPU 0 (gpu)",
            "vda: not an NVMe drive",
        ),
        (
            "found no source for nvme0 (/dev/nvme0 can't be opened by user 7: run as root, or "
            "grant access; b)",
            "nvme0: /dev/nvme0 can't be opened by user 7: run as root, or grant ...",
        ),
        ("nvme0 has not answered Identify for 5 s", "nvme0 has not answered Identify for 5 s"),
    ],
)
def test_the_first_line_is_of_workloads_that_can_run_and_why_nothing_measures_the_drive(
    found: str, words: str
) -> None:
    refusals = {"unet3d": "", "gnn": "no GPU", "dlrm": "no GPU"}
    assert headline(refusals, Finding.of("drive energy", no(found))) == (
        f"ready for 1 of 3 workloads; drive energy: no ({words})"
    )
    ready, refused = workload_findings(refusals)
    assert (ready.verdict, ready.detail) == (Verdict.YES, "unet3d")
    assert (refused.name, refused.detail) == ("workload=gnn, workload=dlrm", "no GPU")


def test_memory_has_no_drive_whose_energy_could_be_measured() -> None:
    energy = Finding.of("drive energy", drive_energy(settings_of(["target.path=/dev/shm"])))
    assert headline({}, energy).endswith("drive energy: no (no known drive under the target)")


def test_a_folder_that_is_not_writable_has_no_workload_that_can_run() -> None:
    refusals = workload_refusals(Path("/sys/kernel"))
    assert len(refusals) == len(options("workload")) - 1, "all but null, which needs no target"
    assert all(refusals.values())


@pytest.mark.parametrize(
    ("sysctl", "seccomp", "words"),
    [("2", "0", "sysctl"), ("2", "2", "sysctl"), ("0", "2", "docker/compose.yaml"), ("0", "0", "")],
)
def test_a_seccomp_filter_and_the_sysctl_have_different_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sysctl: str, seccomp: str, words: str
) -> None:
    roots = Roots(sys=tmp_path / "sys", proc=tmp_path / "proc")
    write(roots.proc / "sys/kernel/io_uring_disabled", f"{sysctl}\n")
    write(roots.proc / "self/status", f"Name:\tx\nSeccomp:\t{seccomp}\n")
    monkeypatch.setattr(software, "LIVE", roots)
    monkeypatch.setattr(software, "backend_unavailable", lambda name: "not permitted")
    (finding,) = software.io_findings()
    assert words in finding.fix if words else finding.fix == ""


def test_the_verdict_on_o_direct_is_what_a_run_finds(tmp_path: Path) -> None:
    from wattload.core.storage.targets import resolve_targets

    (target,) = resolve_targets([tmp_path], host="box")
    finding = by_name(storage_findings(tmp_path))["O_DIRECT"]
    assert (finding.verdict is Verdict.YES) is (target.direct_io is not None)


def test_findings_are_printed_with_their_commands() -> None:
    out = io.StringIO()
    console = Console(file=out, width=60, highlight=False)
    show(
        [
            Finding("fio", "a bench", Verdict.NO, "[none]", "get fio"),
            Finding("torch", "loader=torch", Verdict.YES, "2.13"),
        ],
        console,
    )
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines == ["no   fio: [none]", "needed for a bench", "$ get fio", "yes  torch: 2.13"]


def test_a_command_is_printed_on_one_line_of_a_narrow_terminal() -> None:
    command = "docker compose -f docker/compose.yaml run --rm [wattload] doctor"
    out = io.StringIO()
    finding = Finding("fio", "it", Verdict.PARTLY, "none", command)
    show([finding], Console(file=out, width=40, highlight=False))
    assert out.getvalue().splitlines()[-1] == f"        $ {command}"


def test_a_target_that_can_not_be_used_is_the_first_finding(tmp_path: Path) -> None:
    finding = next(iter(storage_findings(tmp_path / "nowhere")))
    assert (finding.name, finding.verdict) == ("target directory", Verdict.NO)
    assert "does not exist" in finding.detail


def test_o_direct_that_is_refused_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattload.core.storage.file_system.statx_alignment", lambda _: (0, 0))
    finding = by_name(storage_findings(tmp_path))["O_DIRECT"]
    assert finding.verdict is Verdict.NO
    assert "does not support O_DIRECT" in finding.detail


def test_a_drive_of_its_own_has_counters_and_an_admin_queue(tmp_path: Path) -> None:
    write(tmp_path / "dev/nvme0", "")
    findings = storage(tmp_path, "gen5_in_gen4_slot")
    assert findings["device counters"].detail == "nvme0n1"
    assert findings["NVMe controllers"].verdict is Verdict.YES
    assert findings["admin queue of nvme0"].verdict is Verdict.YES
    assert "target" not in findings


def test_a_virtual_disk_is_a_caveat_and_no_nvme(tmp_path: Path) -> None:
    findings = storage(tmp_path, "virtio")
    assert findings["target"].verdict is Verdict.PARTLY
    assert "guest-cold" in findings["target"].detail
    assert findings["NVMe controllers"].verdict is Verdict.NO
    assert "power=declared" in findings["NVMe controllers"].detail


def test_counters_that_are_hidden_say_why(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    roots = expand("virtio", tmp_path / "machine", folder)
    (roots.sys / "class/block/vda").resolve().joinpath("stat").unlink()
    finding = by_name(storage_findings(folder, roots))["device counters"]
    assert finding.verdict is Verdict.NO
    assert "does not show stat" in finding.detail


def test_a_file_system_without_device_has_no_counters(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/mountinfo", "1 0 0:9 / / rw - tmpfs tmpfs rw\n")
    roots = Roots(proc=tmp_path / "proc", sys=tmp_path / "sys")
    finding = by_name(storage_findings(tmp_path, roots))["device counters"]
    assert (finding.verdict, finding.detail) == (
        Verdict.NO,
        "tmpfs is memory: there is no block device under it",
    )


def test_a_container_without_the_node_is_shown_how_to_get_it(tmp_path: Path) -> None:
    finding = storage(tmp_path, "gen5_in_gen4_slot")["admin queue of nvme0"]
    assert finding.verdict is Verdict.NO
    assert "compose.power.yaml" in finding.fix


@pytest.mark.parametrize("capabilities", [NO_ADMIN, ""])
def test_a_node_without_the_capability_gives_the_table_only(
    tmp_path: Path, capabilities: str
) -> None:
    write(tmp_path / "dev/nvme0", "")
    finding = storage(tmp_path, "gen5_in_gen4_slot", capabilities)["admin queue of nvme0"]
    assert finding.verdict is Verdict.PARTLY
    assert "CAP_SYS_ADMIN" in finding.detail


def test_a_node_that_does_not_open_reports_what_stays(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvme0").symlink_to("nvme0")  # fails to open for root too
    finding = storage(tmp_path, "gen5_in_gen4_slot")["admin queue of nvme0"]
    assert finding.verdict is Verdict.NO
    assert "temperature are readable" in finding.detail


def test_gpus_are_counted(tmp_path: Path) -> None:
    roots = Roots(sys=tmp_path)
    assert by_name(power_findings(roots, nvml(2)))["NVML"].detail == "2 GPUs"
    assert by_name(power_findings(roots, nvml(1)))["NVML"].detail == "1 GPU"
    assert by_name(power_findings(roots, nvml(0)))["NVML"].verdict is Verdict.NO


def test_nvml_without_driver_or_module_reports_which(tmp_path: Path) -> None:
    def missing(_: str) -> Any:
        raise ImportError

    roots = Roots(sys=tmp_path)
    driverless = by_name(power_findings(roots, nvml(0, starts=False)))["NVML"]
    assert "Driver Not Loaded" in driverless.detail
    assert "[gpu]" in by_name(power_findings(roots, missing))["NVML"].fix


def power(roots: Roots) -> dict[str, Finding]:
    nowhere = roots.sys / "no-ipmi0"
    return by_name(power_findings(roots, nvml(0), ipmi=nowhere))


def test_rapl_is_there_when_its_counters_are_readable(tmp_path: Path) -> None:
    bare = Roots(sys=tmp_path, proc=tmp_path / "proc")
    absent = power(bare)["RAPL"]
    assert (absent.verdict, absent.fix) == (Verdict.NO, "sudo modprobe intel_rapl_msr")
    write(bare.proc / "cpuinfo", "flags\t\t: fpu vme hypervisor lahf_lm\n")
    assert power(bare)["RAPL"].fix == ""
    roots = powercap_tree(tmp_path, {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram"})
    assert power(roots)["RAPL"].detail == "package-0, package-0 dram"
    counter = roots.sys / "class/powercap/intel-rapl:0/energy_uj"
    counter.write_text("nonsense")
    broken = power(roots)["RAPL"]
    assert (broken.verdict, broken.fix) == (Verdict.NO, "")


def test_rapl_for_root_alone_is_mended_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = powercap_tree(tmp_path, {"intel-rapl:0": "package-0"})

    def refuse(path: object, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    finding = power(roots)["RAPL"]
    assert "only root can read" in finding.detail
    assert finding.fix == "sudo -E wattload doctor"


def test_sensors_of_the_kernel_are_listed_by_their_names(tmp_path: Path) -> None:
    absent = power(Roots(sys=tmp_path))["hwmon"]
    assert (absent.verdict, absent.fix) == (Verdict.NO, "")
    (tmp_path / "bus/acpi/devices/ACPI000D:00").mkdir(parents=True)
    absent = power(Roots(sys=tmp_path))["hwmon"]
    assert (absent.verdict, absent.fix) == (Verdict.NO, "sudo modprobe acpi_power_meter")
    few = power(hwmon_tree(tmp_path / "few", INA226, ACPI))["hwmon"]
    assert (few.verdict, few.detail) == (Verdict.YES, "ina226/power1, power_meter/power1")
    rails = {f"power{number}_input": 1 for number in range(1, 11)}
    many = power(hwmon_tree(tmp_path / "many", {"name": "psu", **rails}))["hwmon"]
    assert many.detail.endswith("psu/power7 and 2 more")


class Bmc:
    """A BMC that answers with what it is given, or fails with it."""

    def __init__(self, reply: bytes | PowerError) -> None:
        self.reply = reply

    def command(self, netfn: int, command: int, data: bytes) -> bytes:
        if isinstance(self.reply, PowerError):
            raise self.reply
        return self.reply

    def close(self) -> None: ...


WATTS = bytes.fromhex("00 dc d4 00 96 00 90 01 e6 00 00 00 00 00 e8 03 00 00 40")


@pytest.mark.parametrize(
    ("reply", "verdict", "detail", "fix"),
    [
        (WATTS, Verdict.YES, "by DCMI, now 212 W", ""),
        (b"\xc1", Verdict.NO, "offers no DCMI power reading", ""),
        (PowerPermissionError("no entry"), Verdict.NO, "no entry", "sudo -E wattload doctor"),
    ],
)
def test_bmc_is_queried_for_the_nodes_power(
    tmp_path: Path, reply: bytes | PowerError, verdict: Verdict, detail: str, fix: str
) -> None:
    absent = power(Roots(sys=tmp_path, proc=tmp_path))["IPMI"]
    assert absent.fix == "sudo modprobe -a ipmi_si ipmi_devintf"
    write(tmp_path / "ipmi0", "")
    found = power_findings(
        Roots(sys=tmp_path), nvml(0), ipmi=tmp_path / "ipmi0", open_link=lambda: Bmc(reply)
    )
    finding = by_name(found)["IPMI"]
    assert (finding.verdict, finding.fix) == (verdict, fix)
    assert detail in finding.detail


def test_extras_that_are_absent_name_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "find_spec", lambda _: None)
    monkeypatch.setattr(workload, "find_spec", lambda _: None)
    findings = by_name(software_findings(lambda _: None))
    assert findings["torch"].fix == install_command(["torch"])
    assert "[torch]" in findings["torch"].fix
    assert findings["MPI"].detail == "the module mpi4py is not installed: one process only"
    assert findings["fio"].fix == "sudo apt-get install fio"
    assert findings["container engine"].detail == "neither docker nor podman is installed"
    assert all(finding.verdict is Verdict.NO for finding in findings.values())


def test_a_module_without_distribution_is_installed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload, "find_spec", lambda _: object())
    assert by_name(software_findings(lambda _: None))["dali"].detail == "installed"


@pytest.mark.parametrize(
    ("answer", "launcher", "verdict", "detail"),
    [
        ((True, "MPICH\tVersion: 5.0"), "/bin/mpirun", Verdict.YES, "MPICH Version: 5.0, /bin/mpi"),
        ((True, "MPICH 5"), None, Verdict.PARTLY, "no mpirun"),
        ((True, "MPICH 5"), "/bin/mpirun (Open MPI)", Verdict.PARTLY, "mpirun (Open MPI) is of Op"),
        ((True, "Open MPI v4"), "/bin/mpirun", Verdict.PARTLY, "/bin/mpirun is not of Open MPI"),
        ((False, "cannot load MPI library"), None, Verdict.NO, "cannot load MPI library"),
    ],
)
def test_mpi_is_library_and_launcher(
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[bool, str],
    launcher: str | None,
    verdict: Verdict,
    detail: str,
) -> None:
    monkeypatch.setattr(software, "find_spec", lambda _: object())
    monkeypatch.setattr(
        software,
        "first_line_of",
        lambda words: (True, launcher) if words[-1] == "--version" else answer,
    )
    finding = by_name(software_findings(lambda name: launcher if name == "mpirun" else None))["MPI"]
    assert finding.verdict is verdict
    assert detail in finding.detail


def test_an_engine_has_to_answer(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\n[ "$1" = info ] && echo overlay\n')
    program.chmod(0o755)

    def find(name: str) -> str | None:
        return str(program) if name == "podman" else None

    finding = by_name(software_findings(find))["container engine"]
    assert (finding.verdict, finding.detail) == (Verdict.YES, "podman, storage overlay")
    program.write_text("#!/bin/sh\necho no daemon >&2; exit 1\n")
    finding = by_name(software_findings(find))["container engine"]
    assert finding.verdict is Verdict.PARTLY
    assert finding.detail == "podman is installed but does not answer: no daemon"


def test_programs_next_to_python_come_first() -> None:
    assert find_program(Path(sys.executable).name) == sys.executable
    assert find_program("sh") is not None
    assert find_program("no-such-program") is None


def test_a_program_that_is_none_is_no_answer(tmp_path: Path) -> None:
    assert first_line_of([os.fspath(tmp_path / "none")])[0] is False
    assert first_line_of([sys.executable, "-c", "print()"]) == (True, "it printed nothing")


@pytest.mark.parametrize("path", ["/nope", "/dev/null", "x" * 300])
def test_a_directory_that_is_not_there_is_refused(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", path]) == 2
    assert f"{path} is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fix", "is_root", "expected"),
    [
        ("sudo modprobe x", False, "sudo modprobe x"),
        ("sudo modprobe x", True, "modprobe x"),
        ("sudo -E wattload doctor", False, "sudo -E '/my venv/wattload' doctor"),
        ("sudo systemctl start docker", False, ""),
        ("make setup", True, "make setup"),
        ("", True, ""),
    ],
)
def test_a_command_is_printed_as_it_works_here(
    tmp_path: Path, fix: str, is_root: bool, expected: str
) -> None:
    found = runnable(fix, is_root=is_root, find=lambda name: f"/my venv/{name}", run=tmp_path)
    assert found == expected
    (tmp_path / "systemd/system").mkdir(parents=True)
    assert runnable("sudo systemctl start x", is_root=False, run=tmp_path).endswith("start x")
