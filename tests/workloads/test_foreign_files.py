"""What somebody put in the place of our files and folders is neither written nor trusted."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.context import Context, context_at, directory_target
from tests.loaders.stores import LOADERS, SHARD, save
from tests.second_user import as_other, need_second_user, shared_folder
from wattload.core.errors import DataError, ForeignFileError
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.core.workload import Accelerator
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.checkpoint_store import CheckpointLoader
from wattload.loaders.data.data_folder import DataFolder, marker_of, open_data_folder
from wattload.loaders.data.target_folder import TargetLock, clean
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.direct.config import open_engine
from wattload.workloads.dlrm.config import Config as DlrmConfig
from wattload.workloads.dlrm.workload import Dlrm
from wattload.workloads.training.config import Config as Unet3dConfig
from wattload.workloads.training.dataset import Dataset
from wattload.workloads.training.generation import prepare

THESIS = "three years of work"

Plant = Callable[[Path, Path], None]


def link(path: Path, thesis: Path) -> None:
    path.symlink_to(thesis)


def hard_link(path: Path, thesis: Path) -> None:
    path.hardlink_to(thesis)


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    path = tmp_path / "thesis"
    path.write_text(THESIS)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path


def dlrm() -> Dlrm:
    return Dlrm(
        DlrmConfig(row_count=2000, day_count=2, rounds=1, workers=1), ArrowConfig(), Accelerator()
    )


@pytest.mark.parametrize("plant", [link, hard_link])
def test_a_day_file_is_not_written_through_a_link(target: Path, thesis: Path, plant: Plant) -> None:
    context = context_at(target)
    folder = dlrm().prepare(context).folder
    (Path(folder) / "day_0").unlink()
    plant(Path(folder) / "day_0", thesis)
    with pytest.raises(ForeignFileError, match=r"day_0 is (a symbolic link|one of 2 names)"):
        dlrm().prepare(context)
    assert thesis.read_text() == THESIS
    assert (Path(folder) / "day_0").samefile(thesis)


@pytest.mark.parametrize("plant", [link, hard_link])
def test_an_output_is_not_written_through_a_link(target: Path, thesis: Path, plant: Plant) -> None:
    context = context_at(target)
    workload = dlrm()
    workload.plan(context)
    workload.prepare(context)
    workload.run(context)
    (output, *_) = (target / "wattload-data").glob("dlrm-output-*/*.parquet")
    assert workload._outputs is not None
    workload._outputs.close()  # as for a killed process
    output.unlink()
    plant(output, thesis)
    again = dlrm()
    again.plan(context)
    again.prepare(context)
    if plant is link:
        with pytest.raises(DataError, match=r"(no longer a regular file|exists already)"):
            again.run(context)
    else:  # a listed file of an earlier run: its name goes, and nothing is written to it
        again.run(context)
        again.verify(context)
    assert thesis.read_text() == THESIS


@pytest.mark.parametrize("suffix", ["", ".tmp"])
@pytest.mark.parametrize("plant", [link, hard_link])
def test_a_record_is_not_written_through_a_link(
    target: Path, thesis: Path, plant: Plant, suffix: str
) -> None:
    planned = Dataset(Unet3dConfig(record_divisor=640), 10, (directory_target(target),))
    context = Context(targets=planned.targets)
    data, _ = prepare(planned, context)
    data.paths[1].unlink()
    planted = data.paths[1].with_name(data.paths[1].name + suffix)
    plant(planted, thesis)
    try:
        prepare(planned, context)
        assert suffix == ".tmp", "a name in the place of a record is refused"
    except DataError as error:
        assert str(planted) in str(error)  # noqa: PT017 - either is right for a temporary name
    assert thesis.read_text() == THESIS


def folders_of_another(shared: Path, thesis: Path) -> Path:
    """Make what another user may prepare in a shared target: a valid marker, and a link."""
    marker = marker_of("dlrm", {"row_count": 1}, 0)
    folder = shared / "wattload-data" / str(marker["key"])

    def plant() -> None:
        folder.mkdir(parents=True)
        (folder / ".wattload-marker.json").write_text(json.dumps(marker))
        (folder / "day_0").symlink_to(thesis)

    as_other(plant)
    return folder


def test_data_that_another_user_prepared_in_a_shared_target_is_refused(thesis: Path) -> None:
    need_second_user()
    thesis.chmod(0o600)
    with shared_folder() as shared:
        folder = folders_of_another(shared, thesis)
        ways = (
            "wattload-data belongs to nobody, and wattload runs as root; run it as nobody, choose "
            f"another folder, or have an administrator run `chown -R root {folder.parent}`"
        )
        steps: list[Callable[[], object]] = [
            lambda: TargetLock.acquire(shared),
            lambda: DataFolder.claim(shared, "dlrm", {"row_count": 1}, seed=0),
            lambda: clean(shared),
            lambda: open_data_folder(folder),
            lambda: DataFolder(folder, folder.name).record("day_0", 1, None),
        ]
        for step in steps:
            with pytest.raises(ForeignFileError, match=ways):
                step()
        assert thesis.read_text() == THESIS
        assert sorted(path.name for path in folder.iterdir()) == [".wattload-marker.json", "day_0"]


def test_a_key_that_another_user_prepared_below_our_folder_is_refused(thesis: Path) -> None:
    """Its folder was open to all once, when an older version made it with umask 0."""
    need_second_user()
    with shared_folder() as shared:
        data = shared / "wattload-data"
        data.mkdir()
        data.chmod(0o777)
        folder = folders_of_another(shared, thesis)
        with pytest.raises(ForeignFileError, match=rf"mode 0777.*run `chmod go-w {data}`"):
            TargetLock.acquire(shared)
        data.chmod(0o755)
        with (
            TargetLock.acquire(shared),
            pytest.raises(ForeignFileError, match=f"{folder} belongs to nobody"),
        ):
            DataFolder.claim(shared, "dlrm", {"row_count": 1}, seed=0)


def test_a_reader_can_not_keep_us_out_of_a_target() -> None:
    need_second_user()
    with shared_folder() as shared:
        TargetLock.acquire(shared).release()

        def lock_out() -> None:
            for file in (shared / "wattload-data").iterdir():
                with pytest.raises(PermissionError):
                    fcntl.flock(os.open(file, os.O_RDONLY), fcntl.LOCK_EX)

        as_other(lock_out)
        TargetLock.acquire(shared).release()


@pytest.mark.parametrize("plant", [link, hard_link])
@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_no_save_writes_through_a_link(
    target: Path, thesis: Path, loader: CheckpointLoader, plant: Plant
) -> None:
    store = loader.checkpoint_store(SHARD, seed=1, diskless=False)
    try:
        for name in store.file_names:
            if not name.endswith(".metadata"):  # the library renames its metadata to this
                (target / name).parent.mkdir(exist_ok=True)
                plant(target / name, thesis)
        with pytest.raises((OSError, DataError)):
            save(store, target)
    finally:
        store.close()
    assert thesis.read_text() == THESIS


def write_by_engine(path: Path) -> None:
    engine = open_engine(DirectConfig())
    try:
        engine.run(
            IOPlan(
                kind=IOKind.WRITE, extents=(Extent(path, 0, 1 << 16),), block_bytes=4096, depth=1
            )
        )
    finally:
        engine.close()


def test_the_engine_writes_no_file_of_two_names_or_of_another_user(
    target: Path, thesis: Path
) -> None:
    hard_link(target / "linked", thesis)
    with pytest.raises(OSError, match="the file has 2 names"):
        write_by_engine(target / "linked")
    assert thesis.read_text() == THESIS
    need_second_user()
    shutil.copy(thesis, target / "theirs")
    os.chown(target / "theirs", 65534, 65534)
    with pytest.raises(OSError, match="the file belongs to user 65534"):
        write_by_engine(target / "theirs")
    assert (target / "theirs").read_text() == THESIS
