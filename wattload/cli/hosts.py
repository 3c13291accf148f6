"""``--hosts``: the mpirun line that starts a run, or its plan, on several hosts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.run.launcher import is_rank
from wattload.run.ranks import mpi_library

HOST = re.compile(r"(\w[\w.-]*)(?:(?: *: *| +slots *= *)([1-9]\d*))?")
FORMS = "HOST, HOST:N or HOST slots=N, with N processes of 1 or more"
PASSED_ON = re.compile(r"(WATTLOAD_|MPI4PY_|PYTHON|CUDA_|XDG_)\w+|LD_LIBRARY_PATH")
"""Variables that Open MPI is to pass on to other hosts. MPICH passes on all."""


def launch(hosts: str, words: Sequence[str], *, only_prints: bool) -> int:
    """Replace this process with the mpirun that runs wattload on hosts, or print its line.

    Raises:
        ConfigError, MissingExtraError: a host, mpirun or mpi4py can't be used.
    """
    if is_rank():
        raise ConfigError("--hosts starts mpirun itself; leave out --hosts or the other launcher")
    if "ranks=1" in words:
        raise ConfigError("ranks=1 makes each process a run of its own; leave out ranks or --hosts")
    processes = _read(hosts)
    line = [*_mpirun(processes), sys.executable, "-P", "-m", "wattload", *words]
    if not only_prints and "SLURM_JOB_ID" not in os.environ:  # in a job, mpirun uses srun
        with ThreadPoolExecutor(len(processes)) as pool:
            faults = "\n".join(filter(None, pool.map(_fault, processes, processes.values())))
        if faults:
            error = ConfigError(
                "nothing was started: each host must be reachable by ssh without a password, have "
                "this environment and the current folder at the same paths, and a core for each "
                "process"
            )
            error.add_note(faults)
            raise error
    print(shlex.join(line), file=sys.stdout if only_prints else sys.stderr, flush=True)
    if only_prints:
        print("the hosts were not checked", file=sys.stderr)
        return 0
    count = f"{sum(processes.values())} processes on {len(processes)} hosts"
    print(f"starting {count}", file=sys.stderr, flush=True)
    os.execv(line[0], line)
    return 0


def _read(hosts: str) -> Mapping[str, int]:
    """Return the number of processes on each host, of a list or ``@FILE``, in its order."""
    entries, found = hosts.split(","), dict[str, int]()
    if hosts.startswith("@"):
        file = Path(hosts[1:])
        if not file.is_file():
            raise ConfigError(f"--hosts {hosts}: there is no file {file}")
        text = re.sub("#.*", "", file.read_text(errors="replace"))
        entries = list(filter(str.strip, text.splitlines())) or [""]
    for entry in map(str.strip, entries):
        host = HOST.fullmatch(entry)
        if host is None:
            raise ConfigError(f"--hosts {hosts}: {entry!r} is not a host; write {FORMS}")
        if host[1] in found:
            raise ConfigError(f"--hosts {hosts}: {host[1]} is named twice; write {host[1]}:N once")
        found[host[1]] = int(host[2] or 1)
    return found


def _mpirun(processes: Mapping[str, int]) -> list[str]:
    """Return the mpirun that is installed with mpi4py's MPI library, and its options."""
    vendor, library = mpi_library()
    root = ["--allow-run-as-root"] * (os.geteuid() == 0)
    hosts = ",".join(f"{name}:{count}" for name, count in processes.items())
    options = ["-hosts", hosts]
    if vendor == "Open MPI":
        options = ["--host", hosts, "--bind-to", "none", *root]
        for name in filter(PASSED_ON.fullmatch, sorted(os.environ)):
            options += ["-x", name]
    elif vendor != "MPICH":
        raise ConfigError(f"--hosts supports MPICH and Open MPI; use the launcher of {vendor}")
    names = (f"mpirun.{vendor.replace(' ', '').lower()}", "mpirun")  # Debian has the former
    paths = (str(each / "bin" / name) for each in library.parents[:-1] for name in names)
    mpirun = next((path for path in paths if os.access(path, os.X_OK)), None)
    if mpirun is None:
        raise ConfigError(f"mpi4py loads {library}, and no mpirun is installed with it")
    return [mpirun, *options, "-n", str(sum(processes.values()))]


def _fault(host: str, processes: int) -> str:
    """Return why a host can't run so many processes, empty if it can."""
    cores = str(len(os.sched_getaffinity(0)))
    if not _is_here(host):
        if shutil.which("ssh") is None:
            return f"  {host}: ssh is not installed here"
        python, folder = shlex.quote(sys.executable), shlex.quote(str(Path.cwd()))
        count = "import os; print(len(os.sched_getaffinity(0)))"  # nproc heeds OMP_NUM_THREADS
        there = f"ls -d {python} {folder} && {python} -Ic '{count}'"
        ssh = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, there)
        done = subprocess.run(ssh, capture_output=True, text=True, check=False)
        *_, cores = ["", *re.findall(r"\d+$", done.stdout.strip())]
        if done.returncode or not cores:
            *_, why = ["ssh did not print its number of cores", *done.stderr.strip().splitlines()]
            return f"  {host}: {why}"
    sentence = (
        f"  {host}: {processes} processes on {cores} core{'s' * (cores != '1')} would wait for "
        f"CPU time, not for the drive; use {host}:{cores}, or start the line that --plan prints"
    )
    return sentence if processes > int(cores) else ""


def _is_here(host: str) -> bool:
    """Return whether a name is that of this host, where mpirun needs no ssh."""
    with suppress(OSError, UnicodeError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: only the address of this side is chosen
        return probe.getpeername()[0] in ("127.0.1.1", probe.getsockname()[0])
    return False
