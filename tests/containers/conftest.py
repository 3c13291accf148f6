"""The user's folders, and the images, built once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.engine import (
    CLUSTER,
    IMAGE,
    PLAIN,
    compose,
    docker,
    make_folders,
    require_engine,
)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    require_engine()
    folder = tmp_path_factory.mktemp("images")
    try:
        # One service of each file: all of a file have the same image.
        for file, service in ((PLAIN, "wattload"), (CLUSTER, "node1")):
            done = compose(folder, "build", service, files=(file,))
            assert done.returncode == 0, done.stderr
        yield
    finally:
        for file in (PLAIN, CLUSTER):
            compose(folder, "down", "--volumes", "--remove-orphans", "--timeout=1", files=(file,))
        named = docker("image", "ls", "--format={{.Repository}}", f"--filter=reference={IMAGE}*")
        docker("image", "rm", "--force", *named.stdout.split())


@pytest.fixture(scope="module")
def host(images: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folders."""
    folder = tmp_path_factory.mktemp("host")
    make_folders(folder)
    return folder
