"""What goes wrong in the middle: each is one sentence with file and offset, and no result."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.contracts.engine import BLOCK, open_descriptors, plan
from tests.loaders.faults import (
    BROKEN_FROM_BYTES,
    NO_URING,
    breaking_file,
    broken_media,
    coarse_device,
)
from tests.loop_devices import identity_of
from wattload.core.errors import ConfigError, DataError
from wattload.core.io import Extent, Stamps
from wattload.loaders.aligned_io import aligned_buffer, direct_alignment
from wattload.loaders.direct.config import Config
from wattload.loaders.direct.loader import FileReader
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import backend_unavailable

ROOT = Path(__file__).parents[3]


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with the engine imported."""
    return subprocess.run(
        [sys.executable, "-c", IMPORTS + code],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


IMPORTS = """
import os, resource, sys, time
from pathlib import Path
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.loaders.direct.config import Config, open_engine
from wattload.loaders.engine.library import load
load()
def read(path, size, **more):
    return IOPlan(kind=IOKind.READ, extents=(Extent(Path(path), 0, size),), block_bytes=65536,
                  depth=4, **more)
def write(path, size):
    return IOPlan(kind=IOKind.WRITE, extents=(Extent(Path(path), 0, size),), block_bytes=65536,
                  depth=4)
"""


def test_a_medium_that_fails_in_the_middle_is_named(engine: IOEngine, tmp_path: Path) -> None:
    size = 24 << 20
    with breaking_file(tmp_path, size) as path:
        before = open_descriptors()
        with pytest.raises(OSError, match=r"read at offset \d+ failed: Input/output") as caught:
            engine.run(plan("read", Extent(path, 0, size)))
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(path))
        assert open_descriptors() == before
        good = engine.run(plan("read", Extent(path, 0, BLOCK)))
        assert good.moved_bytes == BLOCK
        offset = int(re.findall(r"offset (\d+)", str(caught.value))[0])
        assert 0 < offset < size
        assert offset % 4096 == 0
    assert size > BROKEN_FROM_BYTES


def test_a_failed_fsync_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = child(
        f"""
from dataclasses import replace
engine = open_engine(Config(engine="pread", block_bytes=65536, queue_depth=4))
try:
    engine.run(replace(write({str(path)!r}, 1 << 20), fsync=True))
except OSError as error:
    print(error.errno, error)
""",
        LD_PRELOAD=str(broken_media(tmp_path)),
        FAIL_SYNC="1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"{errno.EIO} [Errno {errno.EIO}] fsync failed: Input/output error: '{path}'\n"
    )


def test_short_transfers_are_continued_where_they_stopped(tmp_path: Path) -> None:
    """Every call moves 8 kB of the 64 kB that were requested; no byte is lost or moved twice."""
    path, stamps = tmp_path / "file", "Stamps(nonce=3, word=4)"
    done = child(
        f"""
from dataclasses import replace
from wattload.core.io import Stamps
engine = open_engine(Config(engine="pread", block_bytes=65536, queue_depth=4))
wrote = engine.run(replace(write({str(path)!r}, 300_001), stamps={stamps}))
back = engine.run(replace(read({str(path)!r}, 300_001), stamps={stamps}))
print(wrote.moved_bytes, back.moved_bytes, back.bad_blocks)
print(wrote.operation_count, back.operation_count)
""",
        LD_PRELOAD=str(broken_media(tmp_path)),
        PART_BYTES="8192",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "300001 300001 0\n5 5\n"
    assert path.stat().st_size == 300_001


def test_a_write_that_stops_within_a_block_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = child(
        f"""
engine = open_engine(Config(engine="pread", block_bytes=65536, queue_depth=4))
try:
    engine.run(write({str(path)!r}, 1 << 20))
except OSError as error:
    print(error)
""",
        LD_PRELOAD=str(broken_media(tmp_path)),
        PART_BYTES="100",
    )
    assert done.returncode == 0, done.stderr
    expected = rf".*write at offset \d+.*: the device wrote a partial block.*{path}.*\n"
    assert re.fullmatch(expected, done.stdout), done.stdout


def test_a_file_that_shrinks_while_it_is_read_is_no_result(
    engine: IOEngine, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 * BLOCK))
    rate = 8 * BLOCK / 0.4
    ticket = engine.submit(plan("read", Extent(path, 0, 8 * BLOCK), rate_bytes_per_s=rate))
    while ticket.progress()[1] < 2:
        ticket.wait(0.001)
    os.truncate(path, 5000)
    with pytest.raises(DataError, match=re.escape(str(path)) + ".* (is truncated|changed while)"):
        ticket.result()


def test_a_device_with_blocks_of_16_kib_is_written_and_read(
    engine: IOEngine, tmp_path: Path
) -> None:
    with coarse_device(tmp_path, 16384) as device:
        alignment = direct_alignment(device)
        assert alignment == 16384
        extent, stamps = Extent(device, 16384, 3 * BLOCK), Stamps(nonce=3, word=4)
        written = plan("write", extent, stamps=stamps, device=identity_of(device))
        engine.run(written, alignment_bytes=alignment)
        read = engine.run(plan("read", extent, stamps=stamps), alignment_bytes=alignment)
        assert read.bad_blocks == 0
        with pytest.raises(OSError, match="Invalid argument"):  # what the refusal is for
            engine.run(plan("read", Extent(device, 4096, 4096), block=4096))
        with pytest.raises(ConfigError, match="multiples of 16384"):
            engine.run(plan("read", Extent(device, 4096, 1)), alignment_bytes=alignment)


def test_the_end_of_a_coarse_device_is_read_by_the_reader(tmp_path: Path) -> None:
    with coarse_device(tmp_path, 16384) as device:
        content = os.urandom(3 << 20)
        with device.open("r+b") as file:
            file.write(content)
            os.fsync(file.fileno())
        buffer = aligned_buffer(3 << 20, 16384)
        config = Config(block_bytes=65536, queue_depth=2)
        reader = FileReader(config, buffers=[buffer])
        size = (3 << 20) - 20_000
        assert reader.submit([(device, size)], buffer[None]).result().moved_bytes == size
        assert buffer[:size].tobytes() == content[:size]
        with pytest.raises(ConfigError, match="at least the plan's 16384 bytes, got 8192"):
            reader.submit([(device, 5000)], buffer[None, :8192])
        reader.close()


@pytest.mark.parametrize("most_entries", [0, 64])
def test_where_io_uring_is_forbidden_auto_says_what_it_took_instead(
    tmp_path: Path, most_entries: int
) -> None:
    """Forbidden altogether, or by a limit that a small ring for a probe is still under."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(300_000))
    done = child(
        NO_URING
        + f"""
engine = open_engine(Config(block_bytes=65536, queue_depth=256))
result = engine.run(read({str(path)!r}, 300_000))
print(result.moved_bytes, result.path.engine, result.path.remarks, sep="\\n")
engine.close()
try:
    open_engine(Config(engine="io_uring", block_bytes=65536, queue_depth=256))
except Exception as error:
    print(type(error).__name__, error)
""",
        MOST_ENTRIES=str(most_entries),
    )
    assert done.returncode == 0, done.stderr
    moved, engine, remarks, refused = done.stdout.splitlines()
    assert (moved, engine) == ("300000", "pread, 256 threads")
    assert "io_uring can't run here" in remarks
    assert "pread was used instead" in remarks
    assert refused.startswith("ConfigError loader.engine=io_uring can't run here: ")


def test_a_registration_that_is_refused_is_told_and_does_not_stop_the_run() -> None:
    """As an ordinary user with little lockable memory: root is never refused."""
    if os.geteuid() != 0:
        pytest.skip("only root can become an ordinary user here")
    if backend_unavailable("io_uring") is not None:
        pytest.skip("io_uring can't run here")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "file"
        path.write_bytes(os.urandom(300_000))
        path.chmod(0o644)
        done = child(
            f"""
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
engine = open_engine(Config(block_bytes=65536, queue_depth=4))
result = engine.run(read({str(path)!r}, 300_000))
print(result.moved_bytes, result.path.engine, result.path.remarks, sep="\\n")
"""
        )
    assert done.returncode == 0, done.stderr
    moved, engine, remarks = done.stdout.splitlines()
    assert moved == "300000"
    assert "buffers registered" not in engine
    assert re.search(
        r"refused to register the engine's 262144 bytes of buffers \(.*"
        r"RLIMIT_MEMLOCK is 65536 bytes\)",
        remarks,
    )


@pytest.mark.parametrize("name", ["io_uring", "pread"])
def test_an_interrupt_ends_a_plan_that_would_go_on(tmp_path: Path, name: str) -> None:
    if backend_unavailable(name) is not None:
        pytest.skip(f"{name} can't run here")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    code = f"""
engine = open_engine(Config(engine={name!r}, block_bytes=65536, queue_depth=4))
before = len(os.listdir("/proc/self/fd"))
print("ready", flush=True)
try:
    engine.run(read({str(path)!r}, 1 << 20, duration_s=50.0))
except KeyboardInterrupt:
    print(time.monotonic_ns(), before == len(os.listdir("/proc/self/fd")), flush=True)
engine.close()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTS + code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    seen_ns, is_tidy = out.split()
    assert int(seen_ns) > 0
    assert is_tidy == "True"
    assert process.returncode == 0


def test_signals_are_seen_while_a_stopped_plan_still_syncs(tmp_path: Path) -> None:
    """The first interrupt stops the plan; those that follow are not held up by its fsync."""
    syncing = tmp_path / "syncing"
    done = child(
        f"""
import signal
from dataclasses import replace
syncing, seen = Path({str(syncing)!r}), []
def alarm(*_):
    if syncing.exists():
        seen.append(True)
        if len(seen) % 2:
            raise KeyboardInterrupt
    elif seen:
        seen.append(False)
signal.signal(signal.SIGALRM, alarm)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.2)
engine = open_engine(Config(engine="pread", block_bytes=65536, queue_depth=4))
try:
    engine.run(replace(write({str(tmp_path / "file")!r}, 1 << 20), fsync=True))
except KeyboardInterrupt:
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(seen)
engine.close()
print(syncing.exists())
""",
        LD_PRELOAD=str(broken_media(tmp_path)),
        SLOW_SYNC=str(syncing),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[True, True, True]\nFalse\n"


@pytest.mark.parametrize("name", ["io_uring", "pread"])
@pytest.mark.parametrize("ending", ["", "del engine, ticket; import gc; gc.collect()"])
def test_a_process_that_forgets_a_plan_under_way_ends_well(
    tmp_path: Path, name: str, ending: str
) -> None:
    """The pollers stamp blocks in memory that goes with the interpreter."""
    if backend_unavailable(name) is not None:
        pytest.skip(f"{name} can't run here")
    path = tmp_path / "file"
    done = child(
        f"""
from dataclasses import replace
from wattload.core.io import Stamps
engine = open_engine(Config(engine={name!r}, block_bytes=65536, queue_depth=4))
ticket = engine.submit(replace(write({str(path)!r}, 1 << 20), duration_s=50.0, stamps=Stamps(1, 2)))
while ticket.progress()[1] < 100:
    time.sleep(0.001)
{ending}
print("ends")
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_a_process_that_was_forked_off_leaves_the_engine_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    done = child(
        f"""
engine = open_engine(Config(engine="pread", block_bytes=65536, queue_depth=4))
ticket = engine.submit(read({str(path)!r}, 1 << 20, duration_s=50.0))
child = os.fork()
if not child:
    engine.close()  # as a `finally` does
    sys.exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(code, ticket.wait(0.0))
engine.close()
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 False\n", "")
