"""Training on a data set that is there already: read in place, verified as far as can be."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.context import Context, context_at
from tests.loaders.dlio.generated import RECORD_BYTES, generate
from tests.loaders.dlio.job import needs_dlio
from tests.unet3d import direct, facts_of, live, torch, verdict, workload
from tests.workloads import mounts, outside
from wattload.__main__ import main
from wattload.core.errors import ConfigError, DataError
from wattload.core.record.file import read_record
from wattload.loaders.dlio.config import Config as DlioConfig
from wattload.results.training.facts import TrainingFacts

FILES, SIDE = 8, 128
Files = dict[str, tuple[Any, ...]]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "target").mkdir()
    return context_at(tmp_path / "target")


def write_record(path: Path, index: int) -> None:
    """Write a record as DLIO does; sizes differ."""
    record = np.random.default_rng(index).integers(0, 255, (SIDE + index, SIDE), np.uint8)
    if path.suffix == ".npz":
        np.savez(path, x=record[..., None], y=[0])
    elif path.suffix == ".npy":
        np.save(path, record[..., None])
    else:
        Image.fromarray(record).save(path, format="JPEG", bits=8)


def make_source(folder: Path, record_format: str = "npz", *, subfolders: int = 1) -> Path:
    """Return the data folder of a data set as DLIO names it."""
    for index in range(FILES):
        below = folder / "train" / (str(index % subfolders) if subfolders > 1 else "")
        below.mkdir(parents=True, exist_ok=True)
        write_record(below / f"img_{index}_of_{FILES}.{record_format}", index)
    (folder / "valid").mkdir()
    return folder


def state_of(folder: Path) -> Files:
    """Return what reading must not change: names, kinds, sizes, contents, times and owners."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        times = (state.st_mtime_ns, state.st_ctime_ns)
        found[str(path)] = (state.st_mode, state.st_uid, *times, content)
    return found


def sizes_of(source: Path) -> list[int]:
    return [path.stat().st_size for path in source.rglob("img_*")]


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Yield a source that is mounted read-only, on the target's file system."""
    with mounts.read_only(make_source(tmp_path / "data"), tmp_path / "mounted") as place:
        yield place


@pytest.mark.parametrize(("record_format", "subfolders"), [("npz", 3), ("npy", 1), ("jpeg", 1)])
def test_files_are_read_whole_and_in_place(
    context: Context, tmp_path: Path, record_format: str, subfolders: int
) -> None:
    source = make_source(tmp_path / "data", record_format, subfolders=subfolders)
    before = state_of(source)
    subject = workload(source=str(source), file_count=None, record_format=record_format)
    outcome, checks = live(subject, context)
    facts = facts_of(outcome)
    assert facts.file_count == FILES
    assert facts.read_bytes == 2 * sum(sizes_of(source))
    payloads = [SIDE * (SIDE + index) for index in range(FILES)]
    if record_format == "jpeg":
        payloads = sizes_of(source)
    assert facts.record_mean_bytes == pytest.approx(np.mean(payloads))
    assert facts.record_stdev_bytes == pytest.approx(np.std(payloads))
    assert verdict(checks, "delivered_bytes") == "warn"
    assert verdict([*outcome.checks], "cold_cache") == "pass"
    assert state_of(source) == before
    assert not any((tmp_path / "target").iterdir())


def test_a_source_that_is_mounted_read_only_is_enough(read_only: Path, context: Context) -> None:
    outcome, checks = live(workload(source=str(read_only), file_count=None), context)
    assert facts_of(outcome).read_bytes == 2 * sum(sizes_of(read_only))
    assert verdict(checks, "delivered_bytes") == "warn"


def test_the_first_files_by_number_are_enough(context: Context, tmp_path: Path) -> None:
    source = make_source(tmp_path / "data", subfolders=3)
    subject = workload(source=str(source / "train"), file_count=5)
    plan = subject.plan(context)
    facts = subject.prepare(context)
    assert plan.prepare_bytes == 0
    assert dict(plan.lines)["source"].startswith(f"the first 5 of {FILES} npz files of {source}")
    assert subject._data is not None
    assert [path.name[:5] for path in subject._data.paths] == [f"img_{n}" for n in range(5)]
    assert facts.parameters["contents"] == "unverified"
    assert facts.folder == str(source / "train")
    assert facts.data_bytes == plan.data_bytes == sum(subject._data.dataset.file_bytes)


def test_a_copy_elsewhere_is_the_same_data_set(context: Context, tmp_path: Path) -> None:
    keys = []
    for name in ("first", "second"):
        source = make_source(tmp_path / name)
        subject = workload(source=str(source), file_count=None)
        subject.plan(context)
        keys.append(subject.prepare(context).key)
    assert keys[0] == keys[1]


def truncate(folder: Path) -> None:
    path = folder / "img_3_of_8.npz"
    os.truncate(path, path.stat().st_size - 100)


def shorten_the_array(folder: Path) -> None:
    path = folder / "img_3_of_8.npz"
    content = path.read_bytes()
    place = content.index(b"(131, 128, 1)")
    path.write_bytes(content[:place] + b"(130, 128, 1)" + content[place + 13 :])


def write_no_npz(folder: Path) -> None:
    (folder / "img_3_of_8.npz").write_bytes(b"x" * 20_000)


def hold_several_samples(folder: Path) -> None:
    np.savez(folder / "img_3_of_8.npz", x=np.zeros((9, 9, 4), np.uint8), y=[0] * 4)


def empty_one(folder: Path) -> None:
    (folder / "img_3_of_8.npz").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "truncated"),
        (shorten_the_array, "followed by other bytes"),
        (write_no_npz, "not npz"),
        (hold_several_samples, "holds 4 samples"),
        (empty_one, "can't be read"),
    ],
)
def test_a_file_that_is_no_record_is_named(
    context: Context, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    source = make_source(tmp_path / "data")
    damage(source / "train")
    subject = workload(source=str(source), file_count=None)
    subject.plan(context)
    with pytest.raises(DataError, match=rf"img_3_of_8\.npz.*{words}"):
        subject.prepare(context)


def remove_one(folder: Path) -> None:
    (folder / "img_5_of_8.npz").unlink()


def remove_last(folder: Path) -> None:
    (folder / "img_7_of_8.npz").unlink()


def write_twice(folder: Path) -> None:
    write_record(folder / "img_05_of_8.npz", 5)


def add_one(folder: Path) -> None:
    write_record(folder / "img_8_of_8.npz", 8)


def mix_formats(folder: Path) -> None:
    remove_one(folder)
    write_record(folder / "img_5_of_8.npy", 5)


def mix_counts(folder: Path) -> None:
    write_record(folder / "img_3_of_16.npz", 3)


def link_out(folder: Path) -> None:
    path = folder / "img_3_of_8.npz"
    path.rename(folder.parent.parent / "elsewhere.npz")
    path.symlink_to("../../elsewhere.npz")


def link_a_folder_out(folder: Path) -> None:
    (folder / "0").symlink_to("/etc")


def remove_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_one, "has 7 files of 8 by their names, and number 5 is missing"),
        (remove_last, "number 7 is missing"),
        (write_twice, "number 5 is there twice"),
        (add_one, "has 9 files of 8 by their names, and number 8 is too many"),
        (mix_formats, r"img_0_of_8\.npz and img_5_of_8\.npy"),
        (mix_counts, r"img_0_of_8\.npz and img_3_of_16\.npz"),
        (link_out, r"img_3_of_8\.npz is a symbolic link to \.\./\.\./elsewhere\.npz"),
        (link_a_folder_out, "train/0 is a symbolic link to /etc"),
        (remove_all, "has no files that are named as DLIO names them"),
    ],
)
def test_a_folder_that_is_no_data_set_is_refused_at_once(
    context: Context, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    source = make_source(tmp_path / "data")
    damage(source / "train")
    with pytest.raises(DataError, match=words):
        workload(source=str(source), file_count=None).plan(context)


def test_settings_that_do_not_fit_are_refused(context: Context, tmp_path: Path) -> None:
    source = str(make_source(tmp_path / "data"))
    for changes, words in (
        ({"source": str(tmp_path / "none")}, "none can't be read.*No such file"),
        ({"file_count": 9}, f"file_count is 9, and workload.source={source} has 8"),
        ({"record_format": "npy"}, "has npz files, not npy; use workload.record_format=npz"),
        ({"verify_data": True}, "verify_data=true compares files with what wattload wrote"),
    ):
        settings: dict[str, Any] = {"source": source, "file_count": None, **changes}
        with pytest.raises(ConfigError, match=words):
            workload(**settings).plan(context)


def test_another_file_system_than_the_target_is_refused(context: Context, tmp_path: Path) -> None:
    memory = Path("/dev/shm", f"wattload-{os.getpid()}")
    if not memory.parent.is_dir() or memory.parent.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no other file system")
    make_source(memory)
    try:
        with pytest.raises(ConfigError, match=r"on the file system at /dev/shm and target\.path"):
            workload(source=str(memory), file_count=None).plan(context)
    finally:
        subprocess.run(["rm", "-r", memory], check=True)


@pytest.mark.parametrize(
    ("damage", "verdict", "words"),
    [
        (lambda _: None, "warn", "None of 8 files changed during the run"),
        (truncate, "fail", r"img_3_of_8\.npz was changed during the run"),
    ],
)
def test_files_that_a_program_read_may_not_change(
    context: Context,
    tmp_path: Path,
    damage: Callable[[Path], None],
    verdict: str,
    words: str,
) -> None:
    source = make_source(tmp_path / "data")
    loader = outside.OutsideConfig(after=lambda _: damage(source / "train"))
    subject = outside.workload(loader)
    subject.config.source, subject.config.epochs = str(source), 1
    found = outside.check(outside.live(subject, context), "files_verified")
    assert found.verdict == verdict
    assert re.search(words, found.sentence)


def test_a_run_says_where_its_data_are_from_and_clean_leaves_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    source = make_source(target / "data")
    before = state_of(source)
    words = ["workload=unet3d", "scale=demo", "power=none", f"target.path={target}"]
    words += [f"workload.source={source}", "workload.file_count=8", "workload.batch_samples=2"]
    assert main(["plan", *words]) == 0
    assert f"source  all 8 npz files of {source}/train, read in place" in capsys.readouterr().out
    words += ["workload.epochs=1", "accelerator.step_s.unet3d=0"]  # no pace to keep
    assert main(["run", *words, f"runs={tmp_path}/runs"]) == 0
    [run] = (tmp_path / "runs").glob("*-unet3d-*")
    record = read_record(run / "record.json")
    assert record.workload.data is not None
    assert record.workload.data.folder == str(source / "train")
    assert any("contents unverified" in remark for remark in record.workload.remarks)
    assert not any("shrunk" in remark for remark in record.workload.remarks)
    page = tmp_path / "page.html"
    assert main(["report", str(run), "-o", str(page)]) == 0
    assert f"all 8 npz files of {source}/train" in page.read_text("utf-8")
    assert main(["clean", str(target)]) == 0
    assert state_of(source) == before


# A start of the program takes 5 s: one generates, two more read.
@needs_dlio
@pytest.mark.parametrize(
    ("record_format", "subfolders", "by_dlio"),
    [
        ("npz", 3, True),
        pytest.param("jpeg", 0, False, marks=pytest.mark.thorough),
    ],
)
def test_we_read_what_dlio_generates(
    context: Context, tmp_path: Path, record_format: str, subfolders: int, by_dlio: bool
) -> None:
    source = generate(tmp_path, record_format, files=FILES, subfolders=subfolders)
    before = state_of(source)
    read: dict[str, TrainingFacts] = {}
    for loader in (direct(), torch(), DlioConfig(workers=1)) if by_dlio else (direct(), torch()):
        subject = workload(
            loader, source=str(source), record_format=record_format, file_count=None, epochs=1
        )
        outcome, _ = live(subject, context)
        read[loader.name] = facts_of(outcome)
    sizes = sizes_of(source)
    assert len(sizes) == FILES
    assert {name: facts.read_bytes for name, facts in read.items()} == dict.fromkeys(
        read, sum(sizes)
    )
    if record_format != "jpeg":
        assert read["direct"].record_mean_bytes == pytest.approx(RECORD_BYTES, rel=0.1)
    if by_dlio:
        program = read["dlio"].program
        assert program is not None
        assert sum(sizes) <= (program.epochs[0].called_bytes or 0) < 2 * sum(sizes)
    assert state_of(source) == before
