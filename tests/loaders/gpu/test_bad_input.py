"""Each thing that can be wrong is one sentence, and no process is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.loaders.block_plans import Watch
from tests.loaders.gpu.children import children, mark
from tests.loaders.gpu.plans import plan_of, read, stamped_file
from wattload.core.errors import ConfigError, RunError, TargetError
from wattload.core.sysfs import Roots
from wattload.loaders.block_reads import ReadPlan
from wattload.loaders.bounce import Config as Bounce
from wattload.loaders.cufile import Config as CuFile
from wattload.loaders.gpu import host, process
from wattload.loaders.gpu.process import Child, Message

Stubs = Callable[..., None]
AUTO = CuFile(mode="auto")

__all__ = ["mark"]

MODULE = "wattload.loaders.gpu"


@pytest.fixture
def plan(tmp_path: Path) -> ReadPlan:
    """A plan over one file."""
    return plan_of(stamped_file(tmp_path / "file"))


Refusal = tuple[Bounce | CuFile, dict[str, str], str]
REFUSALS: list[Refusal] = [
    (Bounce(), {"STUB_CUDA_NO_DEVICE": "1"}, "no CUDA-capable device"),
    (Bounce(), {"STUB_CUDA_PCI": "0000:01:00.0"}, "CUDA shows no GPU 0000:65:00.0"),
    (
        Bounce(),
        {"STUB_CUDA_FREE_BYTES": "8000"},
        r"GPU 0 \(0000:65:00.0\) has 0 MB free, and the buffers of 4 threads need 1 MB; use",
    ),
    (Bounce(), {"STUB_CUDA_REGISTER_ERROR": "2"}, "cuMemHostRegister failed: out of memory"),
    (AUTO, {"STUB_CUFILE_OPEN_ERROR": "5033"}, r"cuFile does not start \(5033\): the driver"),
    (AUTO, {"STUB_CUFILE_OPEN_ERROR": "-22"}, r"cuFile does not start \(-22\): Invalid argument"),
    (AUTO, {"STUB_CUFILE_BUFFER_ERROR": "5045"}, r"\(5045\): a buffer can't be registered"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal[2][:40])
def test_what_the_libraries_refuse(
    refusal: Refusal, stubs: Stubs, plan: ReadPlan, tmp_path: Path
) -> None:
    config, variables, sentence = refusal
    stubs(**variables)
    with pytest.raises(ConfigError, match=sentence):
        read(config, plan, tmp_path)
    assert not children(MODULE)


@pytest.mark.usefixtures("stubs")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("5027", "udev knows nothing of its disk"),
        ("5034", "the configuration of cuFile disables it"),
        ("5099", "an unknown error"),
    ],
)
def test_files_that_cufile_refuses_name_their_target(
    code: str, reason: str, stubs: Stubs, tmp_path: Path
) -> None:
    stubs(STUB_CUFILE_REGISTER_ERROR=code)
    folder = tmp_path / "wattload-data" / "gpu_read"
    folder.mkdir(parents=True)
    plan = plan_of(stamped_file(folder / "file"))
    with pytest.raises(TargetError, match=rf"^cuFile refuses {tmp_path} \({code}\): {reason}"):
        read(AUTO, plan, tmp_path)


@pytest.mark.usefixtures("stubs")
def test_files_that_are_not_as_planned(plan: ReadPlan, tmp_path: Path) -> None:
    (file,) = plan.files
    longer = replace(plan, files=(replace(file, size_bytes=file.size_bytes + 1),))
    words = rf"^{file.path} is a file of 262144 bytes, 262145 are planned; remove the data folder"
    with pytest.raises(TargetError, match=words):
        read(Bounce(), longer, tmp_path)
    absent = replace(plan, files=(replace(file, path=tmp_path / "absent"),))
    with pytest.raises(FileNotFoundError):
        read(Bounce(), absent, tmp_path)


def test_without_a_driver(
    stub_libraries: Path, plan: ReadPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    sentence = r"^no CUDA driver \(libcuda.so.1\): install"
    with pytest.raises(ConfigError, match=sentence):
        read(Bounce(), plan, tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        host.probe()
    (tmp_path / "libcuda.so.1").symlink_to(stub_libraries / "libcuda.so.1")
    with pytest.raises(ConfigError, match=r"^cuFile is not installed \(libcufile.so.0\)"):
        read(AUTO, plan, tmp_path)
    assert "not installed" in str(host.probe().cufile_refusal)


def test_the_probe_says_what_is_there(stubs: Stubs) -> None:
    stubs(STUB_CUDA_GPUS="2", STUB_CUFILE_VERSION="1200")
    found = host.probe()
    assert [gpu.address for gpu in found.gpus] == ["0000:65:00.0", "0000:66:00.0"]
    assert (found.cuda, found.cufile, found.cufile_refusal) == ("13.0", "1.20", None)
    stubs(STUB_CUFILE_OPEN_ERROR="5001")
    refused = host.probe()
    assert refused.cufile == "1.20"
    assert "(5001): nvidia-fs is not loaded" in str(refused.cufile_refusal)


def test_a_cufile_that_hangs(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    stubs(STUB_CUFILE_HANG="driver_open", STUB_CUFILE_VERSION="1200")
    receive, is_opening = Child.receive, False

    def hurry_once_it_opens(child: Child, timeout_s: float) -> Message | None:
        nonlocal is_opening
        message = receive(child, 1.0 if is_opening else 60.0)
        is_opening = message is not None and message.kind == "opening"
        return message

    monkeypatch.setattr(Child, "receive", hurry_once_it_opens)
    found = host.probe()
    assert str(found.cufile_refusal).startswith("libcufile 1.20 did not answer in 20 s")
    assert found.gpus
    assert not children(MODULE)


def test_a_preparation_that_hangs(
    stubs: Stubs, plan: ReadPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs(STUB_CUFILE_HANG="driver_open")
    monkeypatch.setattr(process, "PREPARE_S", 1.0)
    with pytest.raises(
        RunError, match="was not ready in 1 s, with 4 reads in flight; use fewer threads"
    ):
        read(AUTO, plan, tmp_path)


def test_reads_that_hang(
    stubs: Stubs, plan: ReadPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs(STUB_CUFILE_HANG="read")
    monkeypatch.setattr(process, "HANG_S", 1.0)
    with pytest.raises(RunError, match="reads hang: none has ended for 1 s, after 0 reads"):
        read(AUTO, plan, tmp_path)
    assert not children(MODULE)


@pytest.mark.parametrize("config", [Bounce(), Bounce(submit="ring")])
def test_a_gpu_that_is_lost(config: Bounce, stubs: Stubs, plan: ReadPlan, tmp_path: Path) -> None:
    stubs(STUB_CUDA_LOSE_AFTER="100")
    with pytest.raises(RunError, match=r"the GPU was lost, reads ended: .*unknown error \(999\)"):
        read(config, plan, tmp_path)


@pytest.mark.usefixtures("stubs")
def test_a_process_that_is_killed(plan: ReadPlan, tmp_path: Path) -> None:
    reader = Bounce().block_reader(replace(plan, duration_s=20.0), tmp_path)
    (child,) = children(MODULE)
    threading.Timer(0.3, os.kill, (child, signal.SIGKILL)).start()
    sentence = "the process that reads was ended by signal 9"
    with pytest.raises(RunError, match=sentence):
        reader.run(Watch())
    reader.close()


@pytest.mark.usefixtures("stubs")
def test_readers_end_with_the_run(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.loaders.block_plans import Watch;"
        "from tests.loaders.gpu.plans import *;"
        "from wattload.loaders.bounce import Config; folder = Path(sys.argv[1]);"
        "plan = plan_of(stamped_file(folder / 'file'), duration_s=60.0);"
        "reader = Config().block_reader(plan, folder); print('ready', flush=True);"
        "reader.run(Watch())"
    )
    run = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    assert children(MODULE)
    run.kill()
    run.wait()
    run.stdout.close()
    end_s = time.monotonic() + 10
    while children(MODULE) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not children(MODULE)


def test_blocks_that_cufile_would_cut(plan: ReadPlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"at most 16777216 bytes .*block_bytes is 33554432"):
        AUTO.check_block_reads(replace(plan, block_bytes=32 << 20), [])


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host whose cgroup allows 1024 tasks, of which 30 are in use."""
    group = tmp_path / "sys/fs/cgroup"
    for name, text in {
        group / "pids.max": "1024", group / "pids.current": "30", group / "memory.max": "max",
        tmp_path / "proc/self/cgroup": "0::/",
        tmp_path / "proc/self/mountinfo":
            "30 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        tmp_path / "proc/self/status": "Name:\tx\nCapEff:\t0000000000000000",
        tmp_path / "proc/sys/kernel/threads-max": "100000",
    }.items():  # fmt: skip
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text(text + "\n")
    return Roots(sys=tmp_path / "sys", proc=tmp_path / "proc")


def test_limits_of_the_host(plan: ReadPlan, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    host.check_limits(plan, ring=True, roots=roots)
    many = replace(plan, in_flight=2048)
    with pytest.raises(ConfigError, match=r"^2048 threads, pids.max is 1024 and 30 are in use: "):
        host.check_limits(many, roots=roots)
    (roots.sys / "fs/cgroup/pids.max").write_text("max\n")
    host.check_limits(many, roots=roots)
    # The limit of a process that may not lock memory binds the ring only.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    large = replace(plan, in_flight=64, block_bytes=1 << 20)
    host.check_limits(large, roots=roots)
    with pytest.raises(ConfigError, match=r"^RLIMIT_MEMLOCK 8 MiB, .* buffers of 64 MiB: raise"):
        host.check_limits(large, ring=True, roots=roots)
    (roots.proc / "self/status").write_text("CapEff:\t0000000000004000\n")
    host.check_limits(large, ring=True, roots=roots)
    (roots.sys / "fs/cgroup/memory.max").write_text("60000000\n")
    with pytest.raises(ConfigError, match=r"buffers of 67.11 MB for 64 threads, the memory limit"):
        host.check_limits(large, roots=roots)
