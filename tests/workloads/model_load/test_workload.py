"""Small loads of real files: what is counted is what was needed and arrived, and faults show."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from tests.workloads import mounts
from tests.workloads.model_load.making import Made, ReadingConfig, config, made, planned
from wattload.__main__ import main
from wattload.core.errors import ConfigError, DataError
from wattload.core.io import KEPT_PAGES
from wattload.results.model_load.facts import Access, LoadFacts, Temperature
from wattload.workloads.model_load import workload as module
from wattload.workloads.model_load.config import Destination

MIB = 1 << 20


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def write_source(folder: Path) -> Path:
    """Write a user's own model of two files, as the package does."""
    save_file = pytest.importorskip("safetensors.numpy").save_file
    folder.mkdir()
    random = np.random.default_rng(5)
    for number in range(2):
        tensors = {
            f"model.layers.{number}.mlp.{name}.weight": random.integers(0, 99, shape, np.int16)
            for name, shape in (("down_proj", (32, 96)), ("up_proj", (96, 32)))
        }
        if number == 0:
            tensors["model.embed_tokens.weight"] = random.integers(0, 99, (64, 32), np.int16)
        save_file(tensors, folder / f"model-{number}.safetensors")
    return folder


def test_what_is_counted_is_what_was_needed_and_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 0)
    monkeypatch.setattr(module, "CEILING_S", 0.02)
    run = made(context_at(tmp_path), config())
    facts, files = run.facts, files_of(tmp_path)
    assert facts.model.file_bytes == sum(path.stat().st_size for path in files)
    assert facts.model.layers == 2
    assert facts.needed_bytes == (facts.distinct_bytes,) == (facts.model.tensor_bytes,)
    assert [phase.name for phase in run.context.phases if phase.timed] == ["load"] * 2
    for load, phase in zip(facts.loads, run.loads, strict=True):
        [rank] = load.ranks
        assert phase.read_bytes == rank.delivered_bytes == facts.model.tensor_bytes
        assert rank.compared_bytes == rank.delivered_bytes
        assert rank.wrong_bytes == 0
        times = (phase.start_ns, rank.start_ns, rank.first_layer_ns, rank.end_ns, phase.end_ns)
        assert list(times) == sorted(map(int, filter(None, times)))
        assert rank.peak_memory_bytes is not None
        assert load.resident_bytes
    assert (facts.device, facts.gpus, facts.read_whole) == (None, (), ())
    assert facts.drive_ceiling_bytes_per_s
    assert facts.copy_ceiling_bytes_per_s is None
    assert [(check.name, check.verdict) for check in run.outcome.checks] == [("cold_cache", "pass")]
    assert run.context.has_ended
    as_stored = facts.model_dump(mode="json")
    assert LoadFacts.model_validate({**as_stored, "settings": facts.settings}) == facts


def test_the_job_ends_before_the_last_load_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_at(tmp_path)
    before: list[str] = []
    end = lambda: before.extend(phase.name for phase in context.phases)  # noqa: E731
    monkeypatch.setattr(context, "end_job", end)
    made(context, config())
    assert before == ["generate", "warm_up", "load", "compare", "load"]


def test_a_byte_that_flips_where_it_was_delivered_is_found(tmp_path: Path) -> None:
    def flip(held: list[Any]) -> None:
        held[3][-1, -1] ^= 1

    run = made(context_at(tmp_path), config(), ReadingConfig(spoil=flip))
    for load in run.facts.loads:
        assert load.ranks[0].wrong_bytes == 1
        assert load.ranks[0].first_wrong is not None
        assert load.ranks[0].compared_bytes == run.facts.model.tensor_bytes


def of_two_ranks(tmp_path: Path, **settings: Any) -> tuple[Made, list[Context]]:
    contexts = [
        Context(targets=(directory_target(tmp_path),), communicator=each)
        for each in ThreadCommunicator.world(2)
    ]
    runs = run_ranks(contexts, lambda context: made(context, config(tp=2, **settings)))
    assert runs[1].outcome.facts is None
    return runs[0], contexts


@pytest.mark.parametrize("access", Access)
def test_two_ranks_have_a_tensor_each_in_part(tmp_path: Path, access: Access) -> None:
    run, contexts = of_two_ranks(tmp_path, access=access)
    facts = run.facts
    model_bytes = facts.model.tensor_bytes
    assert facts.distinct_bytes == model_bytes
    assert max(facts.needed_bytes) < model_bytes < sum(facts.needed_bytes), "norms are on both"
    for number, load in enumerate(facts.loads):
        for rank, needed_bytes, context in zip(
            load.ranks, facts.needed_bytes, contexts, strict=True
        ):
            assert rank.delivered_bytes == rank.compared_bytes == needed_bytes
            assert rank.wrong_bytes == 0
            phase = context.timed("load")[number]
            assert phase.start_ns <= rank.start_ns <= rank.end_ns <= phase.end_ns
    kinds = ("o_proj", "down_proj")
    assert (facts.read_whole == ()) == (access is Access.sliced)
    assert access is Access.sliced or set(kinds) <= set(facts.read_whole)
    assert run.outcome.paths[0].path_requested == KEPT_PAGES


def test_fewer_processes_than_ranks_load_the_first_parts(tmp_path: Path) -> None:
    whole = made(context_at(tmp_path), config()).facts
    first = made(context_at(tmp_path), config(tp=4)).facts
    assert first.needed_bytes == (first.distinct_bytes,)
    assert whole.model == first.model
    assert first.distinct_bytes < 0.3 * whole.distinct_bytes


def test_warm_files_are_read_before_and_not_called_cold(tmp_path: Path) -> None:
    run = made(context_at(tmp_path), config(temperature=Temperature.warm))
    assert run.outcome.checks == []
    assert run.outcome.paths[0].path_requested == KEPT_PAGES
    warm_up = [phase for phase in run.context.phases if phase.name == "warm_up"]
    assert [phase.read_bytes for phase in warm_up] == [run.facts.model.tensor_bytes]


def test_a_users_own_files_are_read_and_not_changed(tmp_path: Path) -> None:
    source = write_source(tmp_path / "own")
    before = {path: path.read_bytes() for path in source.iterdir()}
    run = made(context_at(tmp_path), config(source=str(source)))
    assert {path: path.read_bytes() for path in source.iterdir()} == before
    assert run.facts.model.tensors == 5
    assert run.facts.model.tensor_bytes == 5 * 2 * 32 * 96 - 2 * 32 * 32
    assert [load.ranks[0].wrong_bytes for load in run.facts.loads] == [0, 0]
    assert [load.ranks[0].compared_bytes for load in run.facts.loads] == [
        run.facts.model.tensor_bytes
    ] * 2


def test_files_of_a_read_only_file_system_can_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path / "own")
    with mounts.read_only(source, tmp_path / "mounted") as place:
        words = ["plan", "model_load", f"target.path={place}", "scale=demo"]
        assert main([*words, "loader=direct", f"workload.source={place}"]) == 0
        assert main([*words, "workload.model=tiny"]) == 2
        assert "is on a read-only file system" in capsys.readouterr().err
    assert [path.suffix for path in source.iterdir()] == [".safetensors"] * 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["model_load", "scale=full"], "llama3.1-405b, 1,137 tensors, 811.71 GB"),
        (["weight_stream", "scale=full"], "3.62 GB of moe-30b-a3b"),
        (["weight_stream", "workload.layers=32", "workload.model=llama3.1-8b"], "13.96 GB of"),
    ],
)
def test_a_plan_without_a_target_has_bytes(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 0
    assert text in capsys.readouterr().out


def test_tensors_of_other_names_have_no_first_layer(tmp_path: Path) -> None:
    save_file = pytest.importorskip("safetensors.numpy").save_file
    (tmp_path / "own").mkdir()
    save_file({"filter": np.ones(4)}, tmp_path / "own" / "model.safetensors")
    [load, _] = made(context_at(tmp_path), config(source=str(tmp_path / "own"))).facts.loads
    assert (load.ranks[0].first_layer_ns, load.ranks[0].compared_bytes) == (None, 32)


def test_a_source_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "own")
    context = context_at(tmp_path)
    workload = planned(context, config(source=str(source)))
    workload.prepare(context)
    path = source / "model-0.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"model-0\.safetensors"):
        workload.run(context)


def test_what_can_not_be_loaded_is_refused_before(tmp_path: Path) -> None:
    two = Context(targets=(directory_target(tmp_path), directory_target(tmp_path, index=1)))
    with pytest.raises(ConfigError, match="names 2 folders, and a model is on one drive; name one"):
        planned(two, config())
    with pytest.raises(ConfigError, match=r"2 processes, but .* 1 ranks; set workload.tp=2"):
        planned(context_at(tmp_path, communicator=ThreadCommunicator.world(2)[0]), config())
    with pytest.raises(ConfigError, match=r"workload\.tp"):
        planned(context_at(tmp_path), config(tp=7))
    with pytest.raises(ConfigError, match=r"needs workload\.tp of 2 or more"):
        planned(context_at(tmp_path), config(access=Access.sliced))
    past = ReadingConfig()
    past.tensors_bypass_cache = True  # type: ignore[misc]
    with pytest.raises(ConfigError, match="so no load is warm; use loader=mmap or loader=torch"):
        planned(context_at(tmp_path), config(temperature=Temperature.warm), past)
    huge = ReadingConfig(memory_bytes=10**15)
    plan = planned(context_at(tmp_path), config(), huge).plan(context_at(tmp_path))
    assert plan.refusal.startswith("this load needs 1000.00 TB of host memory, and ")
    assert "set fewer workload.layers" in plan.refusal


def test_without_a_gpu_only_auto_takes_host_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattload.loaders.device_copy.DRIVER", tmp_path / "none")
    assert made(context_at(tmp_path), config(destination=Destination.auto)).facts.device is None
    with pytest.raises(ConfigError, match=r"use workload\.destination=host"):
        planned(context_at(tmp_path), config(destination=Destination.gpu))


def test_peak_memory_has_what_was_freed_since_and_no_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(64 * MIB))
    with module.peak_memory() as sampled:
        int(np.memmap(path, np.uint8, "r").max())
    assert max(sampled) < sampled[0] + 32 * MIB
    with module.peak_memory() as sampled:
        held = np.ones(64 * MIB, np.uint8)
        while max(sampled) < sampled[0] + 56 * MIB:
            time.sleep(0.01)
        del held
    assert max(sampled) > sampled[0] + 56 * MIB
