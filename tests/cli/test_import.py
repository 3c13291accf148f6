"""``wattload import``: what was found is printed and stored whole, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mlperf_trees import SYSTEM, write_run, write_set
from tests.second_user import as_other, need_second_user, shared_folder
from tests.tinyfs import fill, tiny_file_system
from wattload.__main__ import main
from wattload.core.mlperf.published import SET_FILE
from wattload.core.mlperf.store import read_sets

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with three sets, one of them from step lists, and a run that can't be read."""
    root = tmp_path / "results_v1.0"
    write_set(root)
    write_set(root, f"{SYSTEM}/unet3d-h100-more", runs=2)
    (root / f"{SYSTEM}/unet3d-h100-more/run2/summary.json").write_text("{,}")
    write_run(root / SYSTEM / "resnet50-a100/run1", accelerator="a100", ranks=[0, 1])
    return root


def test_sets_are_printed_by_line_and_stored(tree: Path, tmp_path: Path, capsys: Captured) -> None:
    runs = tmp_path / "runs"
    assert main(["import", str(tree), f"runs={runs}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Acme, box_1host: unet3d on 2 h100, 5 runs, 5 from block times" in lines
    assert "Acme, box_1host: unet3d on 2 a100, 1 run, 1 from step lists" in lines
    (left,) = (line for line in lines if line.startswith("left out: "))
    assert f"{SYSTEM}/unet3d-h100-more/run2/summary.json: not JSON" in left
    assert (
        "3 sets, 7 runs: 1 from step lists, 6 from block times, 0 from summaries; "
        "0 files not in this copy; 1 file left out"
    ) in lines
    assert len(read_sets([runs])[0]) == 3


def test_json_has_the_same(tree: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["import", str(tree), f"runs={tmp_path / 'runs'}", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["trees"]
    assert [each["runs"] for each in document["sets"]] == [1, 1, 5]
    assert document["sets"][0]["from"] == {"steps": 1, "blocks": 0, "summary": 0}
    assert len(document["unread"]) == 1


def test_several_trees_are_imported_at_once(tree: Path, tmp_path: Path, capsys: Captured) -> None:
    write_set(tmp_path / "mine")
    trees = [str(tree), str(tmp_path / "mine")]
    assert main(["import", *trees, f"runs={tmp_path / 'runs'}", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["trees"]) == 2
    assert len(read_sets([tmp_path / "runs"])[0]) == 4


@pytest.mark.parametrize("words", [["missing"], ["empty"], ["runs=x"]])
def test_nothing_to_import_is_bad_input(
    words: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["import", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


KILLED_AT_THE_SECOND_FILE = """
import os, signal, sys
from wattload.__main__ import main
count, fsync = 0, os.fsync
def killed(descriptor):
    global count
    count += os.readlink(f"/proc/self/fd/{descriptor}").endswith(".tmp")
    if count == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)
os.fsync = killed
main(sys.argv[1:])
"""


def test_a_killed_import_leaves_whole_sets_and_can_be_repeated(tree: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    words = ["import", str(tree), f"runs={runs}"]
    command = [sys.executable, "-c", KILLED_AT_THE_SECOND_FILE, *words]
    assert subprocess.run(command, check=False).returncode == -9
    assert [len(found) for found in read_sets([runs])] == [1, 0]
    assert main(words) == 0
    assert [len(found) for found in read_sets([runs])] == [3, 0]
    assert [file.name for file in runs.rglob("*") if file.is_file()] == [SET_FILE] * 3


def test_a_full_disk_keeps_what_was_stored_before(
    tree: Path, tmp_path: Path, capsys: Captured
) -> None:
    with tiny_file_system(tmp_path) as disk:
        words = ["import", str(tree), f"runs={disk / 'runs'}"]
        assert main(words) == 0
        before = read_sets([disk])
        write_run(tree / SYSTEM / "resnet50-a100/run2", accelerator="a100")
        fill(disk)
        assert main(words) == 1
        assert "No space left on device" in capsys.readouterr().err
        assert read_sets([disk]) == before
        assert not list(disk.rglob("*.tmp"))


def test_a_folder_without_permission_is_named(tree: Path, capfd: Captured) -> None:
    need_second_user()
    with shared_folder() as shared:
        os.chmod(shared, 0o755)  # noqa: PTH101 - as the owner

        def step() -> None:
            assert main(["import", str(tree), f"runs={shared / 'runs'}"]) in (1, 2)

        for above in (tree, *tree.parents):
            if above.stat().st_uid == os.getuid() and str(above).startswith("/tmp/pytest"):
                above.chmod(0o755)
        as_other(step)
    assert "Permission denied" in capfd.readouterr().err
