"""The image names its mount point once, in its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = """
from wattload.run.compose import compose
for words in (["workload=null"], ["workload=null", "target.path=/mnt/ssd"]):
    print(*compose(words)[0].target.paths())
"""


def test_the_environment_gives_the_default_target_and_an_override_goes_before_it() -> None:
    """In a process of its own: what is composed is kept, with the environment at that time."""
    done = subprocess.run(
        [sys.executable, "-c", TARGETS],
        env={**os.environ, "WATTLOAD_TARGET": "/target"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["/target", "/mnt/ssd"]


def test_the_image_sets_what_the_compose_file_mounts() -> None:
    assert "WATTLOAD_TARGET=/target" in (ROOT / "docker" / "Dockerfile").read_text()
    assert "target: /target" in (ROOT / "docker" / "compose.yaml").read_text()
