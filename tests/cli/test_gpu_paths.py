"""doctor on GPUs that read: on a machine like a DGX, and on machines that lack something."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.loaders.gpu.conftest import stub_environment, stub_libraries, stubs
from wattload.cli.doctor import gpu_path_findings, gpu_queue_findings
from wattload.cli.findings import Finding, Verdict
from wattload.core import workload
from wattload.core.errors import ConfigError
from wattload.core.sysfs import Roots
from wattload.loaders.gpu.host import Probe, ProbedGpu

__all__ = ["stub_environment", "stub_libraries", "stubs"]

COMPAT, NVIDIA_FS, P2PDMA = (f"cuFile by {n}" for n in ("compat", "nvidia-fs", "PCI P2PDMA"))
BOTH = "cuFile by nvidia-fs or PCI P2PDMA"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
)
KEYS = 'RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"\n'


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def dgx(tmp_path: Path) -> Roots:
    """Return eight GPUs and eight NVMe drives, with all that each path needs."""
    roots = Roots(sys=tmp_path / "sys", proc=tmp_path / "proc", top=tmp_path)
    write(roots.proc / "sys/kernel/osrelease", "6.8.0-1024-nvidia\n")
    write(roots.proc / "kallsyms", "0 r p2pdma_pgmap_ops\n0 T pci_p2pdma_add_resource\n")
    write(roots.proc / "driver/nvidia/version", OPEN)
    write(roots.proc / "driver/nvidia/params", f"OpenRmEnableUnsupportedGpus: 1\n{KEYS}")
    write(roots.proc / "driver/nvidia-fs/stats", "GDS Version: 1.15\nReads\t: n=0 ok=0 err=0\n")
    write(roots.sys / "module/nvidia_fs/parameters/rw_stats_enabled", "1\n")
    write(roots.sys / "module/nvme_core/parameters/multipath", "N\n")
    write(roots.sys / "kernel/iommu_groups/3/type", "identity\n")
    for number in range(8):
        (roots.proc / f"driver/nvidia/gpus/0000:{number:02x}:00.0").mkdir(parents=True)
        write(roots.sys / f"class/nvme/nvme{number}/transport", "pcie\n")
        write(roots.top / f"run/udev/data/b259:{number}", "E:ID_FS_TYPE=ext4\n")
    return roots


def found(roots: Roots, cufile: str | None = "1.15", refusal: str = "") -> dict[str, list[Finding]]:
    probed = Probe(
        cuda="13.0",
        gpus=tuple(ProbedGpu(f"0000:{bus:02x}:00.0", "NVIDIA A100") for bus in range(8)),
        cufile=cufile,
        cufile_refusal=ConfigError(refusal) if refusal else None,
    )
    by_name: dict[str, list[Finding]] = {}
    for finding in gpu_path_findings(lambda: probed, roots):
        by_name.setdefault(finding.name, []).append(finding)
    return by_name


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_a_machine_with_everything_has_all_paths(dgx: Roots) -> None:
    findings = found(dgx)
    assert list(findings) == [COMPAT, NVIDIA_FS, P2PDMA]
    assert all(only(each).verdict is Verdict.YES for each in findings.values())
    assert "not GPUDirect Storage" in only(findings[COMPAT]).needed_for


@pytest.mark.parametrize(
    ("file", "detail", "fix"),
    [
        ({"proc/sys/kernel/osrelease": "5.15.0-91-generic"}, "Linux 5.15.0-91", ""),
        ({"proc/kallsyms": "0 T start_kernel"}, "CONFIG_PCI_P2PDMA", ""),
        (
            {"proc/driver/nvidia/params": 'RegistryDwords: ""'},
            "RMForceStaticBar1=1 and",
            "NVreg_RegistryDwords",
        ),
        ({"sys/module/nvme_core/parameters/multipath": "Y"}, "multipath", "multipath=N"),
    ],
)
def test_each_thing_that_p2pdma_lacks_is_named_with_its_step(
    file: dict[str, str], detail: str, fix: str, dgx: Roots
) -> None:
    for name, text in file.items():
        write(dgx.top / name, text)
    findings = found(dgx)
    lacking = only(findings.pop(P2PDMA))
    assert lacking.verdict is Verdict.NO
    assert detail in lacking.detail
    assert fix in lacking.fix
    assert bool(fix) is bool(lacking.fix)
    assert all(only(each).verdict is Verdict.YES for each in findings.values())


def test_a_closed_and_old_driver_has_two_steps(dgx: Roots) -> None:
    write(dgx.proc / "driver/nvidia/version", CLOSED)
    closed, old = found(dgx)[P2PDMA]
    assert "closed" in closed.detail
    assert "driver 535.104, 565 or newer" in old.detail
    assert closed.fix == old.fix == "sudo apt-get install nvidia-open"


def test_without_nvidia_fs_the_module_is_loaded_or_installed(dgx: Roots) -> None:
    (dgx.proc / "driver/nvidia-fs/stats").unlink()
    assert only(found(dgx)[NVIDIA_FS]).fix == "sudo apt-get install nvidia-gds"
    modules = dgx.top / "lib/modules/6.8.0-1024-nvidia/modules.dep"
    write(modules, "updates/dkms/nvidia-fs.ko.zst: kernel/nvidia.ko\n")
    assert only(found(dgx)[NVIDIA_FS]).fix == "sudo modprobe nvidia-fs"


def test_a_driver_that_does_not_count_proves_nothing(dgx: Roots) -> None:
    write(dgx.sys / "module/nvidia_fs/parameters/rw_stats_enabled", "0\n")
    has, hides = found(dgx)[NVIDIA_FS]
    assert (has.verdict, hides.verdict) == (Verdict.YES, Verdict.PARTLY)
    assert "rw_stats_enabled" in hides.fix


def test_an_iommu_that_translates_is_in_the_way_of_both_direct_paths(dgx: Roots) -> None:
    write(dgx.sys / "kernel/iommu_groups/4/type", "DMA-FQ\n")
    findings = found(dgx)
    assert "iommu=pt" in only(findings[BOTH]).detail
    assert list(findings) == [COMPAT, BOTH]
    assert only(findings[COMPAT]).verdict is Verdict.YES


def test_a_machine_without_nvme_drives_is_one_finding(dgx: Roots) -> None:
    shutil.rmtree(dgx.sys / "class/nvme")
    findings = [each for own in found(dgx).values() for each in own]
    assert [each.name for each in findings if "no NVMe drive" in each.detail] == [BOTH]


def test_without_a_gpu_nothing_is_said_of_cufile(tmp_path: Path) -> None:
    finding = only([*gpu_path_findings(roots=Roots(sys=tmp_path, proc=tmp_path, top=tmp_path))])
    assert (finding.verdict, finding.detail, finding.fix) == (Verdict.NO, "no NVIDIA GPU", "")
    assert finding.needed_for == "workload=gpu_read"


def test_a_container_without_udev_has_not_even_compat(dgx: Roots) -> None:
    for entry in (dgx.top / "run/udev/data").iterdir():
        entry.unlink()
    finding = only(found(dgx)[COMPAT])
    assert "5027" in finding.detail
    assert "udevadm trigger" in finding.fix


def test_an_old_libcufile_has_no_p2pdma(dgx: Roots) -> None:
    assert "libcufile 1.11, 1.13" in only(found(dgx, "1.11")[P2PDMA]).detail
    assert only(found(dgx, None)[P2PDMA]).verdict is Verdict.YES


def test_no_answer_is_one_finding_with_its_reason(dgx: Roots) -> None:
    findings = found(dgx, refusal="libcufile 1.20 did not answer in 20 s")
    assert list(findings) == ["cuFile"]
    assert only(findings["cuFile"]).detail == "libcufile 1.20 did not answer in 20 s"

    def refuse() -> Probe:
        raise ConfigError("no CUDA driver (libcuda.so.1)")

    (finding,) = gpu_path_findings(refuse, dgx)
    assert finding.detail == "no CUDA driver (libcuda.so.1)"


@pytest.mark.usefixtures("stubs")
def test_the_libraries_themselves_are_asked(dgx: Roots) -> None:
    names = [finding.name for finding in gpu_path_findings(roots=dgx)]
    assert names == [COMPAT, NVIDIA_FS, P2PDMA]


def test_a_gpu_can_ask_where_kernels_can_be_compiled(
    dgx: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "find_spec", lambda _: object())
    (queue,) = gpu_queue_findings(dgx)
    assert queue.verdict is Verdict.YES
    monkeypatch.setattr(workload, "find_spec", lambda _: None)
    (queue,) = gpu_queue_findings(dgx)
    assert (queue.verdict, queue.detail) == (
        Verdict.NO,
        "cuda-bindings and NVRTC not installed",
    )
    assert "[cuda]" in queue.fix


def test_without_a_gpu_the_cpu_runs_the_queue(tmp_path: Path) -> None:
    (queue,) = gpu_queue_findings(Roots(sys=tmp_path, proc=tmp_path, top=tmp_path))
    assert queue.verdict is Verdict.PARTLY
    assert "loader.requester=cpu" in queue.detail


def test_drives_of_a_user_space_driver_are_named(dgx: Roots) -> None:
    driver = dgx.sys / "bus/pci/drivers/vfio-pci"
    write(driver / "0000:41:00.0/class", "0x010802\n")
    write(driver / "0000:42:00.0/class", "0x030200\n")
    *_, vfio = gpu_queue_findings(dgx)
    assert vfio.detail == "vfio-pci holds 0000:41:00.0: Linux reads no file from these drives"
