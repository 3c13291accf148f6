"""Runs whose clocks are falsified below Python, by a library that is loaded before libc."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, SLOW, command, environment, record_of, until

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

SHIM = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Scales one clock since its start by a factor, and adds seconds as soon as a file exists. */
int clock_gettime(clockid_t clock, struct timespec *at) {
    int status = syscall(SYS_clock_gettime, clock, at);
    const char *which = getenv("SHIM_CLOCK"), *file = getenv("SHIM_FILE");
    if (status || !which || atoi(which) != clock)
        return status;
    double start = atof(getenv("SHIM_START")), factor = atof(getenv("SHIM_FACTOR"));
    double shift = (at->tv_sec - start + at->tv_nsec * 1e-9) * (factor - 1);
    if (access(file, F_OK) == 0)
        shift += atof(getenv("SHIM_STEP"));
    long long ns = at->tv_sec * 1000000000LL + at->tv_nsec + (long long)(shift * 1e9);
    at->tv_sec = ns / 1000000000LL;
    at->tv_nsec = ns % 1000000000LL;
    return 0;
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return compile_shim(tmp_path_factory.mktemp("shim"))


def compile_shim(folder: Path) -> Path:
    (folder / "shim.c").write_text(SHIM)
    library = folder / "shim.so"
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(folder / "shim.c")], check=True
    )
    return library


@pytest.mark.parametrize(
    ("falsified", "verdict", "words"),
    [
        ((time.CLOCK_REALTIME, 1.0, -5.0), "warn", "stepped by -5."),
        ((time.CLOCK_REALTIME, 1.5, 5.0), "fail", "one of them ran at another rate"),
        ((time.CLOCK_MONOTONIC, 0.5, 0.0), "fail", "the monotonic clock ran at another rate"),
    ],
)
def test_a_step_is_a_warning_and_another_rate_fails(
    tmp_path: Path, shim: Path, falsified: tuple[int, float, float], verdict: str, words: str
) -> None:
    clock, factor, step_s = falsified
    trigger = tmp_path / "step"
    settings = {
        "LD_PRELOAD": str(shim),
        "SHIM_CLOCK": str(clock),
        "SHIM_START": str(time.clock_gettime(clock)),
        "SHIM_FACTOR": str(factor),
        "SHIM_STEP": str(step_s),
        "SHIM_FILE": str(trigger),
        "WATTLOAD_TEST_STOP": "nap",
    }
    with subprocess.Popen(
        command(tmp_path, *SLOW),
        env=environment(tmp_path, **settings),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until((tmp_path / "target" / "waiting-0").exists, process)
        trigger.touch()
        time.sleep(0.5)  # so far the clocks of another rate are then apart
        (tmp_path / "target" / "go-on").touch()
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 3), errors
    record = record_of(tmp_path)
    (check,) = (each for each in record.checks if each.name.startswith("clocks_agree_"))
    assert check.verdict == verdict, check.sentence
    assert words in check.sentence
    if verdict == "fail":
        assert process.returncode == 3
