"""Hosts of namespaces, over which MPI has been shown to work; each test finds them empty."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.cluster.hosts import NAMES, Cluster, launcher, missing, running_hosts

SENT_BYTES = 10_000_000
NODES = f"""
from mpi4py import MPI
world = MPI.COMM_WORLD
local = world.Split_type(MPI.COMM_TYPE_SHARED)
world.bcast(bytes({SENT_BYTES}) if world.rank == 0 else None)
names = world.gather(MPI.Get_processor_name())
if names:
    print(local.size, *names)
"""


def need(reason: str | None) -> None:
    """Skip a test for a reason, if there is one; where everything is set up, it fails."""
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def open_mpi_library() -> str:
    """Return Debian's Open MPI, for mpi4py to load."""
    libraries = sorted(Path("/usr/lib").glob("*/libmpi.so.40"))
    need(None if libraries else "needs Open MPI (apt-get install openmpi-bin)")
    return str(libraries[0])


@pytest.fixture(scope="session")
def hosts() -> Iterator[Cluster]:
    """Hosts on which MPI starts a node each, with their messages on the network."""
    need(missing())
    with running_hosts() as cluster:
        assert_three_nodes(cluster, launcher())
        yield cluster


@pytest.fixture
def cluster(hosts: Cluster) -> Iterator[Cluster]:
    yield hosts
    hosts.clear()


def assert_three_nodes(cluster: Cluster, words: list[str], **variables: str) -> None:
    before = {name: cluster.received_bytes(name) for name in NAMES[1:]}
    done = cluster.on(NAMES[0], *words, sys.executable, "-c", NODES, **variables)
    assert done.stdout.split() == ["1", *NAMES], done
    for name, count in before.items():
        assert cluster.received_bytes(name) - count >= SENT_BYTES
