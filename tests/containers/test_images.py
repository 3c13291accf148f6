"""What is in the images, and what is not."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.containers.engine import (
    CLUSTER_IMAGE,
    IMAGE,
    ORDINARY_USER,
    REVISION,
    ROOT,
    docker,
    settings,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("images")]

EACH_IMAGE = pytest.mark.parametrize("image", [IMAGE, CLUSTER_IMAGE], ids=["run", "cluster"])
LARGEST_BYTES, LARGEST_WITH_TORCH_BYTES = 700_000_000, 2_200_000_000
COMPILERS = "gcc cc c++ clang tcc"


def inspect(image: str) -> dict[str, Any]:
    done = docker("image", "inspect", image)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def within(image: str, *command: str) -> str:
    """Return what a command prints in a container of an image."""
    entry, *words = command
    done = docker("run", "--rm", "--network=none", "--entrypoint", entry, image, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@EACH_IMAGE
def test_an_image_is_small_labelled_and_for_an_ordinary_user(image: str) -> None:
    found = inspect(image)
    assert found["Size"] <= LARGEST_BYTES
    config = found["Config"]
    assert config["Labels"]["org.opencontainers.image.revision"] == REVISION
    assert config["User"] == f"{ORDINARY_USER}:{ORDINARY_USER}"
    assert int(within(image, "id", "-u")) == ORDINARY_USER


@EACH_IMAGE
def test_an_image_has_no_compiler_and_lists_its_packages(image: str) -> None:
    found = within(image, "sh", "-c", f"for name in {COMPILERS}; do command -v $name || :; done")
    assert found == ""
    packages = within(image, "cat", "/opt/wattload/packages.txt").splitlines()
    assert any(line.startswith("wattload @ file:///wheel/") for line in packages), packages
    pinned = set((ROOT / "constraints.txt").read_text().splitlines())
    installed = {line for line in packages if "==" in line}
    assert {"numpy", "pyarrow", "mpich"} <= {line.partition("==")[0] for line in installed}
    assert installed <= pinned
    assert image == IMAGE or any(line.startswith("openssh-server\t") for line in packages)


def files_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the beginning of every file in the layers of a saved image."""
    with tarfile.open(archive) as image:
        manifest = image.extractfile("manifest.json")
        assert manifest is not None
        for name in json.load(manifest)[0]["Layers"]:
            layer = image.extractfile(name)
            assert layer is not None
            with tarfile.open(fileobj=layer) as files:
                for file in files:
                    if file.isfile() and (content := files.extractfile(file)) is not None:
                        yield file.name, content.read(64)


def test_no_layer_holds_a_private_key(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    assert docker("save", "--output", str(archive), CLUSTER_IMAGE).returncode == 0
    names = []
    for name, start in files_of(archive):
        names.append(name)
        assert not (start.startswith(b"-----BEGIN") and b"PRIVATE KEY" in start), name
        assert "ssh_host_" not in name
    assert "usr/sbin/sshd" in names
    assert "opt/wattload/bin/wattload" in names


def test_an_image_without_a_revision_is_not_built() -> None:
    done = docker("build", "--file", str(ROOT / "docker/Dockerfile"), *_base(), str(ROOT))
    assert done.returncode != 0
    assert "make image sets it" in done.stderr


@contextmanager
def served(wheels: Path, folder: Path) -> Iterator[str]:
    """Serve a folder of torch's wheels as a package index; yield its address on this host."""
    (folder / "torch").symlink_to(wheels)
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_torch_comes_from_the_index_that_is_named(tmp_path: Path) -> None:
    """``WATTLOAD_TEST_WHEELS`` is a folder with the wheel; without it, PyTorch serves torch."""
    wheels = os.environ.get("WATTLOAD_TEST_WHEELS")
    torch = f"{IMAGE}-torch"
    with served(Path(wheels), tmp_path) if wheels else nullcontext() as index:
        words = ["EXTRAS=torch,mpi,gpu", f"REVISION={REVISION}"]
        words += [f"TORCH_INDEX={index}"] if index else []
        arguments = [word for each in words for word in ("--build-arg", each)]
        file = ("--file", str(ROOT / "docker/Dockerfile"), "--tag", torch)
        done = docker("build", *file, *arguments, *_base(), str(ROOT))
    assert done.returncode == 0, done.stderr
    assert inspect(torch)["Size"] <= LARGEST_WITH_TORCH_BYTES
    program = "import torch; print(torch.version.cuda)"
    assert within(torch, "python", "-c", program) == "None\n"


def _base() -> list[str]:
    chosen = settings(Path("/unused"))
    base = ["--build-arg", f"BASE={chosen['BASE']}"] if "BASE" in chosen else []
    return ["--network", chosen["BUILD_NETWORK"], *base]
