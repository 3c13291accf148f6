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
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.run.launcher import is_rank
from wattload.run.ranks import mpi_library

HOST = re.compile(r"(\w[\w.-]*)(?:(?: *: *| +slots *= *)([1-9]\d*))?")
FORMS = "HOST, HOST:N or HOST slots=N, with N processes of 1 or more"

PASSED_ON = re.compile(r"(WATTLOAD_|MPI4PY_|PYTHON|CUDA_|XDG_)\w+|LD_LIBRARY_PATH")
"""Variables that Open MPI is to pass on to other hosts. MPICH passes on all."""

COUNT_CORES = "import os; print(len(os.sched_getaffinity(0)))"
"""A program of Python. Unlike nproc it does not heed OMP_NUM_THREADS."""


def launch(hosts: str, words: Sequence[str], *, only_prints: bool) -> int:
    """Replace this process with the mpirun that runs wattload on hosts, or print its line.

    Args:
        hosts: hosts separated by commas, or ``@FILE``: a hostfile of MPICH or Open MPI.
        words: the arguments of wattload.
        only_prints: whether to print the line and return.

    Raises:
        ConfigError: a host is malformed, named twice, can't be reached or has too few cores, or
            mpirun can't be used.
        MissingExtraError: mpi4py or its MPI library is missing.
    """
    if is_rank():
        raise ConfigError("--hosts starts mpirun itself; leave out --hosts or the other launcher")
    if "ranks=1" in words:
        raise ConfigError("ranks=1 makes each process a run of its own; leave out ranks or --hosts")
    processes = _read(hosts)
    program = (sys.executable, "-P", "-m", "wattload", *words)
    line = [*_mpirun(processes), *program]
    if not only_prints and "SLURM_JOB_ID" not in os.environ:  # in a job, mpirun uses srun
        _require_usable(processes)
    print(shlex.join(line), file=sys.stdout if only_prints else sys.stderr, flush=True)
    if not only_prints:
        os.execv(line[0], line)
    return 0


def _read(hosts: str) -> Mapping[str, int]:
    """Return the number of processes on each host, in the given order."""
    entries = [entry.strip() for entry in hosts.split(",")]
    if hosts.startswith("@"):
        file = Path(hosts[1:])
        if not file.is_file():
            raise ConfigError(f"--hosts {hosts}: there is no file {file}")
        lines = file.read_text(errors="replace").splitlines()
        entries = list(filter(None, (line.partition("#")[0].strip() for line in lines))) or [""]
    found: dict[str, int] = {}
    for entry in entries:
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
    hosts = ",".join(f"{name}:{count}" for name, count in processes.items())
    if vendor == "MPICH":
        options = ["-hosts", hosts]
    elif vendor == "Open MPI":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        variables = filter(PASSED_ON.fullmatch, sorted(os.environ))
        passed_on = [word for name in variables for word in ("-x", name)]
        options = ["--host", hosts, "--bind-to", "none", *root, *passed_on]
    else:
        raise ConfigError(f"--hosts supports MPICH and Open MPI; use the launcher of {vendor}")
    names = (f"mpirun.{vendor.replace(' ', '').lower()}", "mpirun")  # Debian has the former
    paths = (str(each / "bin" / name) for each in library.parents[:-1] for name in names)
    mpirun = next((path for path in paths if os.access(path, os.X_OK)), None)
    if mpirun is None:
        raise ConfigError(f"mpi4py loads {library}, and no mpirun is installed with it")
    return [mpirun, *options, "-n", str(sum(processes.values()))]


def _require_usable(processes: Mapping[str, int]) -> None:
    """Refuse hosts that ssh can't reach without a password, or that lack what their ranks need."""
    with ThreadPoolExecutor(len(processes)) as pool:
        faults = list(filter(None, pool.map(_fault, *zip(*processes.items(), strict=True))))
    if faults:
        error = ConfigError(
            "nothing was started: each host must be reachable by ssh without a password, have this "
            "environment and the current folder at the same paths, and a core for each process"
        )
        error.add_note("\n".join(faults))
        raise error


def _fault(host: str, processes: int) -> str | None:
    """Return why a host can't run so many processes, if so."""
    count = [sys.executable, "-Ic", COUNT_CORES]
    try:
        socket.create_server((host, 0)).close()  # it is this host, where mpirun needs no ssh
    except OSError:
        if shutil.which("ssh") is None:
            return f"  {host}: ssh is not installed here"
        exist = shlex.join(["ls", "-d", sys.executable, str(Path.cwd())])
        ssh = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host)
        count = [*ssh, f"{exist} && {shlex.join(count)}"]
    done = subprocess.run(count, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        return f"  {host}: {why}"
    cores = int(done.stdout.split()[-1])
    if processes > cores:
        return (
            f"  {host}: {processes} processes on {cores} core{'s' if cores > 1 else ''} would "
            f"wait for CPU time, not for the drive; use {host}:{cores}, or start the line that "
            "--plan prints"
        )
    return None
