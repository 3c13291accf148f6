"""``wattload run --hosts``: the mpirun line, the run that it starts, and hosts that are refused."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.running import command, record_of, run_folders
from tests.run.test_launchers import NULL, is_on_mpich, need_mpi, open_mpi, start
from wattload.__main__ import main

MISSING = "this-host-does-not-exist.invalid"
NOT_CHECKED = "the hosts were not checked\n"
EXPECTED = "write HOST, HOST:N or HOST slots=N, with N processes of 1 or more"


def plan(
    folder: Path, hosts: str, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return start(folder, command(folder, *NULL, "--hosts", hosts, "--plan", *words), **variables)


def refused(folder: Path, *words: str, **variables: str) -> list[str]:
    done = start(folder, command(folder, *NULL, *words), **variables)
    assert done.returncode == 2, done.stderr
    assert not run_folders(folder / "runs")
    return done.stderr.splitlines()


def needs_mpich() -> None:
    need_mpi()
    if not is_on_mpich():
        pytest.skip("mpi4py is not on MPICH")


def test_the_plan_is_the_line_of_the_mpich_that_mpi4py_loads(tmp_path: Path) -> None:
    needs_mpich()
    done = plan(tmp_path, "a,b:2", "-m", "--json")
    launcher, *words = shlex.split(done.stdout)
    assert (Path(launcher).name, done.stderr) == ("mpirun", NOT_CHECKED)
    assert words[:4] == ["-hosts", "a:1,b:2", "-n", "3"]
    program = [sys.executable, "-P", "-m", "wattload", "run", "-m", "--json"]
    assert words[4:11] == program
    assert words[11:] == command(tmp_path, *NULL)[4:]
    assert not run_folders(tmp_path / "runs")


def test_the_plan_is_the_line_of_open_mpi_with_the_flags_that_it_needs(tmp_path: Path) -> None:
    launcher, library = open_mpi()
    done = plan(tmp_path, "a,b:2", MPI4PY_LIBMPI=library)
    first, *words = shlex.split(done.stdout)
    assert (first, done.stderr) == (launcher, NOT_CHECKED)
    options = words[: words.index(sys.executable)]
    assert options[:4] == ["--host", "a:1,b:2", "--bind-to", "none"]
    assert options[-2:] == ["-n", "3"]
    assert "-x MPI4PY_LIBMPI" in shlex.join(options)
    assert "-x WATTLOAD_STATE_DIR" in shlex.join(options)
    assert "-x PATH" not in shlex.join(options)


@pytest.mark.parametrize(
    "lines", ["# three\na\n\nb:2  # two\n", "a slots=1\nb slots=2\n", "a\nb slots = 2"]
)
def test_hostfiles_of_both_mpis_are_read(tmp_path: Path, lines: str) -> None:
    need_mpi()
    (tmp_path / "hosts").write_text(lines)
    assert " a:1,b:2 " in plan(tmp_path, "@hosts").stdout


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ("a:x", f"'a:x' is not a host; {EXPECTED}"),
        ("a:0", f"'a:0' is not a host; {EXPECTED}"),
        ("a,,b", f"'' is not a host; {EXPECTED}"),
        ("", f"'' is not a host; {EXPECTED}"),
        ("-oX,b", f"'-oX' is not a host; {EXPECTED}"),
        ("a,b slot=2", f"'b slot=2' is not a host; {EXPECTED}"),
        ("a,b,a:2", "a is named twice; write a:N once"),
        ("@/nowhere/hosts", "there is no file /nowhere/hosts"),
    ],
)
def test_a_typo_in_hosts_is_one_sentence(
    hosts: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *NULL, f"--hosts={hosts}"]) == 2
    assert capsys.readouterr().err == f"wattload: --hosts {hosts}: {why}\n"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("a:1\nb:two\n", f"'b:two' is not a host; {EXPECTED}"),
        ("a slots=1\nb slots=two\n", f"'b slots=two' is not a host; {EXPECTED}"),
        ("a\na\n", "a is named twice; write a:N once"),
        ("# none\n", f"'' is not a host; {EXPECTED}"),
    ],
)
def test_a_typo_in_a_hostfile_is_one_sentence(
    tmp_path: Path, lines: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hosts"
    file.write_text(lines)
    assert main(["run", *NULL, "--hosts", f"@{file}"]) == 2
    assert capsys.readouterr().err == f"wattload: --hosts @{file}: {why}\n"


def test_all_hosts_that_ssh_does_not_reach_are_named(tmp_path: Path) -> None:
    need_mpi()
    if shutil.which("ssh") is None:
        pytest.skip("needs ssh (apt-get install openssh-client)")
    first, *hosts = refused(tmp_path, "--hosts", f"x.{MISSING},localhost,y.{MISSING}")
    assert first.startswith("wattload: nothing was started: each host must be reachable by ssh")
    assert [line.partition(": ")[0] for line in hosts] == [f"  x.{MISSING}", f"  y.{MISSING}"]
    assert all("Could not resolve hostname" in line for line in hosts)


def test_without_ssh_only_this_host_can_be_used(tmp_path: Path) -> None:
    need_mpi()
    _, why = refused(tmp_path, "--hosts", f"{socket.gethostname()},{MISSING}", PATH="/nowhere")
    assert why == f"  {MISSING}: ssh is not installed here"


def test_a_host_whose_ssh_prints_nothing_is_named(tmp_path: Path) -> None:
    need_mpi()
    (tmp_path / "ssh").symlink_to("/bin/true")
    _, why = refused(tmp_path, "--hosts", MISSING, PATH=str(tmp_path))
    assert why == f"  {MISSING}: ssh did not print its number of cores"


def test_more_processes_than_cores_are_refused_and_may_be_planned(tmp_path: Path) -> None:
    need_mpi()
    cores = len(os.sched_getaffinity(0))
    _, why = refused(tmp_path, "--hosts", f"localhost:{cores + 1}")
    assert why.startswith(f"  localhost: {cores + 1} processes on {cores} core")
    assert f"use localhost:{cores}, or start the line that --plan prints" in why
    assert plan(tmp_path, f"localhost:{cores + 1}").returncode == 0


def test_hosts_need_a_process_that_has_no_launcher_and_may_have_one(tmp_path: Path) -> None:
    (sentence,) = refused(tmp_path, "--hosts", "a", PMI_RANK="0", PMI_SIZE="1")
    assert sentence.startswith("wattload: --hosts starts mpirun itself")
    (sentence,) = refused(tmp_path, "--hosts", "a", "ranks=1")
    assert sentence.startswith("wattload: ranks=1 makes each process a run of its own")


def test_an_mpi_without_its_mpirun_is_refused(tmp_path: Path) -> None:
    """A copy of the library, in a folder that no launcher was installed with."""
    _, library = open_mpi()
    copy = shutil.copy(Path(library).resolve(), tmp_path / "libmpi.so.40")
    (sentence,) = refused(tmp_path, "--hosts", "a", MPI4PY_LIBMPI=str(copy))
    assert sentence == f"wattload: mpi4py loads {copy}, and no mpirun is installed with it"


@pytest.mark.parametrize("mpi", ["MPICH", pytest.param("Open MPI", marks=pytest.mark.thorough)])
def test_a_run_on_this_host_by_either_mpi(tmp_path: Path, mpi: str) -> None:
    variables = {"MPI4PY_LIBMPI": open_mpi()[1]} if mpi == "Open MPI" else {}
    if mpi == "MPICH":
        needs_mpich()
    planned = plan(tmp_path, "localhost:2", **variables)
    words = command(tmp_path, *NULL, "--hosts", "localhost:2")
    done = start(tmp_path, words, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == planned.stdout.strip()
    assert record_of(tmp_path).workload.rank_count == 2
