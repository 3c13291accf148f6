"""Builds the engine with sanitizers and runs plans through it, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.native.plans import Plan

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "loaders" / "engine" / "src"

COMMON = ["-std=c11", "-D_GNU_SOURCE", "-pthread", "-g", f"-I{SOURCES}"]
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
SANITIZERS = {
    "address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-fsanitize=thread"],
}

Result = dict[str, Any]
Build = Callable[..., Path]
"""What the fixture ``build`` is."""


def compiler(*names: str) -> str:
    """Return the first of these compilers that is there; skips the test without one."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip(f"none of {', '.join(names)} is installed")


def build_library(folder: Path, flags: Sequence[str]) -> None:
    """Compile the engine's sources with these flags into objects, all at once."""
    sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
    _compile([*flags, "-c", *sources], folder)


def build_program(folder: Path, flags: Sequence[str], mains: Sequence[str], *more: Path) -> Path:
    """Compile main programs of this folder and link them with objects; returns the program."""
    program = folder / Path(mains[0]).stem
    files = [str(HERE / main) for main in mains] + [str(file) for file in more]
    _compile([*flags, "-o", str(program), *files], folder)
    return program


def _compile(arguments: Sequence[str], folder: Path) -> None:
    command = [compiler("gcc", "cc", "clang"), *COMMON, *arguments]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not made.returncode, made.stderr


@dataclass(frozen=True)
class Outcome:
    """What the program printed: what the engine was granted, and what became of each job."""

    facts: Result
    jobs: list[Result]

    @property
    def job(self) -> Result:
        """The one job."""
        (job,) = self.jobs
        return job


@dataclass(frozen=True)
class Driver:
    """Runs plans with one build of the engine; files go to ``folder``."""

    program: Path
    folder: Path

    def lines(self, *plans: Plan | bytes, **options: object) -> list[Result]:
        """Return the lines that the program prints."""
        paths = []
        for number, plan in enumerate(plans):
            path = self.folder / f"{number}.plan"
            path.write_bytes(plan if isinstance(plan, bytes) else plan.encode())
            path.chmod(0o644)
            paths.append(str(path))
        named = [f"{name}={value}" for name, value in options.items()]
        run = subprocess.run(
            [str(self.program), *named, *paths],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not run.returncode, run.stderr
        return [json.loads(line) for line in run.stdout.splitlines()]

    def run(self, *plans: Plan | bytes, **options: object) -> Outcome:
        """Run the plans in one engine, queued together."""
        facts, *jobs = self.lines(*plans, **options)
        return Outcome(facts, jobs)

    def refusal(self, plan: Plan | bytes, **options: object) -> Result:
        """Return the error with which the engine refuses a plan."""
        lines = self.lines(plan, **options)
        refused: Result = lines[-1]["submit"]
        return refused
