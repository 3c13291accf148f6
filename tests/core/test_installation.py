"""The command that adds an extra, by how wattload was installed (PEP 610)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from wattload.core import installation
from wattload.core.installation import install_command


def installed_from(monkeypatch: pytest.MonkeyPatch, document: object) -> None:
    text = None if document is None else json.dumps(document)
    left_by_a_build = SimpleNamespace(read_text=lambda name: None)
    found = SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(installation, "distributions", lambda name: [left_by_a_build, found])


def test_a_checkout_is_installed_again_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    url = f"file://{str(checkout).replace(' ', '%20')}"
    installed_from(monkeypatch, {"url": url, "dir_info": {"editable": True}})
    command = install_command(["dlio", "torch", "dlio"], without_dependencies=["dlio-benchmark"])
    assert f" install --editable '{checkout}[dlio,torch]' && " in command
    assert command.endswith(" install --no-deps dlio-benchmark")


def test_a_wheel_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "wattload-1-py3-none-any.whl"
    wheel.touch()
    installed_from(monkeypatch, {"url": wheel.as_uri(), "archive_info": {}})
    assert install_command(["mpi"]).endswith(f" install '{wheel}[mpi]'")


def test_an_image_without_its_sources_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, {"url": "file:///source/that/is/gone", "dir_info": {}})
    expected = "EXTRAS=torch docker compose -f docker/compose.yaml build"
    assert install_command(["torch"]) == expected


def test_an_index_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, None)
    assert install_command(["gpu"]).endswith(" install 'wattload[gpu]'")


@pytest.mark.thorough
def test_pip_accepts_the_command_here(tmp_path: Path) -> None:
    import shlex
    import subprocess

    words = [*shlex.split(install_command(["mpi"])), "--dry-run", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*words, "--no-build-isolation"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Would install wattload" in done.stdout, done.stderr
