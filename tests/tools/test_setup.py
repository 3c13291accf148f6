"""What set-up says on a machine that lacks something."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELL_NEEDS = ("sh", "dirname", "id")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout of the set-up alone, and a PATH with nothing but a shell and apt-get."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "setup.sh", tmp_path / "tools")
    (tmp_path / "tools" / "environment.py").write_text("print('environment')\n")
    (tmp_path / "bin").mkdir()
    for name in SHELL_NEEDS:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    script(tmp_path, "apt-get", "exit 0")
    return tmp_path


def script(machine: Path, name: str, body: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def python(machine: Path, *, new_enough: bool = True, has_venv: bool = True) -> None:
    """Put a stand-in for an interpreter on the PATH; no machine has all of the broken ones."""
    script(
        machine,
        "python3",
        'case "$*" in\n'
        f"*version_info*) exit {0 if new_enough else 1} ;;\n"
        f"*ensurepip*) exit {0 if has_venv else 1} ;;\n"
        "*_base_executable*) echo python3 ;;\n"
        '--version) echo "Python 3.9.2" ;;\n'
        '*) echo "ran $*" ;;\n'
        "esac",
    )


def set_up(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [machine / "tools" / "setup.sh", *arguments],
        env={"PATH": str(machine / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_old_python_is_named_with_the_command_that_installs_a_newer(machine: Path) -> None:
    python(machine, new_enough=False)
    script(machine, "cc", "exit 0")
    done = set_up(machine)
    assert done.returncode == 1
    assert "Python 3.11 or newer, got Python 3.9.2" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_python_and_compiler_are_both_named(machine: Path) -> None:
    done = set_up(machine)
    assert done.returncode == 1
    assert "got no python3" in done.stderr
    assert "apt-get install gcc" in done.stderr


def test_a_python_without_venv_is_named(machine: Path) -> None:
    python(machine, has_venv=False)
    script(machine, "gcc", "exit 0")
    done = set_up(machine)
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr


def test_the_package_manager_that_is_here_is_named(machine: Path) -> None:
    (machine / "bin" / "apt-get").unlink()
    script(machine, "dnf", "exit 0")
    python(machine)
    assert "dnf install gcc" in set_up(machine).stderr


def test_a_python_that_was_asked_for_is_not_replaced_by_another(machine: Path) -> None:
    python(machine)
    script(machine, "cc", "exit 0")
    done = set_up(machine, "python3.99")
    assert done.returncode == 1
    assert "got no python3.99" in done.stderr


def test_with_all_there_the_environment_is_made(machine: Path) -> None:
    python(machine)
    script(machine, "clang", "exit 0")
    done = set_up(machine)
    assert (done.returncode, done.stdout) == (0, "ran tools/environment.py\n")


def test_an_environment_that_works_keeps_its_python(machine: Path) -> None:
    python(machine)
    script(machine, "cc", "exit 0")
    script(machine, "python3.12", 'case "$*" in -c*) exit 0 ;; *) echo "ran by 3.12" ;; esac')
    binaries = machine / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text(f'#!/bin/sh\necho "{machine}/bin/python3.12"\n')
    (binaries / "python").chmod(0o755)
    assert set_up(machine).stdout == "ran by 3.12\n"


def test_an_active_environment_is_not_taken_for_the_system(machine: Path) -> None:
    script(machine, "cc", "exit 0")
    script(machine, "python3", 'case "$*" in *_base_executable*) echo python3.12 ;; esac')
    script(machine, "python3.12", 'case "$*" in -c*) exit 0 ;; *) echo "ran by 3.12" ;; esac')
    assert set_up(machine).stdout == "ran by 3.12\n"
