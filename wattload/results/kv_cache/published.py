"""How published runs of MLPerf Storage's KV cache are shown, with runs of ours next to them."""

from __future__ import annotations

from collections.abc import Callable

from wattload.core.mlperf import formulas
from wattload.core.mlperf.formulas import Value
from wattload.core.mlperf.published import CacheFacts, CacheOption, CacheTrial
from wattload.core.units import Unit
from wattload.results.facts import divided
from wattload.results.kv_cache import figures
from wattload.results.kv_cache.facts import STEADY, KvFacts, Run
from wattload.results.published import Figure, PublishedView, summarised


def _own(run: Run) -> CacheFacts:
    """Return the mix of requests of a run of ours as one option, which is none of MLPerf's."""
    facts, took_s, moved = run.facts, run.seconds(STEADY) or None, run.record.moved_bytes
    memory_bytes = (figures.counted(run, STEADY, "memory_blocks") or 0) * facts.block_bytes
    read, written = moved(STEADY, "read"), moved(STEADY, "written")
    trial = CacheTrial(seconds=took_s, read_bytes=read + memory_bytes, memory_bytes=memory_bytes)
    option = CacheOption(
        option="none", read_bytes_per_s=divided(read, took_s),
        written_bytes_per_s=divided(written, took_s),
        tokens_per_s=divided(figures.counted(run, STEADY, "output_tokens"), took_s),
        trials=(trial,),
    )  # fmt: skip
    return CacheFacts(model=facts.settings.model, ranks=1, trials=1, options=(option,))


def _of(unit: Unit, of: Callable[[CacheOption], Value]) -> Figure:
    return unit, lambda facts, _: of(facts.options[0])


PUBLISHED = PublishedView[KvFacts](
    kind="kv_cache",
    own=_own,
    rows=lambda facts: [
        ("KV cache", f"option {each.option}", facts.model_copy(update={"options": (each,)}))
        for each in facts.options
    ],
    figures={
        "read_bytes_per_s": _of(
            Unit.BYTES_PER_SECOND, lambda option: summarised(option.read_bytes_per_s)),
        "write_bytes_per_s": _of(
            Unit.BYTES_PER_SECOND, lambda option: summarised(option.written_bytes_per_s)),
        "generated_tokens_per_s": _of(
            Unit.SAMPLES_PER_SECOND, lambda option: summarised(option.tokens_per_s)),
        "processed_tokens_per_s": (
            Unit.SAMPLES_PER_SECOND, lambda facts, _: formulas.cache_per_s(
                facts, facts.options[0], lambda trial: trial.tokens_processed)),
        "share_from_memory": (
            Unit.FRACTION, lambda facts, _: formulas.memory_share(facts, facts.options[0])),
        "write_p95_s": (
            Unit.SECONDS, lambda facts, _: formulas.worst_p95_s(
                facts, facts.options[0], lambda trial: trial.write_p95_s)),
        "fsync_p95_s": (
            Unit.SECONDS, lambda facts, _: formulas.worst_p95_s(
                facts, facts.options[0], lambda trial: trial.fsync_p95_s)),
    },
    data_from=lambda facts: "trials" if facts.source == "blocks" else "summaries",
    conditions=lambda facts: {"model": facts.model, "option": facts.options[0].option,
                              "processes": str(facts.ranks)},
    phases=frozenset({STEADY}),
    unit="restored token",
    count=lambda run: figures.tokens(run, STEADY, "restored"),
    other_work="a mix of requests of wattload's own",
)  # fmt: skip
