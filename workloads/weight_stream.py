"""The weight_stream workload: which drive serves a model larger than memory, for how many joules.

Attention, norms, router, embedding and head are taken to be in memory: a layer reads those of its
experts that a token takes and that memory does not hold. Of a dense model each layer is read whole,
as if it were the only expert of its layer.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.io import ByteCounter, Extent
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.settings import check_settings, setting
from wattload.core.units import MICRO, NS_PER_S, format_bytes
from wattload.core.workload import (
    Accelerator,
    Outcome,
    Outline,
    OverHosts,
    RunContext,
    WorkloadPlan,
)
from wattload.loaders.aligned_io import direct_alignment, round_down, round_up
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.loaders.extent_reads import ExtentReadConfig, ExtentReads
from wattload.loaders.tensor_loads import LoadPlan, TensorPart
from wattload.results.facts import divided
from wattload.results.weight_stream import STREAM, StreamFacts, StreamSettings
from wattload.workloads.model_load import config as model_load
from wattload.workloads.model_load.dataset import WRITING_BYTES, dataset_of, one_target
from wattload.workloads.model_load.models import (
    MODELS,
    expert_of,
    layer_of,
    model_named,
    tensors_of,
)

CEILING_S, CEILING_TOKENS = 3.0, 64
FILLED_TOGETHER = 64


@dataclass(slots=True, kw_only=True)
class Scale:
    """The size of one scale."""

    layers: int | None = None
    tokens: int = 64


@dataclass(slots=True, kw_only=True)
class Config:
    """Weights that are read for each token."""

    _target_: str = "wattload.workloads.weight_stream.WeightStream"
    model: str = setting(
        "moe-30b-a3b", "Model: experts that are drawn, or all of a dense one.", choices=[*MODELS]
    )
    layers: int | None = setting(None, "Its layers.", least=2, most=1000, unset="all of the model")
    resident_bytes: int | None = setting(
        None, "Memory for experts.", least=1, unset="a quarter of them; of a dense model one layer"
    )
    zipf: float = setting(1.0, "Exponent of the popularity of experts.", least=0, most=10)
    token_repeat: float = setting(
        0.3, "Probability that an expert of the last token is taken again.", least=0, most=1
    )
    batch: int = setting(1, "Sequences whose tokens are computed together.", least=1, most=256)
    tokens: int = setting(64, "Tokens of each sequence.", least=1, most=4096)
    compute_us_per_layer: float = setting(
        0.0, "Emulated computation of a layer, in µs.", least=0, most=1e7
    )
    scales: dict[str, Scale] = setting(dict, "Layers and tokens by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "workload")

    @property
    def taken(self) -> int:
        """The experts of a layer that a token takes."""
        return max(MODELS[self.model].experts_per_token, 1)


class Expert(NamedTuple):
    """Extents and tensors of an expert, with their offsets in the memory that it takes."""

    extents: list[tuple[int, Extent]]
    tensors: list[tuple[int, TensorPart]]
    memory_bytes: int


Step = list[tuple[int, int]]
"""The experts that a layer reads for a token, each with its place in memory."""


def experts_of(plan: LoadPlan, *, is_dense: bool, unit_bytes: int) -> list[Expert]:
    """Return all experts by layer, their extents in whole units of O_DIRECT."""
    found, tensors, ends = [], defaultdict[Any, list[TensorPart]](list), {}
    for part in plan.parts:
        ends[part.file] = part.offset_bytes + part.tensor_bytes
        key = layer_of(part.name), 0 if is_dense else expert_of(part.name)
        if None not in key:
            tensors[key].append(part)
    for key in sorted(tensors):
        made = Expert([], [], 0)
        for file, group in groupby(tensors[key], lambda part: part.file):
            parts, at = [*group], made.memory_bytes
            start = round_down(parts[0].offset_bytes, unit_bytes)
            size = round_up(parts[-1].offset_bytes + parts[-1].tensor_bytes - start, unit_bytes)
            extent = Extent(plan.files[file], start, min(size, ends[file] - start))
            made = Expert(
                [*made.extents, (at, extent)],
                made.tensors + [(at + part.offset_bytes - start, part) for part in parts],
                at + size,
            )
        found.append(made)
    return found


def draws(config: Config, layers: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Yield which experts the layers take for a token, over all sequences: (layers, experts).

    A sequence takes each expert of its last token again with ``token_repeat``. The others are drawn
    without replacement, the i-th most popular of a layer with the weight 1 ÷ i^zipf: the largest of
    logarithmic weights plus Gumbel noise are such a sample.
    """
    generator = np.random.default_rng(seed)
    shape = layers, config.batch, max(MODELS[config.model].experts, 1)
    ranks = generator.permuted(np.tile(np.arange(shape[2]), (layers, 1)), axis=1)
    weights, taken = -config.zipf * np.log1p(ranks)[:, None], np.zeros(shape, bool)
    while True:
        keys = weights + generator.gumbel(size=shape)
        keys[taken & (generator.random(shape) < config.token_repeat)] = np.inf
        taken = keys >= np.partition(keys, -config.taken, axis=2)[..., -config.taken, None]
        yield taken.any(axis=1)


class Memory:
    """The experts that memory holds, each at a place; the one used longest ago makes room."""

    def __init__(self, places: int) -> None:
        self.held = OrderedDict[int, int]()
        self.asked = self.hits = 0
        self._free = list(range(places))

    def use(self, experts: Sequence[int]) -> Step:
        """Use experts together; return those that are read."""
        missing = [expert for expert in experts if expert not in self.held]
        self.asked, self.hits = self.asked + len(experts), self.hits + len(experts) - len(missing)
        for expert in filter(self.held.__contains__, experts):
            self.held.move_to_end(expert)
        for expert in missing:
            self.held[expert] = self._free.pop() if self._free else self.held.popitem(last=False)[1]
        return [(expert, self.held[expert]) for expert in missing]

    def use_tokens(self, drawn: Iterator[NDArray[np.bool_]], count: int) -> list[list[Step]]:
        """Use the experts of tokens, layer after layer; return what each layer reads."""
        return [
            [self.use((layer * len(row) + np.flatnonzero(row)).tolist())
             for layer, row in enumerate(token)]
            for token in islice(drawn, count)
        ]  # fmt: skip


def stream(
    reads: ExtentReads,
    experts: Sequence[Expert],
    tokens: Sequence[Sequence[Step]],
    moved: ByteCounter,
    *,
    place_bytes: int,
    compute_s: float = 0.0,
) -> dict[str, Any]:
    """Read what a layer reads once the one before has been computed.

    Returns facts as they are named in ``StreamFacts``.
    """
    count = read_bytes = slept_ns = 0
    pauses_ns, last_ns = list[int](), None
    for step in chain.from_iterable(tokens):
        wanted = [
            (place * place_bytes + at, extent)
            for expert, place in step
            for at, extent in experts[expert].extents
        ]
        if wanted:
            result = reads.read(wanted, moved)
            is_whole = result.moved_bytes == sum(extent.length_bytes for _, extent in wanted)
            count, read_bytes = count + is_whole * len(step), read_bytes + result.moved_bytes
            if last_ns is not None:
                pauses_ns.append(result.start_ns - last_ns)
            last_ns = result.end_ns
        if compute_s:
            computed_ns = time.monotonic_ns()
            time.sleep(compute_s)
            slept_ns += time.monotonic_ns() - computed_ns
    return {
        "reads": count,
        "read_bytes": read_bytes,
        "slept_s": slept_ns / NS_PER_S,
        "shortest_pause_s": divided(min(pauses_ns, default=None), NS_PER_S),
    }


def outline(config: Config, *, seed: int) -> Outline:
    """Return what a token takes of a model, which is known without a target."""
    model = model_named(config.model, layers=config.layers)
    size_bytes = sum(
        tensor.size_bytes * config.taken // max(model.experts, 1)
        for tensor in tensors_of(model, "BF16")
        if layer_of(tensor.name) is not None
        and (expert_of(tensor.name) is not None or not model.experts)
    )
    text = f"{format_bytes(size_bytes)} of {config.model} if memory holds none of it"
    return Outline(lines=(("token", text),), figures={"token_bytes": size_bytes})


class WeightStream:
    """Tokens one after the other, in the timed phase ``stream``; before it, memory is filled."""

    name: ClassVar[str] = "weight_stream"
    outline = staticmethod(outline)
    needs: ClassVar[tuple[type, ...]] = (ExtentReadConfig,)
    over_hosts: ClassVar[OverHosts] = "one"
    """A model is streamed from one drive, by one process."""

    def __init__(self, config: Config, loader: ExtentReadConfig, accelerator: Accelerator) -> None:
        self.config, self._loader = config, loader

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will read and write; creates nothing.

        Raises:
            ConfigError: memory has no room for a layer, or has room for all, or a setting is wrong.
            TargetError: the loader can't read from the target.
        """
        config, target = self.config, one_target(context.targets)
        self._loader.check_extent_reads(target)
        # What is in memory all the time needs no space on the drive: the vocabulary is small.
        own = model_load.Config(model=config.model, layers=config.layers, vocabulary_divisor=64)
        data = self._data = dataset_of(own, context.seed, target, scale=context.scale)
        self._experts = experts_of(
            data.plan_of(0, 1),
            is_dense=not MODELS[config.model].experts,
            unit_bytes=direct_alignment(target.path),
        )
        layers, place_bytes = data.model.layers, max(each.memory_bytes for each in self._experts)
        most = min(config.batch * config.taken, len(self._experts) // layers)
        # A dense model's layers come in turns: less than all of them is never hit.
        share, kind = (
            (len(self._experts) // 4, "experts") if MODELS[config.model].experts else (0, "layers")
        )
        held_bytes = config.resident_bytes or max(most, share) * place_bytes
        self._place_bytes, self._places = place_bytes, held_bytes // place_bytes
        if not most <= self._places < len(self._experts):
            raise ConfigError(
                f"workload.resident_bytes must be {most * place_bytes} or more "
                f"({format_bytes(most * place_bytes)}, as a layer takes) and less than "
                f"{len(self._experts) * place_bytes} "
                f"({format_bytes(len(self._experts) * place_bytes)}, all of the model), got "
                f"{held_bytes}; change it, workload.batch or workload.layers"
            )
        steps = config.tokens * layers
        return WorkloadPlan(
            data_bytes=sum(data.sizes.values()),
            prepare_bytes=sum(data.missing().values()),
            run_bytes=0,
            peak_bytes=sum(data.sizes.values()),
            present_bytes=data.present_bytes(),
            memory_bytes_per_rank=max(held_bytes, WRITING_BYTES),
            needs_direct_io=True,
            read_bytes=steps * most * place_bytes,
            computing_s=steps * config.compute_us_per_layer * MICRO,
            lines=(
                (
                    "stream",
                    f"{len(self._experts)} {kind} of {format_bytes(place_bytes)}; memory holds "
                    f"{self._places}, a token takes {layers * config.taken}",
                ),
            ),
            maximum_ranks=1,
        )

    def prepare(self, context: RunContext) -> DataRecord:
        """Write the files of the model, or what is missing of them."""
        return self._data.prepare(context)

    def run(self, context: RunContext) -> Outcome:
        """Fill memory as by as many tokens, stream, compare, and measure what bounds the rate.

        Raises:
            DataError: a file is too short, or changed while it was read.
            OSError: a read failed.
        """
        config, target, data, experts = self.config, context.targets[0], self._data, self._experts
        model, place_bytes = MODELS[config.model], self._place_bytes
        context.progress.begin("drawing experts")
        drawn, memory = draws(config, data.model.layers, context.seed), Memory(self._places)
        memory.use_tokens(drawn, config.tokens)
        held, memory.asked, memory.hits = list(memory.held.items()), 0, 0
        tokens = memory.use_tokens(drawn, config.tokens)
        order = np.arange(len(experts))
        if model.experts:
            np.random.default_rng(context.seed).shuffle(order)
        evict(data.files)
        cold = cold_cache_check(data.files)
        memory_bytes = self._places * place_bytes
        with closing(self._loader.extent_reads(memory_bytes, target)) as reads:
            with context.phase("fill", timed=False) as phase:
                starts = range(0, len(held), FILLED_TOGETHER)
                fill = [held[start : start + FILLED_TOGETHER] for start in starts]
                stream(reads, experts, [fill], phase.count_read, place_bytes=place_bytes)
            context.progress.begin("streaming")
            with context.phase(STREAM) as phase:
                found = stream(
                    *(reads, experts, tokens, phase.count_read),
                    place_bytes=place_bytes,
                    compute_s=config.compute_us_per_layer * MICRO,
                )
            context.end_job()
            with context.phase("compare", timed=False):
                found |= data.compared(self._delivered(reads, memory))
            with context.phase("drive_ceiling", timed=False) as phase:
                extents = [extent for each in order for _, extent in experts[each].extents]
                ceiling = reads.repeat(extents, CEILING_S, phase.count_read)
        nowhere = self._loader.extent_reads(place_bytes, target, diskless=True)
        with closing(nowhere), context.phase("host_ceiling", timed=False):
            some, start_s = tokens[:CEILING_TOKENS], time.monotonic()
            stream(nowhere, experts, some, lambda _: None, place_bytes=0)
            alone_s = time.monotonic() - start_s
        facts = StreamFacts(
            settings=StreamSettings.model_validate(config),
            digest=data.model.digest,
            layers=data.model.layers,
            experts=max(model.experts, 1),
            experts_per_token=config.taken,
            expert_bytes=max(sum(part.tensor_bytes for _, part in e.tensors) for e in experts),
            memory_bytes=memory_bytes,
            asked=memory.asked,
            hits=memory.hits,
            **found,
            drive_ceiling_bytes_per_s=ceiling.moved_bytes / ceiling.seconds,
            host_ceiling_tokens_per_s=len(some) * config.batch / alone_s,
        )
        return Outcome(facts=facts, paths=(reads.path(),), checks=(cold,), queue_depth=0)

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return no checks: ``run`` has compared what memory held."""
        return ()

    def _delivered(
        self, reads: ExtentReads, memory: Memory
    ) -> Iterator[tuple[TensorPart, NDArray[np.uint8]]]:
        """Yield the tensors in memory, each of shape (rows, row_bytes)."""
        for expert, place in memory.held.items():
            for at, part in self._experts[expert].tensors:
                start = place * self._place_bytes + at
                content = reads.memory[start : start + part.tensor_bytes]
                yield part, content.reshape(-1, part.row_bytes)
