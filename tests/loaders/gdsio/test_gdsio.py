"""loader=gdsio against a program that prints what gdsio prints."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run.running import family, started_family, until
from wattload.core.errors import ConfigError, MissingExtraError, RunError
from wattload.core.io import Stamps
from wattload.core.sysfs import Roots
from wattload.loaders.block_reads import BlockReadConfig, ReadFile, ReadPlan
from wattload.loaders.gdsio import Config, GdsioReader, Totals, gpu_number, read_lines
from wattload.run.compose import compose

GPUS = ("0000:1b:00.0", "0000:65:00.0")
READ = (
    "IoType: RANDREAD XferType: GPUD Threads: 4 DataSetSize: 409600/5120000(KiB) "
    "IOSize: 4(KiB) Throughput: 0.195312 GiB/sec, Avg_Latency: 589.436984 usecs ops: 102400 "
    "total_time 2.000000 secs"
)
SLOWER = (
    "READ XferType: GPUD Threads: 2 IoDepth: 8 DataSetSize: 204800/5120000(KiB) "
    "IOSize: 4(KiB) Throughput: 0.093750 GiB/sec, Avg_Latency: 100.000000 usecs ops: 51200 "
    "total_time 2.500000 secs"
)
WRITE = READ.replace("RANDREAD", "WRITE")


def make_roots(folder: Path, *, driver_reads: int | None = None) -> Roots:
    roots = Roots(sys=folder / "sys", proc=folder / "proc")
    for gpu in GPUS:
        (roots.proc / "driver/nvidia/gpus" / gpu).mkdir(parents=True)
    if driver_reads is not None:
        stats = roots.proc / "driver/nvidia-fs/stats"
        stats.parent.mkdir()
        stats.write_text(f"GDS Version: 1.15\nReads\t: n={driver_reads} ok={driver_reads} err=0\n")
        enabled = roots.sys / "module/nvidia_fs/parameters/rw_stats_enabled"
        enabled.parent.mkdir(parents=True)
        enabled.write_text("1\n")
    return roots


def make_plan(folder: Path, threads: int = 6) -> ReadPlan:
    files = []
    for number, gpu in enumerate(GPUS):
        path = folder / f"file {number}"
        path.write_bytes(b"")
        stamps = Stamps(nonce=1, word=number)
        files.append(
            ReadFile(path=path, size_bytes=5_242_880, gpu=gpu, node=number or None, stamps=stamps)
        )
    return ReadPlan(
        files=tuple(files),
        block_bytes=4096,
        read_bytes=4096,
        in_flight=threads,
        duration_s=2.0,
        seed=7,
    )


def make_program(folder: Path, lines: Sequence[str], after: str = "") -> str:
    path = folder / "gdsio"
    printed = "\n".join(f"echo {shlex.quote(line)}" for line in lines)
    path.write_text(f'#!/bin/sh\necho "$@" > arguments\n{printed}\n{after}\n')
    path.chmod(0o755)
    return str(path)


def reader(tmp_path: Path, binary: str, roots: Roots, transfer: int = 0) -> GdsioReader:
    output = tmp_path / "output"
    output.mkdir()
    return GdsioReader(Path(binary), transfer, make_plan(tmp_path), output, roots)


class Watch:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def begin(self) -> None:
        self.seen.append("begin")

    def moved(self, reads: int, read_bytes: int) -> None:
        self.seen.append((reads, read_bytes))

    def end(self, start_ns: int, end_ns: int) -> None:
        self.seen.append("end")


def test_its_yaml_composes_to_its_own_settings() -> None:
    run, _ = compose(["loader=gdsio", "target.path=/tmp", "loader.transfer=2"])
    assert run.loader == Config(transfer=2)
    assert isinstance(run.loader, BlockReadConfig)


def test_each_file_has_a_group_with_its_gpu_its_node_and_its_threads(tmp_path: Path) -> None:
    made = GdsioReader(
        Path(make_program(tmp_path, [])),
        0,
        make_plan(tmp_path, threads=5),
        tmp_path,
        make_roots(tmp_path),
    )
    first, second = (str(tmp_path / f"file {number}") for number in range(2))
    assert list(made.command())[1:] == [
        *("-f", first, "-d", "0", "-w", "3", "-s", "5120K"),
        *("-f", second, "-d", "1", "-n", "1", "-w", "2", "-s", "5120K"),
        *("-i", "4K", "-x", "0", "-I", "2", "-T", "2", "-k", "7"),
    ]


def test_jobs_of_several_groups_are_summed_and_their_latency_is_weighted() -> None:
    totals = Totals(read_lines("\n".join(["a log line", WRITE, READ, SLOWER, "bye"])))
    assert totals.operations == 153_600
    assert totals.moved_bytes == 614_400 * 1024
    assert totals.seconds == 2.5
    assert totals.mean_latency_s == pytest.approx((589.436984e-6 * 2 + 100e-6) / 3)
    assert totals.jobs[0].rate_bytes_per_s == pytest.approx(0.195312 * 1024**3)


def test_its_figures_become_ours_and_its_path_stays_unverified(tmp_path: Path) -> None:
    made = reader(tmp_path, make_program(tmp_path, [READ]), make_roots(tmp_path))
    watch = Watch()
    result = made.run(watch)
    assert (result.operations, result.drive_bytes) == (102_400, 409_600 * 1024)
    assert result.seconds == pytest.approx(2.0)
    assert result.latency is None
    assert result.mean_latency_s == pytest.approx(589.436984e-6)
    assert result.compared_bytes == 0
    assert result.counts is not None
    assert result.counts.word == "unverified"
    assert watch.seen == ["begin", (102_400, 409_600 * 1024), "end"]
    assert (tmp_path / "output/gdsio.log").read_text() == READ + "\n"
    assert "-x 0" in (tmp_path / "output/command.txt").read_text()


def test_only_a_driver_that_counted_these_reads_proves_a_direct_path(tmp_path: Path) -> None:
    roots = make_roots(tmp_path, driver_reads=1000)
    stats = roots.proc / "driver/nvidia-fs/stats"
    counts = "Reads : n=103400 ok=103400 err=0"
    program = make_program(tmp_path, [READ], f"echo '{counts}' > {shlex.quote(str(stats))}")
    made = reader(tmp_path, program, roots)
    result = made.run(Watch())
    counted = result.counts
    assert counted is not None
    assert (counted.nvidia_fs_reads, counted.word) == (102_400, "p2p_nvfs")
    other = counted.model_copy(update={"nvidia_fs_reads": 102_401})
    assert other.word == "unverified"


@pytest.mark.parametrize(
    ("lines", "after", "says"),
    [
        (["cuFile error: bad file"], "", "no result line: cuFile error: bad file"),
        ([], "", "no result line: it printed nothing"),
        ([WRITE], "", "no result line"),
        (["out of memory"], "exit 3", "failed with status 3: out of memory"),
    ],
)
def test_a_failure_is_one_sentence_with_the_last_line(
    lines: Sequence[str], after: str, says: str, tmp_path: Path
) -> None:
    made = reader(tmp_path, make_program(tmp_path, lines, after), make_roots(tmp_path))
    with pytest.raises(RunError, match=says):
        made.run(Watch())


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattload.loaders.gdsio.START_S", -1.8)
    program = make_program(tmp_path, ["starting"], "exec sleep 60")
    made = reader(tmp_path, program, make_roots(tmp_path))
    began = time.monotonic()
    with pytest.raises(RunError, match="did not end in 1 s"):
        made.run(Watch())
    assert time.monotonic() - began < 30


def test_it_ends_when_the_run_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = make_program(tmp_path, [], f"echo $$ > {shlex.quote(str(pid_file))}\nexec sleep 60")
    text = (
        "import subprocess\n"
        "from wattload.core.launch import with_this_process\n"
        f"subprocess.run(with_this_process([{program!r}]), cwd={str(tmp_path)!r})\n"
    )
    run = subprocess.Popen([sys.executable, "-c", text])
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = int(pid_file.read_text())
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_wrapper_of_it_has_started_ends_too(tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    text = (
        "import subprocess, sys\n"
        "from wattload.core.launch import with_this_process\n"
        f"command = with_this_process({family(pids)!r})\n"
        "print(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        launcher = int(run.stdout.readline())
        all_of_it = started_family(pids)
        if number == signal.SIGKILL:
            run.kill()
        else:
            os.kill(launcher, number)
        until(lambda: not any(map(_is_running, all_of_it)))
        run.kill()


def test_a_wrapper_that_hangs_is_ended_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    program = make_program(tmp_path, [], shlex.join(family(pids)))
    made = reader(tmp_path, program, make_roots(tmp_path))

    def wait(process: subprocess.Popen[bytes], until_s: float) -> tuple[int | None, float]:
        started_family(pids)
        return None, 0.0

    monkeypatch.setattr("wattload.loaders.gdsio._wait", wait)
    with pytest.raises(RunError, match="did not end in"):
        made.run(Watch())
    assert not any(map(_is_running, started_family(pids)))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_program_is_found_by_setting_then_cuda_then_path(tmp_path: Path) -> None:
    tools = tmp_path / "cuda/gds/tools"
    tools.mkdir(parents=True)
    in_path = make_program(tmp_path, [])
    by_path = {"PATH": str(tmp_path)}
    nowhere = tmp_path / "nowhere"
    assert str(Config().program(by_path, nowhere)) == in_path
    by_home = {**by_path, "CUDA_HOME": str(tmp_path / "cuda")}
    assert str(Config().program(by_home, nowhere)) == in_path
    in_home = make_program(tools, [])
    assert str(Config().program(by_home, nowhere)) == in_home
    assert str(Config().program(by_path, tmp_path / "cuda")) == in_home
    assert str(Config(binary=in_path).program(by_home, nowhere)) == in_path
    with pytest.raises(MissingExtraError, match="loader=gdsio needs gdsio, which is neither in"):
        Config().program({"PATH": ""}, nowhere)
    with pytest.raises(ConfigError, match="is not a program that can be started"):
        Config(binary=str(tmp_path / "absent")).program()


def test_a_gpu_that_the_driver_does_not_list_is_refused(tmp_path: Path) -> None:
    roots = make_roots(tmp_path)
    assert gpu_number(GPUS[1].upper(), roots) == 1
    with pytest.raises(ConfigError, match=r"GPU 0000:99:00\.0 is not in"):
        gpu_number("0000:99:00.0", roots)


def test_what_its_options_can_not_say_is_refused(tmp_path: Path) -> None:
    config = Config(binary=make_program(tmp_path, []))
    plan = make_plan(tmp_path)
    odd = replace(plan, files=(replace(plan.files[0], size_bytes=5000),))
    with pytest.raises(ConfigError, match="takes sizes in KiB"):
        config.check_block_reads(odd, [])
    with pytest.raises(ConfigError, match=r"takes whole seconds, got workload\.duration_s=1\.5"):
        config.check_block_reads(replace(plan, duration_s=1.5), [])
    with pytest.raises(ConfigError, match="must be 0 or 2, got 1"):
        Config(transfer=1).check()
