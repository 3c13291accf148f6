"""What ran: the versions of wattload, of Python and of the libraries that move bytes."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import wattload
from wattload import __version__
from wattload.core.record.host import SoftwareFacts
from wattload.core.sysfs import Observation

LIBRARIES = (
    "dlio-benchmark",
    "hydra-core",
    "mpi4py",
    "mpich",
    "numpy",
    "nvidia-dali-cuda130",
    "nvidia-ml-py",
    "omegaconf",
    "pyarrow",
    "pydantic",
    "torch",
)
_GIT_TIMEOUT_S = 10.0


def software_facts(checkout: Path | None = None) -> SoftwareFacts:
    """Return versions; commit and dirty flag only where this package lies in a git checkout.

    Args:
        checkout: a folder in the checkout; without it the folder of this package.
    """
    observation = Observation()
    folder = Path(wattload.__file__).resolve().parent if checkout is None else checkout
    commit, reason = _git(folder, "rev-parse", "HEAD")
    observation.put("git_commit", commit, reason)
    changes, reason = (None, reason) if commit is None else _git(folder, "status", "--porcelain")
    observation.put("git_dirty", None if changes is None else bool(changes), reason)
    return observation.build(
        SoftwareFacts,
        wattload=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libraries=dict(_versions()),
    )


def _versions() -> list[tuple[str, str]]:
    found = []
    for name in LIBRARIES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def _git(folder: Path, *words: str) -> tuple[str | None, str]:
    """Return what git prints, or ``None`` and why there is nothing."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None, "this wattload is not run from a git checkout"
    git = shutil.which("git")
    if git is None:
        return None, "git is not installed"
    try:
        done = subprocess.run(
            [git, "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"git: {error}"
    if done.returncode:
        return None, f"git: {done.stderr.strip().splitlines()[0] if done.stderr else 'failed'}"
    return done.stdout.strip(), ""
