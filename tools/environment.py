"""Make or complete the environment in ``.venv``: the second half of ``make setup``.

Standard library only, because it runs before anything is installed. A stamp in the environment
holds a hash of what it was made from; while that fits, there is nothing to do. Without it pip runs
again and takes what is there already, so that a set-up that was interrupted goes on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = "torch,mpi,gpu,snmp,scpi"
STAMP_NAME = ".wattload-setup"
UNFINISHED = "unfinished"
GB = 1e9

# Measured with pip on Linux x86_64, Python 3.11, from an empty cache: sum of the wheels, and `du`.
BASE_DOWNLOAD_BYTES = 0.26 * GB
BASE_DISK_BYTES = 0.92 * GB
TORCH_DOWNLOAD_BYTES = 2.74 * GB
TORCH_DISK_BYTES = 4.9 * GB
LOCAL_TORCH_DISK_BYTES = 0.90 * GB


class SetupError(Exception):
    """Set-up can't go on; the message says why and what to do."""


@dataclass(frozen=True)
class TorchPlan:
    """Where torch comes from, and what that costs in bytes.

    ``pinned`` is the version to hold to. ``sees_system`` makes the environment look into the
    packages of the Python that it is made with.
    """

    sentence: str
    pinned: str
    download_bytes: float
    disk_bytes: float
    sees_system: bool = False

    @property
    def is_kept(self) -> bool:
        return self.disk_bytes == 0


def fingerprint(root: Path, base_prefix: str) -> str:
    """Return a hash of all that the environment is made from."""
    digest = hashlib.sha256(f"{base_prefix} {sys.version_info[:2]}".encode())
    sources = [root / "pyproject.toml", root / "constraints.txt", root / "setup.py"]
    for path in [*sources, *sorted((root / "loaders").rglob("*.[ch]"))]:
        if path.is_file():
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def lacks_engine(root: Path) -> bool:
    """Return whether the engine's sources are here and its library, which git ignores, is not."""
    native = root / "loaders/engine"
    return any(native.glob("src/*.c")) and not any(native.glob("*.so"))


def read_stamp(venv: Path) -> tuple[str, str]:
    """Return the fingerprint of the last finished set-up, and the torch that set-up installed."""
    stamp = venv / STAMP_NAME
    lines = stamp.read_text().split("\n") if stamp.is_file() else []
    return (lines[0], lines[1]) if len(lines) > 1 else ("", "")


def write_stamp(venv: Path, fingerprint_text: str, own_torch: str) -> None:
    """Write what ``read_stamp`` reads."""
    (venv / STAMP_NAME).write_text(f"{fingerprint_text}\n{own_torch}\n")


def read_constraints(path: Path) -> dict[str, str]:
    """Return the pinned version of each distribution, by lower-case name."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return {
        name.strip().lower(): version.strip()
        for name, _, version in (line.partition("==") for line in lines if "==" in line)
    }


def find_links(pip_config: str) -> list[str]:
    """Return the folders and pages that pip looks into, from the output of ``pip config list``."""
    links: list[str] = []
    for line in pip_config.splitlines():
        key, _, value = line.partition("=")
        if key.rsplit(".", 1)[-1] == "find-links":
            links += value.strip("'\"").replace("\\n", " ").split()
    return links


def local_wheel(links: Iterable[str], version: str) -> Path | None:
    """Return torch's wheel for this Python in a local folder of ``links``; pages aren't opened."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    pattern = re.compile(
        rf"torch-{re.escape(version)}(\+[\w.]+)?-{tag}-\w+-\w*{re.escape(platform.machine())}\.whl"
    )
    for link in links:
        folder = Path(unquote(urlparse(link).path) if link.startswith("file:") else link)
        if folder.expanduser().is_dir():
            for path in sorted(folder.expanduser().iterdir()):
                if pattern.fullmatch(path.name):
                    return path
    return None


def installed_torch(python: Path) -> str | None:
    """Return the version of the torch that ``python`` imports, or None where it can't."""
    if not python.exists():
        return None
    # -P and -I keep this folder and the user's own packages out of it.
    code = "import torch; print(torch.__version__)"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def is_new_enough(version: str, floor: str) -> bool:
    """Return whether a version such as ``2.13.0+cpu`` reaches ``floor``."""
    return _numbers(version) >= _numbers(floor)


def plan_torch(
    *,
    in_venv: str | None,
    in_base: str | None,
    own: str,
    floor: str,
    pinned: str,
    links: Sequence[str],
) -> TorchPlan:
    """Choose torch: what somebody installed, else a local wheel, else the ordinary one.

    ``own`` is the version that an earlier set-up put into the environment; another one there is the
    user's, and is kept from ``floor`` on.
    """
    if in_venv == in_base:  # an environment that looks into the base Python's packages
        in_venv = None
    if in_venv is not None and in_venv.partition("+")[0] == own:
        in_venv = in_venv if own == pinned else None
    for version, place in ((in_venv, ".venv"), (in_base, sys.base_prefix)):
        if version is not None and is_new_enough(version, floor):
            return TorchPlan(
                sentence=f"torch {version}: installed in {place}, and kept",
                pinned=version,
                download_bytes=0,
                disk_bytes=0,
                sees_system=place != ".venv",
            )
    wheel = local_wheel(links, pinned)
    if wheel is not None:
        return TorchPlan(
            sentence=f"torch {pinned}: from the local wheel {wheel}",
            pinned=pinned,
            download_bytes=0,
            disk_bytes=LOCAL_TORCH_DISK_BYTES,
        )
    return TorchPlan(
        sentence=f"torch {pinned}: the ordinary wheels with CUDA "
        "(docs/install.md shows how to take the much smaller CPU-only torch)",
        pinned=pinned,
        download_bytes=TORCH_DOWNLOAD_BYTES,
        disk_bytes=TORCH_DISK_BYTES,
    )


def make_venv(venv: Path, *, sees_system: bool) -> None:
    """Make the environment, unless one by this Python stands there with a pip that works."""
    config = venv / "pyvenv.cfg"
    clear: list[str] = []
    if config.is_file():
        pip_works = _runs([venv / "bin/python", "-m", "pip", "--version"])
        sees_enough = not sees_system or "system-site-packages = true" in config.read_text()
        if pip_works and sees_enough and _is_made_with_this_python(venv):
            return
        print(f"{venv.name} does not fit this Python or is incomplete: it is built anew")
        clear = ["--clear"]
    flags = ["--system-site-packages"] if sees_system else []
    command = [sys.executable, "-m", "venv", *clear, *flags, str(venv)]
    if subprocess.run(command, check=False).returncode != 0:
        raise SetupError(f"could not make the environment: {' '.join(command)} failed (see above)")


def install(root: Path, venv: Path, plan: TorchPlan, *, quiet: bool = False) -> None:
    """Install the tools, then this project in editable form, all at the pinned versions.

    ``quiet`` keeps pip from naming what is there already; it also hides progress.
    """
    pins = read_constraints(root / "constraints.txt") | {"torch": plan.pinned}
    constraints = venv / "constraints.txt"
    constraints.write_text("".join(f"{name}=={pins[name]}\n" for name in sorted(pins)))
    project = tomllib.loads((root / "pyproject.toml").read_text())
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--constraint", str(constraints)]
    pip += ["--quiet"] if quiet else []
    steps = (
        [*pip, *project["dependency-groups"]["dev"]],
        # Built by the setuptools that was just pinned, not by whatever is newest.
        [*pip, "--no-build-isolation", "--editable", f"{root}[{EXTRAS}]"],
    )
    for command in steps:
        if subprocess.run(command, cwd=root, check=False).returncode != 0:
            raise SetupError(
                "pip failed (see above). Mend what it names and run the same command again: "
                "what is installed stays."
            )


def announce(plan: TorchPlan, root: Path) -> None:
    """Print what will be downloaded and stored, and refuse a disk that is too small for it."""
    download_gb = (BASE_DOWNLOAD_BYTES + plan.download_bytes) / GB
    disk_bytes = BASE_DISK_BYTES + plan.disk_bytes
    free_bytes = shutil.disk_usage(root).free
    print(f"Setting up {root / '.venv'} with Python {platform.python_version()}")
    print(f"  {plan.sentence}")
    print(
        f"  download: about {download_gb:.1f} GB less what pip has in its cache; "
        f"disk: about {disk_bytes / GB:.1f} GB, {free_bytes / GB:.0f} GB are free",
        flush=True,
    )
    if free_bytes < disk_bytes:
        raise SetupError(
            f"{root} has {free_bytes / GB:.1f} GB free and set-up needs about "
            f"{disk_bytes / GB:.1f} GB: free some space and run the same command again."
        )


def set_up(root: Path) -> None:
    """Bring ``.venv`` up to date; returns at once when it is."""
    venv = root / ".venv"
    wanted = fingerprint(root, sys.base_prefix)
    done, own = read_stamp(venv)
    if done == wanted and not lacks_engine(root):
        return
    python = venv / "bin/python"
    project = tomllib.loads((root / "pyproject.toml").read_text())
    floor = str(project["project"]["optional-dependencies"]["torch"][0]).partition(">=")[2]
    in_base = installed_torch(Path(sys.executable))
    if not _is_made_with_this_python(venv):
        make_venv(venv, sees_system=in_base is not None and is_new_enough(in_base, floor))
    pip_config = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    plan = plan_torch(
        in_venv=installed_torch(python),
        in_base=in_base,
        own=own,
        floor=floor,
        pinned=read_constraints(root / "constraints.txt")["torch"],
        links=find_links(pip_config),
    )
    is_update = done not in ("", UNFINISHED) and plan.is_kept
    if is_update:
        print(f"Bringing {venv} up to date with pyproject.toml and constraints.txt", flush=True)
    else:
        announce(plan, root)
    make_venv(venv, sees_system=plan.sees_system)
    own = own if plan.is_kept else plan.pinned
    write_stamp(venv, UNFINISHED, own)
    install(root, venv, plan, quiet=is_update)
    write_stamp(venv, wanted, own)
    print(f"The environment is ready: {venv}")


def main() -> int:
    """Run set-up; returns the exit status."""
    try:
        set_up(ROOT)
    except SetupError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up was interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


def _numbers(version: str) -> tuple[int, ...]:
    public, _, _ = version.partition("+")
    return tuple(int(part) for part in re.findall(r"\d+", public)[:3])


def _runs(command: Sequence[str | Path]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _is_made_with_this_python(venv: Path) -> bool:
    code = "import sys; print(sys.base_prefix, *sys.version_info[:2])"
    try:
        done = subprocess.run(
            [venv / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return done.stdout.split() == [os.fspath(sys.base_prefix), *map(str, sys.version_info[:2])]


if __name__ == "__main__":
    sys.exit(main())
