"""Trees of MLPerf Storage's results: sets are found in any layout; what can't be read is listed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mlperf_trees import SAMPLES_PER_S, SYSTEM, write, write_report, write_run, write_set
from wattload.core.errors import DataError
from wattload.core.mlperf.published import PublishedSet, Unread
from wattload.core.mlperf.store import holds_published, read_sets, write_sets
from wattload.core.mlperf.tree import Tree, is_tree, read_tree


def only_set(tree: Tree) -> PublishedSet:
    (found,) = tree.sets
    return found


@pytest.mark.parametrize(
    "layout",
    [
        "runs/run{}",
        "run_{}",
        "run-{}",
        "unet3d_h100_run_{}",
        "runs/run{}/c002",
        "1host@37GPUs/runs/run{}",
        "2024-08-17-22-55-0{}",
        "run/20260720_16575{}",
        "{}.txt",
    ],
)
def test_runs_that_differ_only_in_their_own_part_are_one_set(tmp_path: Path, layout: str) -> None:
    for number in range(1, 6):
        write_run(tmp_path / f"results_v1.0/{SYSTEM}/unet3d-h100" / layout.format(number))
    found = only_set(read_tree(tmp_path / "results_v1.0"))
    assert [run.name for run in found.runs] == sorted({run.name for run in found.runs})
    assert len(found.runs) == 5
    assert (found.division, found.organisation, found.system) == ("closed", "Acme", "box_1host")
    assert (found.tree, found.edition) == ("results_v1.0", "v1.0")
    assert found.path == str(Path(f"{SYSTEM}/unet3d-h100", layout).parent).removesuffix("/run{}")


def test_accelerators_and_models_in_one_folder_are_sets_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / SYSTEM / "run1")
    write_run(tmp_path / SYSTEM / "run2", accelerator="a100")
    write_run(tmp_path / SYSTEM / "run3", model="resnet50")
    found = [each.facts for each in read_tree(tmp_path).sets]
    pairs = [(each.model, each.accelerator) for each in found if each.kind == "training"]
    assert sorted(pairs) == [("resnet50", "h100"), ("unet3d", "a100"), ("unet3d", "h100")]


@pytest.mark.parametrize("part", ["", "Closed", "Closed/Acme/results", f"{SYSTEM}/unet3d-h100"])
def test_a_part_of_a_tree_is_read_as_the_whole(tmp_path: Path, part: str) -> None:
    write_set(tmp_path)
    assert read_tree(tmp_path / part) == read_tree(tmp_path)


def test_one_run_of_a_tree_is_a_set_of_one(tmp_path: Path) -> None:
    found = only_set(read_tree(write_set(tmp_path) / "run2"))
    assert (found.organisation, found.system) == ("Acme", "box_1host")
    assert [run.name for run in found.runs] == ["run2"]


def test_output_folders_of_the_same_name_are_stored_apart(tmp_path: Path) -> None:
    sets: list[PublishedSet] = []
    for number in (1, 2):
        folder = write_run(tmp_path / f"{number}/output", hostname=f"node{number}")
        sets += read_tree(folder).sets
    write_sets(sets, tmp_path / "runs")
    assert len(read_sets([tmp_path / "runs"])[0]) == 2


def test_a_folder_outside_of_a_tree_has_no_organisation(tmp_path: Path) -> None:
    found = only_set(read_tree(write_run(tmp_path / "output")))
    assert (found.organisation, found.system, found.division) == ("unknown", "unknown", None)
    assert (found.path, found.runs[0].name) == (".", ".")


def test_a_folder_of_the_job_is_no_system(tmp_path: Path) -> None:
    write_set(tmp_path, "closed/Acme/results/unet3d-h100/runs")
    assert only_set(read_tree(tmp_path)).system == "unknown"
    (tmp_path / "closed/Acme/systems").mkdir()
    write(tmp_path / "closed/Acme/systems/box_3nodes.json", {})
    (tmp_path / "closed/Acme/systems/._box_1node.json").touch()
    assert only_set(read_tree(tmp_path)).system == "box_3nodes"
    assert only_set(read_tree(tmp_path / "closed/Acme/results")).system == "box_3nodes"


def test_a_description_that_is_not_json_is_listed_and_costs_nothing_else(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "Closed/Acme/systems").mkdir()
    (tmp_path / "Closed/Acme/systems/box_1host.JSON").write_text('{"a": 1,}')
    tree = read_tree(tmp_path)
    assert len(only_set(tree).runs) == 5
    (left,) = tree.unread
    assert left.path == "Closed/Acme/systems/box_1host.JSON"
    assert left.reason.startswith("not JSON: ")


def test_code_and_generated_data_are_passed_over_and_litter_is_counted(tmp_path: Path) -> None:
    write_set(tmp_path)
    write_run(tmp_path / "Closed/Acme/code/dlio_benchmark/tests/test_data")
    write_run(tmp_path / "Closed/Acme/v1.0.1_code/tests/test_data")
    write_run(tmp_path / SYSTEM / "unet3d-h100/datagen/20260720_165752")
    (tmp_path / SYSTEM / "._summary.json").write_bytes(b"\0\5\x16\7")
    (tmp_path / SYSTEM / "unet3d-h100/run1/.DS_Store").write_bytes(b"\0")
    tree = read_tree(tmp_path)
    assert (len(only_set(tree).runs), tree.passed_over, tree.litter) == (5, 3, 2)
    assert not tree.unread


def test_links_are_listed_and_not_followed(tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere/run6")
    folder = write_set(tmp_path / "tree")
    (folder / "run6").symlink_to(tmp_path / "elsewhere/run6")
    (folder / "run5/summary.json").unlink()
    (folder / "run5/summary.json").symlink_to(tmp_path / "elsewhere/run6/summary.json")
    tree = read_tree(tmp_path / "tree")
    assert len(only_set(tree).runs) == 4
    paths = {each.path.removeprefix(f"{SYSTEM}/unet3d-h100/") for each in tree.unread}
    assert paths == {"run6", "run5/summary.json"}
    assert set(only_set(tree).unread) == set(tree.unread)


def test_a_name_that_is_not_utf_8_is_listed(tmp_path: Path) -> None:
    write_run(Path(os.fsdecode(os.fsencode(tmp_path / SYSTEM) + b"/run\xff")))
    write_run(tmp_path / SYSTEM / "run1")
    tree = read_tree(tmp_path)
    assert len(only_set(tree).runs) == 1
    assert tree.unread == (Unread(path=f"{SYSTEM}/run?", reason="its name is not UTF-8"),)


@pytest.mark.parametrize("above", ["", "..", "../.."])
def test_the_report_of_a_set_lies_in_its_folder_or_above_it(tmp_path: Path, above: str) -> None:
    folder = write_set(tmp_path, f"{SYSTEM}/unet3d/h100")
    write_report(folder / above, ["a", "b", "c", "d", "e"])
    found = only_set(read_tree(tmp_path)).reported
    if above == "../..":
        assert found is None
    else:
        assert found is not None
        assert found.runs == dict.fromkeys("abcde", SAMPLES_PER_S)
        assert found.samples_per_s_mean == SAMPLES_PER_S


def test_a_report_above_several_sets_is_of_none(tmp_path: Path) -> None:
    write_set(tmp_path)
    write_set(tmp_path, f"{SYSTEM}/unet3d-a100")
    write_report(tmp_path / SYSTEM, ["run1"])
    assert [each.reported for each in read_tree(tmp_path).sets] == [None, None]


@pytest.mark.parametrize(
    "content",
    [
        '{"runs": {"a": {"train_throughput_samples_per_second": "1"}}}',
        '{"runs": {"a": {"train_throughput_samples_per_second": NaN}}}',
        "{",
    ],
)
def test_a_bad_report_costs_only_itself(tmp_path: Path, content: str) -> None:
    folder = write_set(tmp_path)
    (folder / "mlperf_storage_report.json").write_text(content)
    tree = read_tree(tmp_path)
    assert (len(only_set(tree).runs), only_set(tree).reported) == (5, None)
    assert [Path(each.path).name for each in tree.unread] == ["mlperf_storage_report.json"]


def test_what_only_siblings_or_the_report_have_is_not_in_this_copy(tmp_path: Path) -> None:
    folder = write_set(tmp_path, runs=4)
    (folder / "run2/per_epoch_stats.json").unlink()
    write_report(folder, [f"run{number}" for number in range(1, 6)])
    tree = read_tree(tmp_path)
    below = f"{SYSTEM}/unet3d-h100"
    assert tree.absent == (f"{below}/run2/per_epoch_stats.json", f"{below}/run5")
    assert not tree.unread


def test_a_run_without_its_summary_is_left_out(tmp_path: Path) -> None:
    folder = write_set(tmp_path)
    (folder / "run3/summary.json").unlink()
    tree = read_tree(tmp_path)
    assert len(only_set(tree).runs) == 4
    path = f"{SYSTEM}/unet3d-h100/run3/summary.json"
    assert tree.unread == (Unread(path=path, reason="not in this copy"),)


def test_another_benchmark_is_named_and_the_rest_imported(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "hpl").mkdir()
    write(tmp_path / "hpl/summary.json", {"gflops": 1})
    tree = read_tree(tmp_path)
    assert len(only_set(tree).runs) == 5
    assert [each.path for each in tree.unread] == ["hpl/summary.json"]


def test_an_empty_folder_holds_nothing_and_a_file_is_refused(tmp_path: Path) -> None:
    assert read_tree(tmp_path) == Tree((), (), (), 0, 0)
    assert not is_tree(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="not a folder"):
        read_tree(tmp_path / "file")
    assert is_tree(write_run(tmp_path / "run1").parent)


def test_what_dlio_left_in_runs_of_ours_makes_them_no_tree(tmp_path: Path) -> None:
    write_run(tmp_path / "20260720-unet3d/dlio/output")
    (tmp_path / "20260720-unet3d/record.json").touch()
    assert not is_tree(tmp_path)
    assert is_tree(tmp_path / "20260720-unet3d/dlio")
    write_run(tmp_path / "others/run1")
    assert is_tree(tmp_path)


def test_stored_sets_are_read_as_they_were_and_replaced_by_name(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tree")
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "other").mkdir()
    tree = read_tree(tmp_path / "tree")
    write_sets(tree.sets, runs)
    assert read_sets([runs]) == (tree.sets, ())
    assert holds_published(runs)
    write_run(folder / "run6")
    again = read_tree(tmp_path / "tree")
    write_sets(again.sets, runs)
    assert read_sets([tmp_path]) == (again.sets, ())
    assert len(os.listdir(runs)) == 2  # noqa: PTH208 - names alone


def test_a_stored_set_that_was_edited_is_listed(tmp_path: Path) -> None:
    (tmp_path / "published.json").write_text('{"schema_version": 2}')
    sets, unread = read_sets([tmp_path])
    assert sets == ()
    assert [each.path for each in unread] == [str(tmp_path / "published.json")]
