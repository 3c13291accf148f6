"""Small models streamed from real files: draws, memory, order, and what is counted and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import Context, RecordedPhase, context_at, directory_target
from wattload.core.errors import ConfigError
from wattload.core.io import ByteCounter, Extent, IOResult
from wattload.core.workload import Accelerator, WorkloadPlan
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.direct.extent_reads import EngineReads
from wattload.results.weight_stream import STREAM, StreamFacts
from wattload.workloads import weight_stream as module
from wattload.workloads.model_load.models import MODELS
from wattload.workloads.weight_stream import Config, Memory, WeightStream, draws

LOADER = DirectConfig(block_bytes=1 << 16)
EXPERT_BYTES = 3 * 64 * 64 * 2
PLACE_BYTES = EXPERT_BYTES + 4096
"""Experts of tiny-moe do not begin where O_DIRECT reads."""
MIXED: dict[str, Any] = {
    "model": "tiny-moe", "tokens": 20, "batch": 2, "resident_bytes": 7 * PLACE_BYTES,
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CEILING_S", 0.02)


def planned(context: Context, **settings: Any) -> tuple[WeightStream, WorkloadPlan]:
    config = Config(**settings)
    config.check(context.scale)
    workload = WeightStream(config, LOADER, Accelerator())
    return workload, workload.plan(context)


def streamed(
    path: Path, between: Callable[[Path], object] = lambda _: None, **settings: Any
) -> tuple[StreamFacts, RecordedPhase]:
    """Return the facts and the timed phase of a run; ``between`` acts before it is read."""
    context = context_at(path)
    workload, plan = planned(context, **settings)
    assert workload.prepare(context).data_bytes == plan.data_bytes == plan.prepare_bytes
    between(path)
    outcome = workload.run(context)
    assert [check.verdict for check in outcome.checks] == ["pass"]
    assert context.has_ended
    assert isinstance(outcome.facts, StreamFacts)
    [phase] = context.timed(STREAM)
    return outcome.facts, phase


def test_what_is_counted_is_what_moved(tmp_path: Path) -> None:
    facts, phase = streamed(tmp_path, compute_us_per_layer=200.0, **MIXED)
    assert (facts.layers, facts.experts, facts.experts_per_token) == (2, 8, 2)
    assert facts.expert_bytes == EXPERT_BYTES
    assert 20 * 2 * 2 <= facts.asked <= 20 * 2 * 4
    assert 0 < facts.hits < facts.asked
    assert facts.reads == facts.asked - facts.hits
    assert facts.reads * EXPERT_BYTES < facts.read_bytes <= facts.reads * PLACE_BYTES
    assert phase.read_bytes == facts.read_bytes
    assert facts.compared_bytes == 7 * EXPERT_BYTES
    assert facts.wrong_bytes == 0
    assert facts.slept_s >= 20 * 2 * 200e-6
    assert facts.shortest_pause_s is not None
    assert facts.shortest_pause_s >= 200e-6
    assert facts.slept_s <= phase.seconds
    as_stored = facts.model_dump(mode="json")
    assert StreamFacts.model_validate({**as_stored, "settings": facts.settings}) == facts


def test_a_dense_model_is_read_layer_after_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Extent]] = []
    read = EngineReads.read

    def noted(
        self: EngineReads, wanted: Sequence[tuple[int, Extent]], moved: ByteCounter
    ) -> IOResult:
        asked.append([extent for _, extent in wanted])
        return read(self, wanted, moved)

    monkeypatch.setattr(EngineReads, "read", noted)
    facts, _ = streamed(tmp_path, model="tiny", tokens=3)
    first, second = asked[1:3]
    assert asked[1:7] == [first, second] * 3
    assert [len(first), len(second)] == [1, 1]
    assert second[0].offset_bytes <= first[0].offset_bytes + first[0].length_bytes
    assert first[0].offset_bytes < second[0].offset_bytes
    assert (facts.experts, facts.asked, facts.hits, facts.reads) == (1, 6, 0, 6)


def test_a_token_of_the_large_mixture_takes_3_62_gb(tmp_path: Path) -> None:
    workload, plan = planned(context_at(tmp_path), layers=4)
    experts, model = workload._experts, MODELS["moe-30b-a3b"]
    sizes = {sum(part.tensor_bytes for _, part in each.tensors) for each in experts}
    assert (len(experts), sizes) == (4 * 128, {9_437_184})
    a_token = model.layers * model.experts_per_token * 9_437_184
    assert a_token == 48 * 8 * 9_437_184 == pytest.approx(3.62e9, rel=2e-3)
    assert plan.read_bytes == pytest.approx(64 * a_token * 4 / 48, rel=5e-3)
    whole = [each for each in experts if len(each.extents) == 1]
    assert len(experts) - len(whole) <= 1, "only one at the end of a file is in two parts"
    assert all(each.extents[0][1].length_bytes <= 9_437_184 + 4096 for each in whole)


def test_draws_follow_from_the_seed() -> None:
    def drawn(seed: int, **settings: Any) -> np.ndarray:
        return np.stack([*islice(draws(Config(model="tiny-moe", **settings), 2, seed), 500)])

    alone = drawn(1, zipf=0, token_repeat=0)
    assert np.array_equal(alone, drawn(1, zipf=0, token_repeat=0))
    assert not np.array_equal(alone, drawn(2, zipf=0, token_repeat=0))
    assert (alone.sum(axis=2) == 2).all(), "a token takes two different experts"
    again = (alone[1:] & alone[:-1]).sum(axis=2)
    assert again.mean() == pytest.approx(2 * 2 / 8, abs=4 * 0.57 / 998**0.5)  # hypergeometric
    assert (drawn(1, token_repeat=1) == drawn(1, token_repeat=1)[0]).all()
    union = drawn(1, zipf=0, batch=3).sum(axis=2)
    assert set(np.unique(union)) == {2, 3, 4, 5, 6}


def test_popular_experts_are_drawn_as_zipf_has_it() -> None:
    tokens = 4000
    own = draws(Config(model="tiny-moe", zipf=1.0, token_repeat=0), 1, 1)
    found = np.sort(sum(islice((each[0].astype(int) for each in own), tokens)))[::-1] / tokens
    weight = 1 / np.arange(1, 9)
    weight /= weight.sum()
    second = [sum(weight[j] * weight[i] / (1 - weight[j]) for j in range(8) if j != i)
              for i in range(8)]  # fmt: skip
    due = weight + second
    assert found == pytest.approx(due, abs=4 * np.sqrt(0.25 / tokens))


def test_memory_holds_what_was_used_last() -> None:
    generator, memory = np.random.default_rng(3), Memory(9)
    held: list[int] = []  # the one used longest ago first
    for _ in range(300):
        experts = generator.choice(20, 4, replace=False).tolist()
        missing = [each for each in experts if each not in held]
        held = [each for each in held if each not in experts]
        held += [each for each in experts if each not in missing] + missing
        held = held[-9:]
        assert [expert for expert, _ in memory.use(experts)] == missing
        assert list(memory.held) == held
        assert len({*memory.held.values()}) == len(held), "each has a place of its own"
    assert memory.asked == 1200
    assert 0 < memory.hits < 1200


def flip(folder: Path) -> None:
    """Flip a bit of every byte at the end of the one file, where layer 1 is."""
    [path] = folder.rglob("*.safetensors")
    content = np.memmap(path, np.uint8, "r+")
    content[-1] ^= 1
    content[-PLACE_BYTES * 16 :: 997] ^= 1
    content.flush()


def test_a_wrong_byte_is_found_where_it_was_delivered(tmp_path: Path) -> None:
    facts, _ = streamed(tmp_path, flip, **MIXED)
    assert facts.wrong_bytes > 0
    assert facts.first_wrong is not None
    assert ".experts." in facts.first_wrong


def test_a_read_that_is_lost_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, losing = EngineReads.read, iter([False, False, True])

    def lossy(
        self: EngineReads, wanted: Sequence[tuple[int, Extent]], moved: ByteCounter
    ) -> IOResult:
        is_lost = len(wanted) > 1 and next(losing, False)
        return read(self, wanted[:-1] if is_lost else wanted, moved)

    monkeypatch.setattr(EngineReads, "read", lossy)
    facts, _ = streamed(tmp_path, **MIXED)
    assert facts.reads < facts.asked - facts.hits


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"resident_bytes": 3 * PLACE_BYTES},
            "resident_bytes must be .* or more .*kB, as a layer takes",
        ),
        ({"resident_bytes": 16 * PLACE_BYTES}, "and less than"),
        ({"layers": 3}, "workload.layers=3 is more than"),
        ({"model": "tiny-mo"}, "workload.model must be one of"),
    ],
)
def test_bad_input_is_refused_before_there_is_a_file(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        planned(context_at(tmp_path), **MIXED | settings)
    assert not [*tmp_path.iterdir()]


def test_a_model_is_on_one_drive(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    context.targets = (*context.targets, directory_target(tmp_path, index=1))
    with pytest.raises(ConfigError, match="2 folders, and a model is on one drive"):
        planned(context)
