"""The distribution as a user gets it: what is in the wheel, and that it runs on its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from wattload.loaders.engine.header import FILES
from wattload.loaders.gpu_queue.kernels import (
    ENGINE_HEADERS,
    FEATURE_ROWS,
    OWN_HEADERS,
    RANDOM_READ,
)

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "wattload", "workloads", "loaders", "power", "reports", "configs",
    "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE",
)  # fmt: skip
CHECK_FAILED = 3  # on a disk that others use too; the run itself went well
NATIVE = ROOT / "loaders/engine"
LIBRARY = "wattload/loaders/engine/libwattload_engine.so"
NATIVE_READ = """
import sys
from pathlib import Path
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.loaders.engine.engine import IOEngine

extents = (Extent(Path(sys.argv[1]), 0, 300_001),)
plan = IOPlan(kind=IOKind.READ, extents=extents, block_bytes=65536, depth=4)
for backend in ("null", "auto"):
    engine = IOEngine(backend=backend, block_bytes=65536, depth=4)
    print(engine.run(plan).moved_bytes)
    engine.close()
"""
EXTRAS_OF_THE_CORE_INSTALL = ("torch", "mpi4py", "pynvml", "nvidia")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the distribution is built from: a build leaves files behind."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(path, source / name, symlinks=True, ignore=unwanted)
        elif path.exists():
            shutil.copy(path, source)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by way of the source archive."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    # The build is no part of what is tested: it is not measured.
    subprocess.run(build, check=True, capture_output=True, env=clean_environment())
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment with the wheel and its core dependencies, nothing else."""
    venv = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install", "--quiet"]
    constraints = ["--no-compile", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, str(wheel)], check=True, env=clean_environment())
    return venv / "bin"


def clean_environment() -> dict[str, str]:
    """Return the environment without what would lead back to the checkout."""
    dropped = ("PYTHON", "COVERAGE", "COV_", "VIRTUAL_ENV")
    return {key: value for key, value in os.environ.items() if not key.startswith(dropped)}


def run(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [installed / arguments[0], *arguments[1:]],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_holds_one_import_name(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"wattload"}


@pytest.mark.parametrize("folder", ["workloads", "loaders", "power", "reports", "configs"])
def test_every_file_of_a_linked_folder_is_in_the_wheel(names: set[str], folder: str) -> None:
    wanted = {
        f"wattload/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".html", ".css", ".js"}
    }
    assert wanted
    assert wanted <= names


def test_the_wheel_holds_the_engine_and_of_its_sources_what_is_read_later(names: set[str]) -> None:
    native = {name for name in names if name.startswith("wattload/loaders/engine/")}
    headers = {f"wattload/loaders/engine/src/{name}" for name in (*ENGINE_HEADERS, *FILES)}
    assert LIBRARY in native
    assert headers <= native
    assert {Path(name).suffix for name in native - headers} == {".py", ".so"}
    kernels = (RANDOM_READ, FEATURE_ROWS, *OWN_HEADERS)
    assert {f"wattload/loaders/gpu_queue/{name}" for name in kernels} <= names


def test_the_wheel_serves_any_python_of_one_platform(wheel: Path) -> None:
    """The engine is loaded by ctypes and knows no Python; it is machine code all the same."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("/WHEEL")]
        assert "Root-Is-Purelib: false" in archive.read(metadata).decode()


def test_the_source_archive_holds_the_engines_sources(wheel: Path) -> None:
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    sources = {f"wattload/{path.relative_to(ROOT)}" for path in NATIVE.glob("src/*.[ch]")}
    assert sources
    assert sources <= held
    assert LIBRARY not in held


def test_the_engine_reads_and_runs_null_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(300_001))
    done = run(installed, tmp_path, "python", "-c", NATIVE_READ, str(tmp_path / "file"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["300001", "300001"]


def test_a_build_without_a_compiler_says_what_to_install(tmp_path: Path, source: Path) -> None:
    copy = tmp_path / "source"
    shutil.copytree(source, copy, symlinks=True)
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", str(copy)]
    environment = clean_environment() | {"CC": "no-such-compiler"}
    done = subprocess.run(build, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert "compiler 'no-such-compiler' is not here: install" in done.stdout + done.stderr


def test_a_tree_whose_links_became_text_is_refused(tmp_path: Path, source: Path) -> None:
    """An unzipped tree would build a package without loaders, power and reports."""
    tree = tmp_path / "tree"
    shutil.copytree(
        source, tree, symlinks=True, ignore=shutil.ignore_patterns("build", "*.egg-info")
    )
    link = tree / "wattload/loaders"
    text = str(link.readlink())
    link.unlink()
    link.write_text(text)
    done = subprocess.run(
        [sys.executable, "setup.py", "bdist_wheel"],
        cwd=tree,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "wattload/loaders: not a link to a folder" in done.stderr
    assert not list(tree.glob("dist/*"))


def test_the_wheel_says_that_it_is_typed(names: set[str]) -> None:
    assert "wattload/py.typed" in names


def test_the_wheel_holds_no_tests_and_no_build_leftovers(names: set[str]) -> None:
    assert not [name for name in names if "/test" in f"/{name}" or "__pycache__" in name]


def test_torch_mpi_and_gpu_are_extras(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.util, sys; print(*map(importlib.util.find_spec, sys.argv[1:]))"
    done = run(installed, tmp_path, "python", "-c", code, *EXTRAS_OF_THE_CORE_INSTALL)
    assert done.stdout.split() == ["None"] * len(EXTRAS_OF_THE_CORE_INSTALL)


def test_no_generic_name_becomes_importable(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.util, sys; print(*map(importlib.util.find_spec, sys.argv[1:]))"
    generic = ("workloads", "loaders", "power", "reports", "configs", "tests", "tools")
    done = run(installed, tmp_path, "python", "-c", code, *generic)
    assert done.stdout.split() == ["None"] * len(generic)


def test_help_is_answered_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "wattload", "--help")
    assert done.returncode == 0, done.stderr
    assert "wattload run" in done.stdout


def test_a_null_run_from_the_wheel_leaves_a_complete_record(
    installed: Path, tmp_path: Path
) -> None:
    done = run(
        installed,
        tmp_path,
        "wattload",
        "run",
        "workload=null",
        f"target.path={tmp_path}",
        "power=none",
    )
    assert done.returncode == 0, done.stderr
    (record,) = tmp_path.glob("runs/*/record.json")
    assert json.loads(record.read_text())["status"] == "complete"


@pytest.mark.parametrize("workload", ["unet3d", "checkpoint", "dlrm"])
def test_the_core_runs_every_workload_without_torch(
    installed: Path, tmp_path: Path, workload: str
) -> None:
    options = [f"workload={workload}", "scale=demo", f"target.path={tmp_path}", "power=none"]
    done = run(installed, tmp_path, "wattload", "run", *options)
    assert done.returncode in (0, CHECK_FAILED), done.stderr
    (record,) = tmp_path.glob("runs/*/record.json")
    assert json.loads(record.read_text())["status"] == "complete"


def test_an_absent_extra_is_named_with_the_command_that_adds_it(
    installed: Path, tmp_path: Path
) -> None:
    options = ["workload=unet3d", "loader=torch", "scale=demo", f"target.path={tmp_path}"]
    done = run(installed, tmp_path, "wattload", "run", *options)
    assert done.returncode == 2
    assert "[torch]" in done.stderr
    assert len([line for line in done.stderr.splitlines() if "torch" in line]) == 1


def test_help_imports_nothing_heavy(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "python", "-X", "importtime", "-m", "wattload", "--help")
    assert done.returncode == 0, done.stderr
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    heavy = {
        "numpy",
        "pydantic",
        "hydra",
        "omegaconf",
        "pyarrow",
        "scipy",
        "jinja2",
        "rich",
    }
    assert not imported & heavy


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
