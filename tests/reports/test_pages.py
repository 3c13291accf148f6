"""Pages of made-up sessions, block by block, against what they said before.

``pytest tests/reports/test_pages.py --update-goldens`` writes the files again; read the difference
before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.records import Scenario, cluster_of, make_cluster, training_record
from tests.reports.caches import cache_run, cache_turns, rate_sweep
from tests.reports.gnn import gnn_run, pairs
from tests.reports.gpu_reads import reads_run, reads_sweep
from tests.reports.page_text import blocks_text, page_text
from tests.reports.random_reads import pair_sweep, random_run, target_sweep
from tests.reports.random_writes import writes_run
from tests.reports.sessions import against_itself, session, simulated, turn
from tests.reports.vectors import drive_curves, search_run
from tests.training import epoch, facts_of, program_epoch
from wattload.core.record.results import Check
from wattload.core.record.run import Comparison
from wattload.core.units import Unit
from wattload.reports.blocks import Paragraph, Section
from wattload.reports.render.page import AFTER_WORKLOADS
from wattload.reports.render.text_export import markdown_report
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import Traces
from wattload.reports.sections.claims import claims_section
from wattload.reports.sections.first import first_section
from wattload.reports.sections.runs import runs_section
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import Subject, make_subject
from wattload.reports.stats.summary import first_screen
from wattload.results.quantity import one_unit
from wattload.results.reading import judged
from wattload.results.training.facts import Program

GOLDENS = Path(__file__).parent / "goldens"
REAL: dict[str, Any] = {"power": "measured", "virtual": False}
SLOW, FAST = [1.0e9, 1.01e9, 0.99e9, 1.0e9] * 2, [2.4e9, 2.42e9, 2.38e9, 2.4e9] * 2
A: dict[str, Any] = {"label": "A", "rate": 1.9e9, "serial": "SERIALA", "watts": 16.0}
B: dict[str, Any] = {"label": "B", "rate": 1.3e9, "serial": "SERIALB", "watts": 15.0}
FILL: dict[str, Any] = {"until": "fill", "draw": "each_once"}
FAILED = Check(name="queue_depth_read", verdict="fail", sentence="Too few reads were in flight.")
OF_RUNS = AFTER_WORKLOADS.index(runs_section)
NO_TRACES = Traces(throughput=None, power=None, notes=(), digests={}, tables={})
EIO = [{"file": "/mnt/0/block.bin", "reason": "EIO", "offset_bytes": 512, "count": 3}]


def turns(
    make: Callable[..., Run], sides: Sequence[Mapping[str, Any]], count: int = 6, **common: Any
) -> list[Run]:
    """Return runs of arms that alternate, with rates that scatter by under 1.5 %."""
    runs: list[Run] = []
    for block in range(count):
        order = range(len(sides)) if block % 2 == 0 else reversed(range(len(sides)))
        for side in order:
            place = len(runs)
            own = {**common, **sides[side]}
            own["rate"] *= 1 + 0.003 * (place * 7 % 5)
            runs.append(make(name=f"r{side}-{block}", repeat=place, seed=place + 1, **own))
    return runs


def each(make: Callable[..., Run], sides: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    """Return one run of each arm, by the names of the arms."""
    return [make(name=name, repeat=at, **own) for at, (name, own) in enumerate(sides.items())]


def write_turns(**changes: Any) -> list[Run]:
    runs = []
    for block in range(8):
        for order, arm in enumerate((A, B)):
            own = arm | {"rate": arm["rate"] * (1 + 0.004 * ((3 * block + order) % 5))} | changes
            place = Comparison(
                session_id="s", arm=arm["label"], block=block, order=order, interleave="abba"
            )
            name = f"run-{arm['label']}-{block}"
            runs.append(writes_run(name=name, seed=2 * block + order, comparison=place, **own))
    return runs


def writes_over_rates() -> list[Run]:
    return [
        writes_run(name=f"run-{limit}", seed=seed, rate=limit, limit_bytes_per_s=limit)
        for seed, limit in enumerate((0.5e9, 1e9))
    ]


def rivals(**of_direct: Any) -> list[Run]:
    gpu = {"rate": 94e6}
    cpu = {"loader": "direct", "rate": 45e6, "cores": 48.0, **of_direct}
    return turns(random_run, (gpu, cpu), targets=14)


def read_by(word: str) -> list[Run]:
    return each(reads_run, {"a": {"loader": "cufile", "word": word}, "b": {}})


def failed_before_reading() -> Run:
    run = reads_run(name="a", loader="cufile")
    workload = run.record.workload.model_copy(update={"paths": (), "facts": {}})
    ended = {"status": "failed", "status_reason": "cuFile does not start", "spans": ()}
    record = run.record.model_copy(update={**ended, "workload": workload})
    return Run(record=record, traces=run.traces)


def accelerator_search() -> list[Run]:
    """Return runs of one, two and four accelerators; the last have to wait for their batches."""
    runs: list[Run] = []
    for count, load_s in ((1, 0.01), (2, 0.02), (4, 0.2)):
        for repeat in range(2):
            one = epoch([load_s] * 60, [0.301] * 60, read_bytes=count * 10_000_000_000)
            facts = facts_of([one] * 2, accelerators=count)
            record = training_record(facts, Scenario(run_id=f"n{count}-{repeat}", scale="quick"))
            place = Comparison(session_id="search", arm="", block=repeat, order=len(runs))
            accelerator = {"name": "h100", "count": count}
            changes = {
                "comparison": place,
                "config": {**record.config, "accelerator": accelerator, "seed": repeat},
            }
            runs.append(Run(record=record.model_copy(update=changes), traces=NO_TRACES))
    return runs


def three_hosts() -> list[Run]:
    hosts = cluster_of("ada", "bob", "cyd", slow="cyd", ranks=2, workload="checkpoint", **REAL)
    return [Run(record=judged(make_cluster(hosts)[0]), traces=NO_TRACES)]


def outside_program() -> list[Run]:
    """Return a run of dlio-benchmark whose accelerators computed most of the time."""
    one = epoch([0.01] * 60, [0.3] * 60, hash_cpu_s=None, step_s=None)
    of_program = program_epoch(
        window_s=18.61,
        called_bytes=66_000,
        storage_bytes=60_000,
        au=59 * 0.3 / 18.29,
        samples_per_s=60 * 7 / 18.6,
    )
    program = Program(version="2.0.0", command=("dlio",), epochs=(of_program,) * 2)
    facts = facts_of([one] * 2, program=program)
    record = training_record(facts, Scenario(loader="dlio"))
    return [Run(record=judged(record), traces=NO_TRACES)]


def loaders(**changes: Any) -> list[Run]:
    return each(
        gnn_run, {name: {"loader": name, **changes} for name in ("mmap", "direct", "gpu_queue")}
    )


def drives(**changes: Any) -> list[Run]:
    other = {"rate": 0.98e6, "serial": "SERIAL02", "model": "MICRON_9400", "link_gt_per_s": 16.0}
    sides = ({"label": "A", "rate": 1.9e6}, {"label": "B", **other})
    return turns(gnn_run, sides, loader="gpu_queue", graph="igbh_full", **changes)


def swept_workers() -> list[Run]:
    return [
        run
        for at, workers in enumerate((1, 2, 4))
        for run in session(
            {"A": [rate * workers**0.8 for rate in SLOW[:6]], "B": [1.3e9 * workers] * 6},
            session=f"s{at}",
            settings={"workload": {"workers": workers}},
            **REAL,
        )
    ]


def warm_ups_and_strays() -> list[Run]:
    return [
        *[turn(label, -1, 9e9, warm_up=True, name=f"w{label}") for label in "AB"],
        *session({"A": [*SLOW, 4e9], "B": FAST}, remarks=("12 files were read.",), **REAL),
        turn("A", 9, 1e9, checks=(FAILED,), **REAL),
    ]


def one_after_the_other() -> list[Run]:
    """Return three runs in PS1 and then three in PS0."""
    return [
        turn(label, at, rate, interleave="none", name=f"{label}{at}", order=20 * state + at,
             state=state, **REAL)
        for label, rate, state in (("A", 1e9, 1), ("B", 9e8, 0))
        for at in range(3)
    ]  # fmt: skip


def mixed_work() -> list[Run]:
    other = [turn("B", block, 1e9, **{**REAL, "scale": "full"}) for block in range(6)]
    return [*session({"A": [2e9] * 6}, **REAL), *other]


def three_jobs(**changes: Any) -> list[Run]:
    return [
        run
        for kind in ("unet3d", "checkpoint", "dlrm")
        for run in session(
            {"A": FAST, "B": SLOW}, session=kind, workload=kind, **{**REAL, **changes}
        )
    ]


Part = Literal["page", "evidence", "job", "claims"]
"""The whole page, all but its single runs, the first screen with the job's section, or claims."""

# A case: the runs, what tells the arms apart, and the part of the page that is compared.
CASES: dict[str, tuple[Callable[[], Sequence[Run]], str, Part]] = {
    "three-jobs": (three_jobs, "label", "page"),
    "one-run": (lambda: session({"A": FAST[:1]}, interleave="none", **REAL), "label", "page"),
    "three-hosts": (three_hosts, "label", "evidence"),
    "no-sensor": (lambda: session({"A": FAST, "B": SLOW}), "label", "job"),
    "bounds": (lambda: three_jobs(power="bounds"), "label", "job"),
    "declared": (lambda: three_jobs(power="declared"), "label", "job"),
    "self-reported": (lambda: three_jobs(power="self_reported"), "label", "job"),
    "simulated": (lambda: simulated(FAST, SLOW), "label", "job"),
    "too-few": (lambda: session({"A": FAST[:3], "B": SLOW[:3]}, **REAL), "label", "job"),
    "no-difference": (lambda: session({"A": SLOW, "B": SLOW[::-1]}, **REAL), "label", "job"),
    "three-arms": (
        lambda: session({"A": SLOW, "B": FAST, "C": [1.5e9] * 8}, **REAL), "label", "job"
    ),
    "against-itself": (lambda: against_itself("A", SLOW, SLOW[::-1]), "label", "evidence"),
    "itself-apart": (
        lambda: against_itself("A", SLOW, [1.05 * each for each in SLOW]), "label", "evidence"
    ),
    "one-after-the-other": (one_after_the_other, "label", "evidence"),
    "warm-ups-and-strays": (warm_ups_and_strays, "label", "page"),
    "other-work": (mixed_work, "label", "job"),
    "sweep-of-workers": (swept_workers, "label", "page"),
    "accelerator-search": (accelerator_search, "label", "job"),
    "outside-program": (outside_program, "label", "page"),
    "random-reads": (lambda: [random_run(rate=7e6, gpus=2, targets=4)], "loader", "page"),
    "random-reads-rivals": (rivals, "loader", "job"),
    "random-reads-engines": (
        lambda: each(random_run, {"null": {"engine": "null", "rate": 130e6},
                                  "memory": {"engine": "memory", "rate": 94e6},
                                  "storage": {"rate": 7e6}}),
        "loader.engine", "job",
    ),
    "random-reads-not-proved": (lambda: [random_run(lost=3, failures=EIO)], "loader", "job"),
    "random-reads-cached": (
        lambda: each(random_run, {"plain": {"rate": 7e6}, "cached": {"rate": 2e6, "arm":
                                  "gpu_queue", "cache_bytes": 1 << 24}}),
        "loader.cache_bytes", "job",
    ),
    "random-reads-mapped": (
        lambda: turns(random_run, (
            {"loader": "mmap", "rate": 5.98e6, "cached": 0.999998, "cores": 16.0},
            {"loader": "direct", "rate": 0.081e6, "cores": 1.0})),
        "loader", "job",
    ),
    "random-reads-over-targets": (lambda: target_sweep((1, 7, 16), rate=None), "loader", "job"),
    "random-reads-on-one-drive": (
        lambda: target_sweep((1, 2), has_shared_drive=True), "loader", "job"
    ),
    "random-reads-over-pairs": (lambda: pair_sweep(queue_pairs=(1, 8, 32)), "loader", "job"),
    "random-reads-over-two": (
        lambda: [random_run(name=f"{pairs}-{block}", queue_pairs=pairs, block_bytes=block,
                            repeat=at) for at, (pairs, block) in
                 enumerate((p, b) for p in (1, 8) for b in (512, 4096))],
        "loader", "job",
    ),
    "random-reads-generations": (
        lambda: each(random_run, {
            "32": {"arm": "32", "link_gt_per_s": 32.0, "rate": 3.72e6, "targets": 2},
            "64": {"arm": "64", "link_gt_per_s": 64.0, "rate": 6.92e6, "targets": 2}}),
        "label", "job",
    ),
    "random-reads-traced": (
        lambda: [random_run(traced=2000, targets=8, read_bytes=4096)], "loader", "job"
    ),
    "gpu-reads-loaded": (lambda: reads_sweep(blocks=(4096,), threads=(8, 512)), "loader", "page"),
    "gpu-reads-panels": (lambda: reads_sweep(pairs=1, threads=(8, 32)), "loader", "job"),
    "gpu-reads-kvikio": (
        lambda: [reads_run(name="a", loader="kvikio", word="posix_bounce")], "loader", "job"
    ),
    "gpu-reads-failed": (
        lambda: reads_sweep(blocks=(4096,), threads=(8,), loads=("none",), failed=3),
        "loader", "job",
    ),
    "gpu-reads-peer-to-peer": (
        lambda: reads_sweep(words=("p2p_nvfs", "host_bounce"), blocks=(4096,), threads=(8, 2048)),
        "loader", "job",
    ),
    "gpu-reads-unlike-loads": (
        lambda: each(reads_run, {name: {"loader": name, "load": load} for name, load in
                                 (("cufile", "busy"), ("bounce", "none"), ("kvikio", "none"))}),
        "loader", "job",
    ),
    "gpu-reads-mixed": (lambda: read_by("mixed"), "loader", "job"),
    "gpu-reads-unverified": (lambda: read_by("unverified"), "loader", "job"),
    "gpu-reads-p2p_pci": (lambda: read_by("p2p_pci"), "loader", "job"),
    "gpu-reads-p2p_via_peer_gpu": (lambda: read_by("p2p_via_peer_gpu"), "loader", "job"),
    "gpu-reads-metered": (
        lambda: [reads_run(load="busy", meter="uncore", in_latency=0.8)], "loader", "job"
    ),
    "gpu-reads-five-pairs": (
        lambda: reads_sweep(blocks=(4096,), threads=(8, 512), pairs=5), "loader", "job"
    ),
    "gpu-reads-by-load": (
        lambda: turns(reads_run, ({"load": "none", "rate": 1e9}, {"load": "busy", "rate": 9e8})),
        "load.name", "job",
    ),
    "gpu-reads-failed-run": (lambda: [failed_before_reading()], "loader", "page"),
    "gnn-claims-emulated": (lambda: drives(trainer="emulated"), "label", "claims"),
    "gnn-claims-ahead": (lambda: drives(overlap="ahead"), "label", "claims"),
    "gnn-claims-mmap": (lambda: pairs(graph="igbh_full"), "loader", "claims"),
    "gnn-claims-dropped": (
        lambda: pairs(graph="igbh_full", method="drop_cache"), "loader", "claims"
    ),
    "random-reads-claims-of-a-cpu": (
        lambda: rivals(loader="gpu_queue", requester="cpu", cores=None), "loader", "claims"
    ),
    "random-reads-claims-cached": (
        lambda: rivals(loader="mmap", cached=0.99), "loader", "claims"
    ),
    "gnn-pairs": (pairs, "loader", "job"),
    "gnn-loaders": (lambda: loaders(has_power_trace=True), "loader", "job"),
    "gnn-overlap": (
        lambda: each(gnn_run, {"serial": {"loader": "gpu_queue", "label": "serial"},
                               "ahead": {"loader": "gpu_queue", "label": "ahead",
                                         "overlap": "ahead"},
                               "mmap": {"loader": "mmap", "label": "mmap"}}),
        "label", "job",
    ),
    "gnn-counters": (
        lambda: [gnn_run(profile="block counters", foreign_share=0.12)], "loader", "job"
    ),
    "gnn-emulated": (
        lambda: [gnn_run(scale="demo", batch_seeds=64, trainer="emulated", method="drop_cache",
                         source="/data/igb")],
        "loader", "job",
    ),
    "gnn-samplers": (
        lambda: each(gnn_run, {"a": {}, "b": {"loader": "dgl", "sampler": "dgl"}}), "loader", "job"
    ),
    "gnn-drives": (drives, "label", "job"),
    "random-writes": (lambda: [writes_run()], "label", "page"),
    "random-writes-turns": (lambda: write_turns(condition="keep"), "label", "job"),
    "random-writes-fill": (
        lambda: [writes_run(name="run-a", **A, **FILL), writes_run(name="run-b", **B, **FILL)],
        "label", "job",
    ),
    "random-writes-not-steady": (lambda: [writes_run(is_steady=False)], "label", "job"),
    "random-writes-in-a-file": (lambda: [writes_run(where="directory")], "label", "job"),
    "random-writes-unlike": (
        lambda: [writes_run(name="run-a", **A), writes_run(name="run-b", **B, is_whole=False)],
        "label", "job",
    ),
    "random-writes-over-rates": (writes_over_rates, "label", "job"),
    "kv-cache": (lambda: [cache_run(prefill_j_per_token=0.028)], "label", "page"),
    "kv-cache-turns": (cache_turns, "label", "job"),
    "kv-cache-over-rates": (
        lambda: [
            run
            for place, (label, knee) in enumerate({"A": 5.0, "B": 2.5}.items())
            for run in rate_sweep(target_p99_ms=500.0, label=label, knee=knee, place=place)
        ],
        "label", "job",
    ),
    "vector-search": (lambda: [search_run()], "label", "page"),
    "vector-search-drives": (drive_curves, "label", "job"),
    "vector-search-walk": (lambda: [search_run(is_walk=True, cpu_share=0.95)], "label", "job"),
    "vector-search-mapped": (
        lambda: [search_run(name="a"), search_run(name="b", repeat=1, reads_directly=False)],
        "loader", "job",
    ),
    "kv-cache-buffered": (
        lambda: [cache_run(reads_directly=False, layered=True, has_power=False, evicted=0)],
        "label", "job",
    ),
}  # fmt: skip


def sections_of(subject: Subject, part: Part) -> list[Section]:
    screen = first_screen(subject)
    found: list[Section | None] = []
    with one_unit(Unit.JOULES, screen.energy_scale):
        if part != "claims":
            first = first_section(subject, screen)
            found.append(Section(anchor="", title="First screen", blocks=first))
            found += workload_sections(subject)
        if part in ("page", "evidence"):
            made = AFTER_WORKLOADS if part == "page" else AFTER_WORKLOADS[:OF_RUNS]
            found += [each(subject) for each in made]
        found.append(claims_section(subject))
    return [section for section in found if section is not None]


@pytest.mark.parametrize("name", CASES)
def test_a_page_says_what_it_said(name: str, request: pytest.FixtureRequest) -> None:
    make, by, part = CASES[name]
    subject = make_subject(list(make()), by)
    text = blocks_text([Paragraph(finding(subject))]) + page_text(sections_of(subject, part))
    text += "# As Markdown\n" + markdown_report(subject) if part == "page" else ""
    golden = GOLDENS / f"{name}.txt"
    if request.config.getoption("--update-goldens"):
        golden.write_text(text, encoding="utf-8")
    assert text.splitlines() == golden.read_text(encoding="utf-8").splitlines()


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {each.stem for each in GOLDENS.glob("*.txt")} == set(CASES)
