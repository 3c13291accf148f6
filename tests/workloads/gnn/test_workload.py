from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.context import ThreadCommunicator
from tests.workloads.gnn.making import (
    LOADERS,
    NODES,
    SMALL,
    Results,
    context_of,
    made,
    small_graph,
    workload_of,
)
from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.core.workload import Outcome
from wattload.loaders.gpu_queue.config import Config as Queue
from wattload.loaders.graph import synthetic
from wattload.loaders.graph.igb_folder import IgbFolder
from wattload.loaders.graph.synthetic import SyntheticGraph
from wattload.results.gnn.facts import PLACES
from wattload.workloads.gnn.training import CpuTraining

__all__ = ["small_graph"]
ROW = 4096


def features_of(folder: Path) -> Path:
    [path] = folder.rglob("features-0.bin")
    return path


Made = tuple[Outcome, Results]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """An outcome by each loader, and one of steps ahead, of the same files."""
    context = context_of(tmp_path_factory.mktemp("outcomes"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(synthetic.SHAPES, "igb_tiny", SMALL)
        found = {name: made(workload_of(loader), context) for name, loader in LOADERS.items()}
        found["ahead"] = made(workload_of(overlap="ahead"), context)
    return found


def test_all_loaders_train_on_the_same_batches(outcomes: dict[str, Made]) -> None:
    losses = {name: results.facts.losses for name, (_, results) in outcomes.items()}
    first = losses["direct"]
    assert len(first) == 4
    assert all(each == first for each in losses.values()), losses
    assert len({results.facts.rows for _, results in outcomes.values()}) == 1
    for name, (outcome, results) in outcomes.items():
        facts = results.facts
        assert results.checks["compared_rows"].verdict == "pass", name
        assert facts.compared_rows >= facts.rows // 16
        assert outcome.tables["steps"].num_rows == 4
        assert sum(outcome.tables["steps"]["rows"].to_pylist()) == facts.rows
        if name == "mmap":
            assert facts.storage_rows is None
            assert results.metrics["storage_rows_per_s"].value is None
            continue
        assert results.checks["row_counts"].verdict == "pass", name
        assert sum(getattr(facts, place) for place in PLACES) == facts.rows
        assert facts.storage_bytes == (facts.storage_rows or 0) * ROW
    queued = outcomes["gpu_queue"][1].facts
    assert (queued.host_rows or 0) > 0
    memory = queued.memory
    assert memory.host_rows_bytes == int(0.2 * NODES) * ROW
    assert memory.budget_bytes == int(1.5 * NODES * ROW)
    if memory.own_bytes is not None:
        assert memory.own_bytes + (memory.page_cache_bytes or 0) == memory.limit_bytes
    assert outcomes["direct"][1].facts.host_rows == 0
    assert "overlapped_times" in outcomes["ahead"][1].checks


def test_serial_stages_add_up_to_the_steps(outcomes: dict[str, Made]) -> None:
    for name in LOADERS:
        _, results = outcomes[name]
        check = results.checks["stage_times"]
        assert check.verdict == "pass", check.sentence
        stages = [each.value for each in results.metrics.values() if each.part_of == "wall_s"]
        wall_s = results.metrics["wall_s"].value
        assert wall_s is not None
        assert sum(value or 0.0 for value in stages) == pytest.approx(wall_s, rel=0.02)
        assert results.metrics["transfer_s"].value is None


@pytest.mark.parametrize("damage", ["flipped", "swapped", "stale"])
def test_rows_that_are_not_those_of_their_numbers_end_the_run(tmp_path: Path, damage: str) -> None:
    context = context_of(tmp_path)
    workload = workload_of(compare_every=1)
    workload.plan(context)
    workload.prepare(context)
    path = features_of(tmp_path)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        for row in range(NODES):
            content[row * ROW + 1000] ^= 1
    elif damage == "swapped":
        content = content[ROW:] + content[:ROW]
    else:
        old = SyntheticGraph(SMALL, 99).rows(np.arange(NODES, dtype=np.uint64))
        content = bytearray(old.tobytes())
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        workload.run(context)
    text = str(error.value)
    assert "node " in text
    assert str(path) in text
    row = int(text.split("(row ")[1].split(",", maxsplit=1)[0])
    assert f"byte {row * ROW}" in text


def test_stripes_over_targets_are_one_graph(tmp_path: Path) -> None:
    _, one = made(workload_of(), context_of(tmp_path))
    _, two = made(workload_of(Queue(requester="cpu")), context_of(tmp_path, "a", "b"))
    assert one.facts.losses == two.facts.losses
    assert len(list(tmp_path.rglob("features-1.bin"))) == 1


def test_emulated_training_sleeps_and_has_no_loss(tmp_path: Path) -> None:
    _, results = made(workload_of(training="emulated"), context_of(tmp_path))
    facts = results.facts
    assert (facts.trainer, facts.losses, facts.emulated_step_s) == ("emulated", (), 0.001)
    assert facts.stages_s["training"] >= 4 * 0.001
    assert results.metrics["last_loss"].value is None
    with pytest.raises(
        ConfigError, match=r"accelerator\.step_s\.gnn, which accelerator h100 lacks"
    ):
        workload_of(training="emulated", step_s={}).plan(context_of(tmp_path))


def test_without_a_control_group_caches_are_dropped_and_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wattload.core.host import memory_group

    def refuse(*_: Any, **__: Any) -> None:
        raise memory_group.MemoryLimitError("no group here; run as root")

    monkeypatch.setattr(memory_group, "_find_place", refuse)
    outcome, results = made(workload_of(LOADERS["mmap"]), context_of(tmp_path))
    memory = results.facts.memory
    assert (memory.method, memory.limit_bytes) == ("drop_cache", None)
    assert memory.reason == "no group here; run as root"
    assert results.facts.eviction_s > 0
    assert results.checks["stage_times"].verdict == "pass"
    assert any("no group here" in remark for remark in outcome.remarks)
    # Nothing that an earlier step has read is still there: each batch comes from storage again.
    assert results.facts.storage_bytes >= results.facts.rows * ROW


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_seeds": 2401}, "2400 training nodes, got 2401"),
        ({"memory_share": 0.01}, r"use at least 0\.\d+, or fewer workload.batch_seeds"),
        ({"sampler": "gpu"}, "workload.sampler=gpu is not possible: no GPU trains here"),
        ({"gpus": 0}, "workload.gpus names GPU 0, but the settings let no GPU take part"),
        ({"fanouts": [[1, 2], 1]}, "layer 0 .* has 2 numbers, and igb_tiny has 1 relations"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        workload_of(**settings).plan(context_of(tmp_path))
    assert not list((tmp_path / "target").iterdir())


def test_the_least_share_that_is_named_is_enough(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        workload_of(memory_share=0.01).plan(context_of(tmp_path))
    least = float(str(error.value).split("at least ")[1].split(",")[0])
    _, results = made(workload_of(memory_share=least), context_of(tmp_path))
    assert results.facts.memory.share == least


def test_rows_that_a_loader_keeps_are_in_the_budget(tmp_path: Path) -> None:
    loader = Queue(requester="cpu", host_share=0.9)
    with pytest.raises(ConfigError, match=r"the loader's memory \(1\d\.\d+ MB\)"):
        workload_of(loader, memory_share=0.8).plan(context_of(tmp_path))


def test_features_that_are_no_numbers_end_the_run(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    workload = workload_of()
    workload.plan(context)
    workload.prepare(context)
    path = features_of(tmp_path)
    path.write_bytes(np.full(NODES * ROW // 4, np.nan, dtype=np.float32).tobytes())
    with pytest.raises(DataError, match=r"node \d+ of type paper arrived with a value that is not"):
        workload.run(context)


def test_a_graph_that_does_not_fit_names_one_that_does(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"igb_full needs 1\.12 TB on .* igb_\w+ \(.*\) fits"):
        workload_of(graph="igb_full").plan(context_of(tmp_path))


def test_several_processes_are_refused(tmp_path: Path) -> None:
    [world, _] = ThreadCommunicator.world(2)
    with pytest.raises(ConfigError, match="2 processes, and gnn trains on one accelerator so far"):
        workload_of().plan(context_of(tmp_path, communicator=world))


def test_a_changed_edge_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    workload = workload_of()
    workload.plan(context)
    workload.prepare(context)
    (path,) = tmp_path.rglob("indices-*.bin")
    edges = np.fromfile(path, "<u4")
    edges[7] ^= 1
    edges.tofile(path)
    with pytest.raises(DataError, match="is not what was written: its CRC-32 is"):
        workload.run(context)
    assert [phase.name for phase in context.phases] == ["generate"]


def real_graph(root: Path, features: Path) -> Path:
    """Write a graph as IGB's downloads have them; its features are a link to a file elsewhere."""
    numbers = np.random.default_rng(1)
    (root / "processed" / "paper").mkdir(parents=True)
    (root / "processed" / "paper__cites__paper").mkdir()
    np.save(features, numbers.random((NODES, ROW // 4), np.float32))
    (root / "processed" / "paper" / "node_feat.npy").symlink_to(features)
    np.save(root / "processed" / "paper" / "node_label_19.npy", numbers.integers(0, 19, NODES))
    edges = numbers.integers(0, NODES, (20_000, 2))
    np.save(root / "processed" / "paper__cites__paper" / "edge_index.npy", edges)
    return root


@pytest.mark.parametrize("loader", ["direct", "mmap"])
def test_linked_features_of_a_real_graph_are_read_from_their_file(
    tmp_path: Path, loader: str
) -> None:
    root = real_graph(tmp_path / "igb", tmp_path / "features.npy")
    workload = workload_of(LOADERS[loader], source=str(root))
    outcome, results = made(workload, context_of(tmp_path))
    assert results.facts.rows > 0
    crc32 = IgbFolder(root).load_topology().crc32
    assert [remark for remark in outcome.remarks if "digest" in remark] == [
        f"No digest of {root} exists, so nothing proves that its edges are IGB's; they all name "
        f"existing nodes. The topology in memory has the CRC-32 {crc32:08x}: runs on the same "
        "files have the same one."
    ]


def test_features_on_another_file_system_are_refused(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system to write to")
    with TemporaryDirectory(dir=shared) as elsewhere:
        features = Path(elsewhere) / "features.npy"
        root = real_graph(tmp_path / "igb", features)
        with pytest.raises(ConfigError) as caught:
            workload_of(source=str(root)).plan(context_of(tmp_path))
    assert str(caught.value) == (
        f"workload.source={root} has its features in {features}, on another file system than "
        "target.path, whose drive would be measured while another one is read; copy the file to "
        "the target, or set target.path to a folder on its file system"
    )


def test_a_batch_that_fails_is_not_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(tmp_path)
    workload = workload_of()
    workload.plan(context)
    workload.prepare(context)
    os.truncate(features_of(tmp_path), NODES * ROW // 2)
    trained: list[int] = []
    monkeypatch.setattr(
        CpuTraining, "train", lambda self, drawn, slot: trained.append(drawn.number)
    )
    with pytest.raises((DataError, OSError)):
        workload.run(context)
    assert trained == []


def test_a_plan_tells_what_will_be_read(tmp_path: Path) -> None:
    workload = workload_of()
    plan = workload.plan(context_of(tmp_path))
    lines = dict(plan.lines)
    assert "4,000 nodes" in lines["graph"]
    assert "20 seeds" in lines["batches"]
    assert lines["trainer"] == "the CPU"
    assert plan.prepare_bytes == plan.data_bytes > NODES * ROW
    assert replace(plan, lines=()).maximum_ranks == 1
