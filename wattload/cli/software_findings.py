"""What the doctor finds of software: extras of the distribution, and programs beside it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from wattload.cli.finding import Finding, Verdict, ask

FindProgram = Callable[[str], str | None]
"""Returns the path of a program, or ``None``: ``shutil.which``."""

_MPI_QUESTION = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0])"
_ENGINES = {"docker": "{{.Driver}}", "podman": "{{.Store.GraphDriverName}}"}
"""Container engines, and how each is asked for its storage driver: a client alone has none."""


def find_program(name: str) -> str | None:
    """Return the path of a program, beside this Python first: an environment may be inactive."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def software_findings(find: FindProgram = find_program) -> Iterator[Finding]:
    """Yield which extras are installed and which programs are there."""
    yield _extra(
        "torch",
        "torch",
        adds="loader=torch, loader=dcp, and torch.save as the baseline",
        mend="pip install 'wattload[torch]'",
    )
    yield _mpi(find)
    yield _extra(
        "DALI",
        "nvidia.dali",
        adds="loader=dali",
        mend="pip install 'wattload[dali]'",
    )
    yield _extra(
        "DLIO",
        "dlio_benchmark",
        adds="loader=dlio, the reference harness",
        mend="pip install 'wattload[dlio]' && pip install --no-deps dlio-benchmark==2.0.0",
    )
    yield _fio(find)
    yield _engine(find)


def _extra(name: str, module: str, *, adds: str, mend: str) -> Finding:
    if not _is_installed(module):
        return Finding(
            name=name,
            verdict=Verdict.NO,
            says=f"the module {module} is not installed",
            adds=adds,
            mend=mend,
        )
    return Finding(name=name, verdict=Verdict.YES, says=_version(module), adds=adds)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that should hold it
        return False


def _version(module: str) -> str:
    try:
        return version(module.replace("_", "-"))
    except PackageNotFoundError:
        return "installed"


def _mpi(find: FindProgram) -> Finding:
    finding = partial(Finding, name="MPI", adds="several processes: mpirun -n N wattload run ...")
    mend = "pip install 'wattload[mpi]'"
    if not _is_installed("mpi4py"):
        return finding(
            verdict=Verdict.NO,
            says="the module mpi4py is not installed: one process only",
            mend=mend,
        )
    # Loading MPI starts it: that is for a process of its own.
    loads, line = ask([sys.executable, "-c", _MPI_QUESTION])
    if not loads:
        return finding(
            verdict=Verdict.NO,
            says=f"mpi4py finds no MPI library: {line}",
            mend=mend,
        )
    launcher = find("mpirun")
    if launcher is None:
        return finding(
            verdict=Verdict.PARTLY,
            says=f"{_bare(line)}, and no mpirun to start it with",
            mend=mend,
        )
    return finding(verdict=Verdict.YES, says=f"{_bare(line)}, {launcher}")


def _bare(line: str) -> str:
    """Return a line without the NUL that some libraries count to their version, spaces single."""
    return " ".join(line.replace("\0", " ").split())


def _fio(find: FindProgram) -> Finding:
    adds = "make bench: our engine beside fio's"
    path = find("fio")
    works, line = ask([path, "--version"]) if path else (False, "fio is not installed")
    return Finding(
        name="fio",
        verdict=Verdict.YES if works else Verdict.NO,
        says=line,
        adds=adds,
        mend="" if works else "sudo apt-get install fio",
    )


def _engine(find: FindProgram) -> Finding:
    finding = partial(
        Finding, name="container engine", adds="docker compose run --rm wattload run ..."
    )
    found = [name for name in _ENGINES if find(name)]
    if not found:
        return finding(
            verdict=Verdict.NO,
            says="neither docker nor podman is installed",
            mend="sudo apt-get install docker.io",
        )
    program = found[0]
    answers, line = ask([find(program) or program, "info", "--format", _ENGINES[program]])
    if not answers:
        return finding(
            verdict=Verdict.PARTLY,
            says=f"{program} is installed and does not answer: {line}",
            mend=f"sudo systemctl start {program}",
        )
    return finding(verdict=Verdict.YES, says=f"{program}, storage {line}")
