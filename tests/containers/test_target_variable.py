"""The image names its mount point once, in its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattload.run.compose import compose

ROOT = Path(__file__).resolve().parents[2]


def test_the_environment_gives_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTLOAD_TARGET", "/target")
    # Settings that no other test composes: one process reads its environment once for each.
    assert compose(["workload=null", "label=image"])[0].target.paths() == (Path("/target"),)


def test_an_override_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTLOAD_TARGET", "/target")
    config, _ = compose(["workload=null", "target.path=/mnt/ssd"])
    assert config.target.paths() == (Path("/mnt/ssd"),)


def test_the_image_sets_what_the_compose_file_mounts() -> None:
    assert "WATTLOAD_TARGET=/target" in (ROOT / "docker" / "Dockerfile").read_text()
    assert "target: /target" in (ROOT / "docker" / "compose.yaml").read_text()
