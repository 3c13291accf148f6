"""What uses a drive, seen by the guard: mounts, devices over it, processes and exports."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any

import pytest

from tests.core.storage.drives import (
    EVERY_NAME,
    Bench,
    FakeNvme,
    fill,
    holding,
    mounted_elsewhere,
)
from tests.core.storage.loops import (
    add_partition,
    command,
    digest,
    loop_device,
    must,
)
from tests.core.storage.mounting import mounted
from wattload.core.errors import TargetError
from wattload.core.storage import device_users
from wattload.core.storage import guard as guard_module

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can attach loop devices")


def test_a_mounted_drive_is_refused(bench: Bench, tmp_path: Path) -> None:
    must("mkfs.ext4", "-q", str(bench.device))
    with mounted(tmp_path / "mounted", str(bench.device)) as at:
        assert f"is mounted at {at}" in bench.refused("unknown")


def test_a_mounted_partition_is_refused(bench: Bench, tmp_path: Path) -> None:
    add_partition(bench.device, "1", "2048", "20480")
    must("mkfs.ext4", "-q", f"{bench.device}p1")
    with mounted(tmp_path / "mounted", f"{bench.device}p1") as at:
        assert f"is mounted at {at}" in bench.refused("unknown")


@pytest.mark.parametrize("part", ["", "p1"])
def test_a_mount_in_another_namespace_is_refused(bench: Bench, tmp_path: Path, part: str) -> None:
    if part:
        add_partition(bench.device, "1", "2048", "20480")
    must("mkfs.ext4", "-q", f"{bench.device}{part}")
    with mounted_elsewhere(tmp_path, f"{bench.device}{part}") as process:
        found = bench.refused(*EVERY_NAME)
    where = f"{bench.device.name}{part} is mounted at {tmp_path}/elsewhere in the mount namespace"
    assert f"{where} of process {process}" in found


def test_swap_is_refused(bench: Bench) -> None:
    must("mkswap", str(bench.device))
    if command("swapon", str(bench.device)).returncode:
        pytest.skip("swapon is refused here")
    try:
        assert f"holds the running system (swap {bench.device})" in bench.refused("unknown")
    finally:
        must("swapoff", str(bench.device))


def test_a_backing_file_of_another_loop_device_is_refused(bench: Bench) -> None:
    with loop_device(bench.image) as other:
        found = bench.refused(*EVERY_NAME)
        assert f"{other.name}, a loop device over the same file is active; detach it" in found


def test_a_drive_that_another_program_locked_is_refused(bench: Bench) -> None:
    with subprocess.Popen(["flock", str(bench.device), "sleep", "60"]) as held:
        try:
            time.sleep(0.3)
            found = bench.refused()
        finally:
            subprocess.run(["pkill", "-P", str(held.pid)], check=False)
            held.kill()
    assert "is held by what can't be seen from here" in found


def test_a_hard_link_of_the_backing_file_is_the_same_file(bench: Bench) -> None:
    link = bench.image.with_name("link.img")
    link.hardlink_to(bench.image)
    with loop_device(link) as other:
        assert f"{other.name}, a loop device over the same file" in bench.refused(*EVERY_NAME)


@pytest.mark.parametrize("part", ["", "p1"])
def test_a_writer_without_exclusive_access_is_found(bench: Bench, part: str) -> None:
    if part:
        add_partition(bench.device, "1", "2048", "20480")
    device = Path(f"{bench.device}{part}")
    with holding(device, "held = os.open(sys.argv[1], os.O_RDWR)") as process:
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert "has it open for writing; end that first" in found
    with holding(device, "held = os.open(sys.argv[1], os.O_RDONLY)"):
        bench.accepted()


THREAD = """import ctypes, mmap, threading
ready = threading.Event()
libc = ctypes.CDLL(None, use_errno=True)
def is_ended():
    with open(f"/proc/{os.getpid()}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"
def hold():
    assert libc.unshare($flags) == 0
    held = os.open(sys.argv[1], os.O_RDWR)
    if $maps:
        mapped = mmap.mmap(held, 4096)
        os.closerange(3, 64)
    ready.set()
    while $ends and not is_ended():
        time.sleep(0.01)
    if $ends:
        print(os.getpid(), flush=True)
    time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
ready.wait()
if $ends:
    libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
"""A thread uses a device. CLONE_FILES of unshare(2) gives it a table of open files of its own;
``exit`` as a system call ends the main thread alone."""


@pytest.mark.parametrize("ends", [True, False], ids=["main thread ended", "main thread lives"])
@pytest.mark.parametrize("flags", [0, 0x400], ids=["shared files", "own files"])
@pytest.mark.parametrize("maps", [True, False], ids=["mapped", "open"])
def test_a_thread_that_uses_the_drive_is_found(
    bench: Bench, *, ends: bool, flags: int, maps: bool
) -> None:
    script = Template(THREAD).substitute(flags=flags, maps=maps, ends=ends)
    with holding(bench.device, script) as process:
        assert (not os.listdir(f"/proc/{process}/task/{process}/fd")) == ends  # noqa: PTH208 - names
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert f"has it {'mapped' if maps else 'open'} for writing; end that first" in found
    assert found.count("process ") == 1


def test_a_program_that_opens_the_drive_for_a_moment_is_no_user(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As udev does, and ``losetup --find`` on its way to another device: it ends once seen."""
    seen: list[str] = []

    def look(process: str, *words: Any) -> str | None:
        use = use_of(process, *words)
        if use is not None:
            seen.append(use)
            os.kill(int(Path(process).name), signal.SIGKILL)
        return use

    use_of = device_users._use_of
    monkeypatch.setattr(device_users, "_use_of", look)
    with holding(bench.device, "held = os.open(sys.argv[1], os.O_RDWR)"):
        bench.accepted()
    assert seen == ["open for writing"]


def test_a_writer_of_the_backing_file_is_found(bench: Bench) -> None:
    with holding(bench.image, "held = os.open(sys.argv[1], os.O_WRONLY)") as process:
        assert f"process {process} (python" in bench.refused(*EVERY_NAME)


MAPPED = """import mmap
held = os.open(sys.argv[1], os.{})
mapped = mmap.mmap(held, 4096, flags=mmap.{}, prot=mmap.{})
os.closerange(3, 64)"""
"""Python keeps a copy of the descriptor of a mapping, which is closed too."""


@pytest.mark.parametrize("what", ["disk", "partition", "file"])
@pytest.mark.parametrize("protection", ["PROT_WRITE", "PROT_READ"])
def test_a_mapping_that_outlived_its_descriptor_is_found(
    bench: Bench, what: str, protection: str
) -> None:
    """A mapping to read of a file that was opened to write can be made writable at any time."""
    add_partition(bench.device, "1", "2048", "20480")
    places = {"disk": bench.device, "partition": Path(f"{bench.device}p1"), "file": bench.image}
    with holding(places[what], MAPPED.format("O_RDWR", "MAP_SHARED", protection)) as process:
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert "has it mapped for writing; end that first" in found


@pytest.mark.parametrize(
    ("mode", "flags", "protection"),
    [("O_RDONLY", "MAP_SHARED", "PROT_READ"), ("O_RDWR", "MAP_PRIVATE", "PROT_WRITE")],
)
def test_a_mapping_that_can_not_write_is_no_user(
    bench: Bench, mode: str, flags: str, protection: str
) -> None:
    with holding(bench.device, MAPPED.format(mode, flags, protection)):
        bench.accepted()


REGISTERED = """import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
ring = call(425, 4, ctypes.create_string_buffer(120))
held = os.open(sys.argv[1], os.O_RDWR)
assert ring >= 0 and call(427, ring, 2, (ctypes.c_int * 1)(held), 1) == 0
os.close(held)"""
"""``io_uring_setup``, and ``io_uring_register`` with ``IORING_REGISTER_FILES``."""


def test_a_file_that_only_io_uring_holds_is_found(bench: Bench) -> None:
    with holding(bench.device, REGISTERED) as process:
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert "has it registered with io_uring, perhaps for writing; end that first" in found


def test_a_file_of_the_drives_name_that_io_uring_holds_is_no_user(
    bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / bench.device.name
    file.touch()
    with holding(file, REGISTERED):
        bench.accepted()


def test_a_file_system_on_a_loop_device_within_the_drive_is_refused(
    bench: Bench, tmp_path: Path
) -> None:
    with loop_device(bench.device, "--offset", "1048576") as upper:
        must("mkfs.ext4", "-q", str(upper))
        over = f"{upper.name}, a loop device over {bench.device.name} from byte 1048576"
        found = bench.refused(*EVERY_NAME)
        assert f"{bench.device} is in use: {over} is active; detach it (losetup" in found
        with mounted(tmp_path / "mounted", str(upper)) as at:
            assert f"{over}, is mounted at {at}" in bench.refused(*EVERY_NAME)
        with mounted_elsewhere(tmp_path, str(upper)) as process:
            found = bench.refused(*EVERY_NAME)
            assert f"{over}, is mounted at {tmp_path}/elsewhere in the mount namespace" in found
            assert f"of process {process}" in found
    assert bench.guard().inspect().is_final is False


def test_a_mount_of_a_loop_device_over_a_loop_device_is_refused(
    bench: Bench, tmp_path: Path
) -> None:
    add_partition(bench.device, "1", "2048", "28672")
    part = Path(f"{bench.device}p1")
    with (
        loop_device(part, "--offset", "4096") as middle,
        loop_device(middle, "--offset", "8192") as upper,
    ):
        must("mkfs.ext4", "-q", str(upper))
        with mounted(tmp_path / "mounted", str(upper)) as at:
            found = bench.refused(*EVERY_NAME)
    lower = f"{middle.name}, a loop device over {part.name} from byte 4096"
    assert f"{upper.name}, a loop device over {lower} from byte 8192, is mounted at {at}" in found


def test_a_loop_device_within_the_drive_is_found_whatever_its_path(
    bench: Bench, tmp_path: Path
) -> None:
    node = tmp_path / "node"
    os.mknod(node, 0o600 | stat.S_IFBLK, bench.device.stat().st_rdev)
    with loop_device(node, "--offset", "4096") as upper:
        node.unlink()
        assert f"{upper.name}, a loop device over {bench.device.name}" in bench.refused()


def test_swap_on_a_loop_device_within_the_drive_is_the_system(bench: Bench) -> None:
    with loop_device(bench.device, "--offset", "1048576") as upper:
        must("mkswap", str(upper))
        if command("swapon", str(upper)).returncode:
            pytest.skip("swapon is refused here")
        try:
            found = bench.refused(*EVERY_NAME)
        finally:
            must("swapoff", str(upper))
    assert f"holds the running system (swap {upper})" in found


def test_a_user_that_comes_later_is_found_before_the_first_byte(bench: Bench) -> None:
    guard = bench.guard()
    claim = guard.claim()
    try:
        guard.require_unused()
        refused = pytest.raises(TargetError, match="a loop device over loop")
        with loop_device(bench.device, "--offset", "4096"), refused:
            guard.require_unused()
        refused = pytest.raises(TargetError, match="has it open for writing")
        with holding(bench.device, "held = os.open(sys.argv[1], os.O_RDWR)"), refused:
            guard.require_unused()
    finally:
        claim.close()


def test_what_a_container_can_not_see_has_to_be_named(bench: Bench) -> None:
    """From another PID namespace the processes of the host are hidden, and so are their files."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.core.storage.drives import Bench\n"
        "from wattload.core.storage.raw_writes import RawWriteLog\n"
        "bench = Bench(Path(sys.argv[1]), Path(sys.argv[2]), RawWriteLog(Path(sys.argv[3])))\n"
        "print(*[each.sentence for each in bench.guard().inspect().refusals], sep='\\n')\n"
        "guard = bench.accepted('unseen')\nprint(guard.findings, guard.overwritten)\n"
    )
    inside = ("unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code)
    with holding(bench.device, "held = os.open(sys.argv[1], os.O_RDWR)"):
        shown = must(*inside, str(bench.device), str(bench.image), str(bench.log.folder))
    first, second = shown.splitlines()
    assert first == (
        f"{bench.device} may be in use by what can't be seen from here (processes outside of this "
        "container); run as root on the host itself, or make sure that nothing uses it, and add "
        "unseen to target.overwrite="
    )
    assert second == "('unseen',) ('unseen',)"
    bench.accepted()


LOCKED = "held = os.open(sys.argv[1], os.O_RDONLY)\nfcntl.flock(held, fcntl.LOCK_SH)"


def test_a_lock_for_a_moment_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As udev's while it handles a change: it ends once it was met."""
    waits: list[float] = []
    monkeypatch.setattr(guard_module, "LOCK_S", 60.0)
    with holding(bench.device, LOCKED) as process:

        def wait(seconds: float) -> None:
            waits.append(seconds)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            time.sleep(seconds)

        clock = SimpleNamespace(monotonic=time.monotonic, sleep=wait)
        monkeypatch.setattr(guard_module, "time", clock)
        bench.accepted()
    assert waits


def test_a_lock_that_stays_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "LOCK_S", 0.1)
    with holding(bench.device, LOCKED):
        assert "has had its device node locked for 0.1 s; end that, or wait" in bench.refused()


def test_a_lock_of_bytes_is_found(bench: Bench) -> None:
    script = "held = os.open(sys.argv[1], os.O_RDONLY)\nfcntl.lockf(held, fcntl.LOCK_SH, 1, 100)"
    with holding(bench.device, script) as process:
        assert f"process {process} (python" in bench.refused()


def test_a_held_drive_can_be_neither_mounted_nor_formatted(bench: Bench, tmp_path: Path) -> None:
    must("mkfs.ext4", "-q", str(bench.device))
    found = bench.guard().inspect().findings
    claim = bench.guard(*found).claim()
    try:
        before = digest(bench.device)
        (tmp_path / "at").mkdir()
        assert command("mkfs.ext4", "-q", str(bench.device)).returncode
        assert command("mount", str(bench.device), str(tmp_path / "at")).returncode
        assert command("swapon", str(bench.device)).returncode
        assert digest(bench.device) == before
        with pytest.raises(TargetError, match="is held by what can't be seen from here"):
            bench.guard(*found).claim()
    finally:
        claim.close()
    bench.accepted(*found)


@pytest.mark.parametrize(
    ("files", "words"),
    [({"dm__name": "vg-data"}, "holder (vg-data)"), ({"md__level": "raid1"}, "holder")],
)
def test_holders_are_named(
    nvme: FakeNvme, tmp_path: Path, files: dict[str, str], words: str
) -> None:
    holder = tmp_path / "sys/devices/virtual/holder"
    fill(holder, dev="252:7", **files)
    (holder / "holders").mkdir()
    (nvme.disk / "holders/holder").symlink_to(holder)
    assert f"{words} over nvme0n1 is active; stop it" in nvme.refusals()[0]
    with (nvme.roots.proc / "self/mountinfo").open("a") as mounts:
        mounts.write("28 27 252:7 / /data rw - ext4 /dev/mapper/data rw\n")
    assert f"{words} over nvme0n1 is mounted at /data" in nvme.refusals()[0]


LIO_FILE = "Status: ACTIVATED\n    TCM FILEIO ID: 0    File: {}  Size: 4096  Mode: O_DSYNC"


LIO_BLOCK = "iBlock device: sda  UDEV PATH: {}  readonly: 0"


@pytest.mark.parametrize(
    ("place", "text", "path", "who"),
    [
        ("nvmet/subsystems/s/namespaces/1/device_path", "{}", "/dev/disk/by-id/x", "nvmet"),
        ("nvmet/subsystems/s/namespaces/1/device_path", "{}", "/dev/gone/nvme0n1", "nvmet"),
        ("nvmet/subsystems/s/passthru/device_path", "{}", "/dev/nvme0", "nvmet"),
        ("target/core/fileio_0/disk/info", LIO_FILE, "/dev/disk/by-id/x", "LIO"),
        ("target/core/iblock_0/disk/info", LIO_BLOCK, "/dev/disk/by-id/x", "LIO"),
        ("usb_gadget/g/functions/mass_storage.0/lun.0/file", "{}", "/dev/disk/by-id/x", "a USB"),
    ],
)
def test_an_export_to_other_hosts_is_refused(
    nvme: FakeNvme, place: str, text: str, path: str, who: str
) -> None:
    """A made-up configfs: only the lab's kernel has these modules."""
    node, other = nvme.roots.top / "dev/disk/by-id/x", nvme.roots.top / "dev/null"
    node.parent.mkdir(parents=True)
    node.symlink_to(nvme.bench.device)
    other.symlink_to("/dev/null")
    export = nvme.roots.sys / "kernel/config" / place
    export.parent.mkdir(parents=True)
    export.write_text(text.format("/dev/null"))
    assert nvme.refusals() == []
    export.write_text(text.format(path))
    (found,) = nvme.refusals()
    assert f"is in use: {who}" in found
    assert f" exports {path} ({export.parent}); disable that first" in found
    (export.parent / "enable").write_text("0\n")
    assert nvme.refusals() == []


def test_exports_that_can_not_be_seen_have_to_be_named(nvme: FakeNvme) -> None:
    (nvme.roots.sys / "module/nvmet").mkdir(parents=True)
    (found,) = nvme.refusals()
    assert "(exports to other hosts, since configfs is not mounted)" in found
    assert nvme.refusals(overwrite=frozenset({"unseen"})) == []
    (nvme.roots.sys / "kernel/config/nvmet").mkdir(parents=True)
    assert nvme.refusals() == []


def test_a_loop_device_without_its_node_is_found_by_its_path_or_unseen(nvme: FakeNvme) -> None:
    """As in a container that has the host's sysfs and few of its device nodes."""
    fill(nvme.roots.sys / "block/loop7", dev="7:7", loop__backing_file="/dev/vdz", loop__offset="0")
    (found,) = nvme.refusals()
    assert (
        "may be in use by what can't be seen from here (what other loop devices are over)" in found
    )
    fill(nvme.roots.sys / "block/loop7", loop__backing_file="/nvme0n1", loop__offset="4096")
    (nvme.roots.sys / "block/loop7/holders").mkdir()
    found = nvme.refusals(overwrite=frozenset({"unseen"}))[0]
    assert "is in use: loop7, a loop device over nvme0n1 from byte 4096 is active" in found


def test_a_generic_node_of_the_drive_counts_as_the_drive(nvme: FakeNvme) -> None:
    """``/dev/null`` stands for the node, whose commands reach the same blocks."""
    fill(nvme.roots.sys / "class/nvme-generic/ng0n1", dev="1:3")
    process = nvme.roots.proc / "77"
    fill(process, comm="xnvme", stat="77 (xnvme) S 1", maps="")
    (process / "fd").mkdir()
    (process / "ns").symlink_to(nvme.roots.proc / "self/ns")
    (process / "fd/3").symlink_to("/dev/null")
    (found,) = nvme.refusals()
    assert "process 77 (xnvme) has it open for writing" in found
