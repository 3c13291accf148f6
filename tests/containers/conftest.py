"""The user's folders, and the images, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers.engine import CLUSTER, PLAIN, compose, make_folders, require_engine


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_engine()
    folder = tmp_path_factory.mktemp("images")
    # One service of each file: all of a file have the same image.
    for file, service in ((PLAIN, "wattload"), (CLUSTER, "node1")):
        done = compose(folder, "build", service, files=(file,))
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def host(images: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folders."""
    folder = tmp_path_factory.mktemp("host")
    make_folders(folder)
    return folder
