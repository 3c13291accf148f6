"""In the guest: root's sampler, and nobody's runs on the virtual drive by the kernel's driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.virtual_runs import CHECK_FAILED, FINISHED, ROOT, SERIAL, VIRTUAL, controller, mount
from tests.power.nobody import NOBODY, as_nobody, folder_for_all, give
from tests.run.running import call_here
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.power.nvme.admin import NvmeAdmin
from wattload.power.nvme.features import read_power_state

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]

RUN = "import sys; from wattload.__main__ import main; sys.exit(main())"
QUICK = ("run", "workload=null", "scale=demo", "power.state=1", "power.allow_system_drive=true")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with ``runs`` and ``target`` that are nobody's; the target is on the drive."""
    with folder_for_all() as folder:
        target = mount() / "nobody"
        target.mkdir(exist_ok=True)
        (folder / "runs").mkdir()
        give(folder / "runs", target)
        (folder / "target").symlink_to(target)
        yield folder


@pytest.fixture
def service(place: Path) -> Iterator[Path]:
    """The socket of a sampler that root runs, for nobody's group."""
    path = place / "socket"
    command = [sys.executable, "-m", "wattload", "sampler", "--socket", str(path)]
    grants = ["--group", str(NOBODY), "--allow-system-drive"]
    with subprocess.Popen([*command, *grants], cwd=ROOT) as process:
        wait_for(path.exists)
        yield path
        process.terminate()


def state() -> int:
    """Return the drive's power state."""
    device = NvmeAdmin(controller())
    try:
        return read_power_state(device)
    finally:
        device.close()


def run(place: Path, *words: str) -> subprocess.Popen[str]:
    where = (f"target.path={(place / 'target').resolve()}", f"runs={place / 'runs'}")
    home = {"HOME": str((place / "target").resolve())}
    return as_nobody(RUN, *QUICK, *where, *words, environment=home)


def test_nobody_alone_can_not_set_a_power_state(place: Path) -> None:
    process = run(place)
    _, error = process.communicate()
    assert process.returncode not in (FINISHED, CHECK_FAILED)
    assert f"can't be opened by user {NOBODY}" in error


def test_nobody_s_run_is_set_sampled_and_put_back_by_root_s_sampler(
    place: Path, service: Path
) -> None:
    waits = ("power.idle_s=0", "power.rest_max_s=0")
    process = run(place, f"power.sampler_socket={service}", *waits)
    _, error = process.communicate()
    assert process.returncode in (FINISHED, CHECK_FAILED), error
    (path,) = (place / "runs").glob("*/" + RECORD_FILE)
    record = read_record(path)
    (reported,) = [each for each in record.power.states if each.serial == SERIAL]
    assert (reported.verified, reported.after, reported.restored) == (1, 1, 0)
    assert state() == 0
    assert {each.stat().st_uid for each in path.parent.rglob("*")} == {NOBODY}


def test_nobody_s_killed_run_is_put_back_and_recorded(place: Path, service: Path) -> None:
    process = run(place, f"power.sampler_socket={service}", "power.idle_s=600")
    wait_for(lambda: state() == 1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: list((place / "runs").glob("*/" + RECORD_FILE)) != [])
    assert state() == 0
    (path,) = (place / "runs").glob("*/" + RECORD_FILE)
    assert read_record(path).status == "aborted"
    assert path.stat().st_uid == NOBODY


def test_second_run_on_the_drive_is_refused(place: Path, service: Path) -> None:
    """Root's, by a sampler of its own: the drive is one all the same."""
    process = run(place, f"power.sampler_socket={service}", "power.idle_s=600")
    wait_for(lambda: state() == 1)
    second = call_here(
        ROOT, "run", "workload=null", "scale=demo", f"target.path={mount()}",
        f"runs={place / 'of-root'}", WATTLOAD_STATE_DIR=os.environ["WATTLOAD_STATE_DIR"],
    )  # fmt: skip
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert second.returncode == 1
    assert f"controller {SERIAL} is in use by run " in second.stderr
    wait_for(lambda: state() == 0)


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; an emulated processor takes its time."""
    deadline_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline_s, "nothing came of it"
        time.sleep(0.2)
