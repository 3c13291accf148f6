"""What `make setup` decides before it downloads anything."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import environment

ROOT = Path(__file__).resolve().parents[2]
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


def plan(**changes: Any) -> environment.TorchPlan:
    facts: dict[str, Any] = {
        "in_venv": None,
        "in_base": None,
        "own": "",
        "floor": "2.7",
        "pinned": "2.13.0",
        "links": [],
    }
    return environment.plan_torch(**(facts | changes))


def wheel_in(folder: Path, tag: str = TAG, machine: str = platform.machine()) -> Path:
    path = folder / f"torch-2.13.0+cpu-{tag}-{tag}-manylinux_2_28_{machine}.whl"
    path.touch()
    return path


def test_without_anything_the_ordinary_wheels_are_taken() -> None:
    chosen = plan()
    assert chosen.download_bytes == environment.TORCH_DOWNLOAD_BYTES
    assert chosen.pinned == "2.13.0"
    assert not chosen.is_kept


def test_a_local_wheel_is_taken_and_not_downloaded(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    chosen = plan(links=["https://example.org/wheels.html", tmp_path.as_uri()])
    assert str(wheel) in chosen.sentence
    assert chosen.download_bytes == 0
    assert chosen.disk_bytes < environment.TORCH_DISK_BYTES


@pytest.mark.parametrize(("tag", "machine"), [("cp27", platform.machine()), (TAG, "sparc64")])
def test_a_wheel_for_another_python_or_machine_is_passed_over(
    tmp_path: Path, tag: str, machine: str
) -> None:
    wheel_in(tmp_path, tag, machine)
    assert environment.local_wheel([str(tmp_path)], "2.13.0") is None


def test_a_wheel_of_another_version_is_passed_over(tmp_path: Path) -> None:
    wheel_in(tmp_path)
    assert environment.local_wheel([str(tmp_path)], "2.14.0") is None


def test_the_users_torch_in_the_environment_is_kept() -> None:
    chosen = plan(in_venv="2.9.1+cpu", in_base="2.12.0")
    assert (chosen.is_kept, chosen.pinned, chosen.sees_system) == (True, "2.9.1+cpu", False)


def test_the_base_pythons_torch_is_seen_through() -> None:
    chosen = plan(in_base="2.12.0+cu130")
    assert (chosen.is_kept, chosen.pinned, chosen.sees_system) == (True, "2.12.0+cu130", True)


def test_the_base_pythons_torch_is_named_as_such_when_the_environment_sees_it() -> None:
    chosen = plan(in_venv="2.12.0", in_base="2.12.0")
    assert (chosen.is_kept, chosen.sees_system) == (True, True)
    assert sys.base_prefix in chosen.sentence


def test_a_torch_that_is_too_old_is_not_used() -> None:
    assert not plan(in_venv="2.6.2", in_base="1.13.1").is_kept


def test_our_own_torch_follows_the_pin() -> None:
    assert plan(in_venv="2.13.0+cpu", own="2.13.0").is_kept
    assert not plan(in_venv="2.12.0+cpu", own="2.12.0").is_kept


def test_links_are_read_from_pips_own_words() -> None:
    text = "\n".join(
        (
            ":env:.cert='/etc/ssl/bundle.crt'",
            ":env:.find-links='/opt/wheels'",
            "global.find-links='/srv/a\\nfile:///srv/b'",
        )
    )
    assert environment.find_links(text) == ["/opt/wheels", "/srv/a", "file:///srv/b"]


def test_find_links_in_the_environment_are_seen_by_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    command = [sys.executable, "-m", "pip", "config", "list"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) in environment.find_links(text)


def test_every_declared_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    declared = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *(name for extra in environment.EXTRAS.split(",") for name in extras[extra]),
    ]
    names = {
        requirement.split(";")[0].split(">")[0].split("=")[0].strip() for requirement in declared
    }
    pinned = environment.read_constraints(ROOT / "constraints.txt")
    assert {name.lower() for name in names} <= set(pinned)


def test_torch_is_pinned_without_a_local_version() -> None:
    pinned = environment.read_constraints(ROOT / "constraints.txt")
    assert "+" not in pinned["torch"]


def test_the_fingerprint_changes_with_what_the_environment_is_made_from(tmp_path: Path) -> None:
    (tmp_path / "loaders").mkdir()
    seen = {environment.fingerprint(tmp_path, "/usr")}
    seen.add(environment.fingerprint(tmp_path, "/opt"))
    for name in ("pyproject.toml", "constraints.txt", "setup.py", "loaders/engine.c"):
        (tmp_path / name).write_text("changed")
        seen.add(environment.fingerprint(tmp_path, "/usr"))
    assert len(seen) == 6


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = environment.TorchPlan(sentence="", pinned="1", download_bytes=0, disk_bytes=1e18)
    with pytest.raises(environment.SetupError, match="GB free and set-up needs about"):
        environment.announce(huge, tmp_path)
    assert "download: about 0.3 GB" in capsys.readouterr().out


@pytest.fixture
def small_root(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "loaders").mkdir()
    return tmp_path


@pytest.mark.slow
def test_an_interrupted_set_up_goes_on_in_the_same_environment(
    small_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs = []

    def install(root: Path, venv: Path, chosen: environment.TorchPlan, *, quiet: bool) -> None:
        installs.append(quiet)
        if len(installs) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(environment, "install", install)
    with pytest.raises(KeyboardInterrupt):
        environment.set_up(small_root)
    kept = small_root / ".venv" / "kept"
    kept.touch()
    environment.set_up(small_root)
    environment.set_up(small_root)
    assert kept.exists()
    assert installs == [False, False]


def test_an_engine_that_is_gone_is_built_again(tmp_path: Path) -> None:
    native = tmp_path / "loaders/engine"
    (native / "src").mkdir(parents=True)
    assert not environment.lacks_engine(tmp_path)
    (native / "src/engine.c").touch()
    assert environment.lacks_engine(tmp_path)
    (native / "libwattload_engine.so").touch()
    assert not environment.lacks_engine(tmp_path)


@pytest.mark.slow
def test_an_update_says_nothing_of_downloads(
    small_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installs = []
    monkeypatch.setattr(environment, "install", lambda *_, quiet: installs.append(quiet))
    monkeypatch.setattr(environment, "installed_torch", lambda _: "2.13.0")
    environment.set_up(small_root)
    assert "download: about" in capsys.readouterr().out
    (small_root / "setup.py").touch()
    environment.set_up(small_root)
    assert "download" not in capsys.readouterr().out
    assert installs == [False, True]


@pytest.mark.slow
def test_an_environment_without_pip_is_made_again(small_root: Path) -> None:
    venv = small_root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    environment.make_venv(venv, sees_system=False)
    subprocess.run([venv / "bin/python", "-m", "pip", "--version"], check=True)


def test_a_pip_that_fails_is_reported_with_the_way_on(
    small_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = small_root / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to("/bin/false")
    with pytest.raises(environment.SetupError, match="run the same command again"):
        environment.install(small_root, small_root / ".venv", plan())


def test_a_failure_is_one_sentence_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(root: Path) -> None:
        raise environment.SetupError("no room")

    monkeypatch.setattr(environment, "set_up", fail)
    assert environment.main() == 1
    assert capsys.readouterr().err == "set-up: no room\n"


def test_an_interrupt_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(root: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(environment, "set_up", interrupt)
    assert environment.main() == 130
    assert "run the same command again" in capsys.readouterr().err
