"""nvme-cli with a drive of the corpus behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.nvme.nvme_cli import BY_NAME, Cli, build


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stand-in") / "answers.so")


@pytest.fixture
def cli(request: pytest.FixtureRequest, stand_in: Path, tmp_path: Path) -> Cli:
    return Cli(stand_in, tmp_path, BY_NAME[request.param])
