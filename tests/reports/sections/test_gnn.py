"""The page of training on a graph: stages, rates, costs, memory, remarks, and what is compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.reports.gnn import gnn_run, pairs
from wattload.reports.blocks import Block, Figure, FigureRow, Fold, Notice, Table
from wattload.reports.claims.comparison import compare_claims
from wattload.reports.quantity import MISSING
from wattload.reports.render.json_export import json_report
from wattload.reports.render.page import page_of
from wattload.reports.render.text_export import markdown_report
from wattload.reports.runs.load import Run
from wattload.reports.sections.claims import claims_section
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.conditions import differences, exclusions
from wattload.reports.stats.subject import Subject, make_subject
from wattload.reports.stats.summary import VerdictRow, first_screen

LOADERS = ("mmap", "direct", "gpu_queue")


def subject_of(runs: Sequence[Run], by: str = "loader") -> Subject:
    return make_subject(runs, by)


def three(**changes: Any) -> list[Run]:
    return [
        gnn_run(name=f"{loader}-{index}", loader=loader, repeat=index, **changes)
        for index, loader in enumerate(LOADERS)
    ]


def plain(value: object) -> str:
    return str(value).replace("\xa0", " ").replace("\u202f", ",")


def every(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from every(block.blocks)
        elif isinstance(block, FigureRow):
            yield from block.figures


def blocks_of(runs: Sequence[Run], by: str = "loader") -> list[Block]:
    (section,) = workload_sections(subject_of(runs, by))
    return list(every(section.blocks))


def sheet(blocks: Sequence[Block], caption: str) -> dict[str, list[str]]:
    """Return the rows of a table of figures by arm, by their names."""
    (table,) = [each for each in blocks if isinstance(each, Table) and each.caption == caption]
    return {plain(name.text): [plain(cell.text) for cell in cells] for name, *cells in table.rows}


def figure(blocks: Sequence[Block], title: str) -> Figure:
    (found,) = [each for each in blocks if isinstance(each, Figure) and each.title.endswith(title)]
    return found


def remarks(blocks: Sequence[Block]) -> list[str]:
    notices = [each for each in blocks if isinstance(each, Notice)]
    return [plain(text) for each in notices if "How to read" in each.title
            for text in each.sentences]  # fmt: skip


def row_of(subject: Subject) -> VerdictRow:
    (row,) = first_screen(subject).rows
    return row


@pytest.fixture(scope="module")
def compared() -> Subject:
    return subject_of(pairs())


def test_the_first_screen_has_step_time_energy_per_step_and_rows_per_joule(
    compared: Subject,
) -> None:
    row = row_of(compared)
    assert plain(row.detail) == "igb_small, batches of 1,024 seeds, fan-outs 10-5-5, 20 steps"
    assert (row.rates.title, row.energies.title) == ("s per step", "J per step")
    assert row.efficiencies.title == "k rows per J"
    assert [bars.title for bars in row.devices] == ["GPU, J per step"]
    assert row.speed is not None
    assert (row.speed.letter, row.speed.outcome) == ("A", "won")
    assert row.speed.ratio == pytest.approx(24.8, rel=0.02)
    assert row.energy is not None
    assert row.energy.outcome == "won"
    assert plain(row.paths) == (
        "A: aggregation 80 % of the time · B: aggregation 99 % of the time · trained on the GPU"
    )
    assert row.limits["mmap"].startswith("limited by aggregation")


def test_stages_sum_to_serial_steps_and_overlapped_ones_have_their_step_marked() -> None:
    runs = [
        gnn_run(name="s", loader="gpu_queue", label="serial"),
        gnn_run(name="a", loader="gpu_queue", label="ahead", overlap="ahead", repeat=1),
        gnn_run(name="m", loader="mmap", label="mmap", repeat=2),
    ]
    stages = figure(blocks_of(runs, "label"), "where the time of a step goes")
    rows = {row[0].text: [plain(cell.text) for cell in row[1:]] for row in stages.table.rows}
    sums, steps = rows["sum of stages"], rows["step"]
    assert sums[0].split()[0] == "0.160"
    assert steps[0] == "0.161 (3.22 s)"
    assert steps[1] == "0.134 (2.68 s)"
    svg = plain(stages.svg)
    assert "B (ahead), overlapped 0.160, in a step of 0.134 s" in svg
    assert 'data-tip="a step 0.134 s"' in svg
    assert "the same without the slowest" in svg
    assert "Overlapped stages" in stages.caption


def test_rates_have_their_ceilings_and_mmap_has_no_storage_rows() -> None:
    rates = figure(blocks_of(three()), "rows per second")
    svg = plain(rates.svg)
    assert 'data-tip="engine alone 1.10 M/s"' in svg
    assert "GPU&#x27;s link 12.3 M/s" in svg
    assert "unknown with the page cache" in svg
    assert next(row[2].text for row in rates.table.rows) == MISSING


def test_a_ceiling_below_its_rate_is_printed_as_none() -> None:
    low = {"ceilings": {"engine_rows_per_s": 5e5, "pull_rows_per_s": 12.3e6}}
    rates = figure(blocks_of([gnn_run(details=low)]), "rows per second")
    svg = plain(rates.svg)
    assert 'M/s, engine alone 0.500 M/s, no ceiling"' in svg
    assert 'data-tip="engine alone' not in svg
    assert "measured too low" in rates.caption


def test_costs_have_joules_per_step_and_million_rows_of_drive_and_gpu_apart() -> None:
    costs = sheet(blocks_of(three()), "Time, CPU and energy")
    assert [float(text.split()[0]) for text in costs["step"]] == pytest.approx(
        [run.record.workload.details["wall_s"] / 20 for run in three()], rel=0.005
    )
    assert costs["CPU s per million rows"] == ["92.0 s", "3.40 s", "1.90 s"]
    per_step = float(costs["drive, per step"][2].split()[0])
    assert float(costs["drive, per million rows"][2].split()[0]) == pytest.approx(
        per_step / 0.245, rel=0.01
    )
    assert float(costs["GPU, per step"][2].split()[0]) == pytest.approx(
        per_step * 250 / 14, rel=0.01
    )


def test_an_epoch_that_was_not_run_is_called_computed() -> None:
    def note(**changes: Any) -> str:
        blocks = blocks_of([gnn_run(**changes)])
        tables = [each for each in blocks if isinstance(each, Table)]
        return next(each.note for each in tables if each.caption == "Time, CPU and energy")

    assert "Epochs of 586 steps are computed from 20." in note()
    assert "Whole epochs were run." in note(is_whole_epoch=True, steps=586)


def test_places_of_rows_memory_and_requests_are_by_arm() -> None:
    blocks = blocks_of(three())
    rows = sheet(blocks, "Where rows came from")
    assert rows["from the drive"] == [MISSING, "100 %", "62.5 %"]
    assert rows["from the host's memory"] == [MISSING, "0 %", "34.0 %"]
    assert rows["drive bytes ÷ row bytes"] == ["5.20", "1.00", "1.00"]
    memory = sheet(blocks, "Memory of the host and of the GPU")
    assert set(memory["host: budget"]) == {"1.84 GB (45 %)"}
    assert memory["host: left to the page cache"] == ["742 MB", "742 MB", "927 MB"]
    assert set(memory["host: limit of the cgroup"]) == {"1.95 GB"}
    assert set(memory["host: page cache, at most"]) == {"1.65 GB"}
    assert memory["host: rows of the loader"] == ["0 B", "0 B", "819 MB"]
    assert memory["GPU: cache of rows"] == ["0 B", "0 B", "7.78 MB"]
    assert "GPU: topology" not in memory  # none of any arm
    seen = sheet(blocks, "Requests at the drive")
    assert seen["mean depth"] == ["14.0", "482", "482"]
    sizes = figure(blocks, "request sizes at the drive")
    assert [plain(cell.text) for cell in sizes.table.rows[0]] == [
        "4 KiB or less", "26.1 %", "100 %", "100 %",
    ]  # fmt: skip
    assert figure(blocks, "depth and bandwidth at the drive over time").svg.count("<svg xmlns") == 6


def test_an_untraced_profile_has_means_and_says_why() -> None:
    blocks = blocks_of([gnn_run(profile="block counters")])
    seen = sheet(blocks, "Requests at the drive")
    assert seen["source"] == ["block counters"]
    assert "latency p99" not in seen
    assert not [each for each in blocks if isinstance(each, Figure) and "sizes" in each.title]
    (section,) = workload_sections(subject_of([gnn_run(profile="block counters")]))
    text = str(list(every(section.blocks)))
    assert "no right to read tracefs" in text
    assert "the mean over reads and writes, from entry to the block layer on" in text
    assert "at the driver" not in text
    assert "from issue to completion at the driver." in str(blocks_of([gnn_run()]))


@pytest.mark.parametrize("source", ["tracefs", "block counters"])
def test_reads_of_other_programs_in_a_profile_are_told(source: str) -> None:
    def told(share: float, loader: str = "direct") -> list[str]:
        blocks = blocks_of([gnn_run(profile=source, foreign_share=share, loader=loader)])
        return [plain(text) for each in blocks if isinstance(each, Notice)
                and "the loader's" in each.title for text in each.sentences]  # fmt: skip

    assert told(0.12) == ["12 % of the bytes are of other programs."]
    assert told(0.01) == told(0.12, "mmap") == []
    assert told(-0.1) == [
        "the loader counted 10 % more bytes than the drive saw: its reads were served elsewhere, "
        "or the profile is incomplete."
    ]


def test_stages_are_those_of_the_run_with_the_median_step() -> None:
    rates = {"fast": 4e6, "middle": 1e6, "slow": 2e5}
    runs = [
        gnn_run(name=name, label="a", rate=rate, repeat=index, training_step_s=0.01 * index)
        for index, (name, rate) in enumerate(rates.items())
    ]
    stages = figure(blocks_of(runs, "label"), "where the time of a step goes")
    shown = {row[0].text: plain(row[1].text) for row in stages.table.rows}
    middle = runs[1].record.workload.details
    assert float(shown["step"].split()[0]) == pytest.approx(middle["wall_s"] / 20, rel=0.005)
    assert float(shown["training"].split()[0]) == 0.01
    assert "run with the median step" in stages.caption


def test_bandwidth_and_power_are_on_one_axis_and_equal_losses_are_one_line() -> None:
    blocks = blocks_of(three(has_power_trace=True))
    supply = figure(blocks, "bandwidth and power of the drive")
    assert [float(row[3].text) for row in supply.table.rows] == pytest.approx(
        [9.5, 14, 14], abs=0.2
    )
    assert "W" in supply.svg
    loss = figure(blocks, "loss")
    assert "All arms have the same losses" in loss.caption
    assert loss.svg.count('class="line"') == 1
    assert not [each for each in blocks_of(three()) if isinstance(each, Figure)
                and "power of the drive" in each.title]  # fmt: skip


def test_each_remark_is_made_once() -> None:
    assert remarks(blocks_of(three())) == [
        "Synthetic graphs have no locality: do not compare hit rates with those of real data sets.",
        "Memory of the host was limited to 45 % of the features by a cgroup (v2).",
    ]
    demo = gnn_run(scale="demo", batch_seeds=64, trainer="emulated", method="drop_cache",
                   source="/data/igb", details={"losses": None})  # fmt: skip
    assert remarks(blocks_of([demo])) == [
        "Scale demo has batches of 64 seeds: too small to measure a drive.",
        "The page cache was dropped before each step, in place of a limit of 45 % of the features "
        "(no right to make a cgroup). Within a step it may hold more.",
        "Training is emulated: each step sleeps 8.30 ms. No model is trained, so there is no loss.",
    ]


@pytest.mark.parametrize(
    ("of_b", "reason"),
    [
        ({"graph": "igb_tiny"}, "workload.graph"),
        ({"source": "/data/igb"}, "workload.source"),
        ({"batch_seeds": 512}, "workload.batch_seeds"),
        ({"fanouts": (15, 10, 5)}, "workload.fanouts"),
        ({"memory_share": 0.9}, "workload.memory_share"),
        ({"sampler": "dgl"}, "different batches: drawn by wattload and drawn by DGL"),
        ({"trainer": "emulated"}, "workload training"),
        ({"method": "drop_cache"}, "workload memory limit"),
    ],
)
def test_arms_of_other_work_are_not_compared(of_b: dict[str, Any], reason: str) -> None:
    runs = [gnn_run(name="a"), gnn_run(name="b", loader="mmap", repeat=1, **of_b)]
    subject = subject_of(runs)
    assert reason in exclusions(subject, subject.groups[0]).work


def test_arms_may_differ_in_how_the_same_work_is_done() -> None:
    other = {"sampler": "gpu", "outstanding": 2048, "sampler_threads": 4, "gpus": 1,
             "profile_steps": 0}  # fmt: skip
    runs = [
        gnn_run(name="a"),
        gnn_run(name="b", loader="gpu_queue", sampler="torch", overlap="ahead", repeat=1,
                settings=other),
    ]  # fmt: skip
    subject = subject_of(runs)
    found = exclusions(subject, subject.groups[0])
    assert (found.work, found.bytes_by_phase) == ("", {})
    assert "config workload.outstanding" in {
        each.name for each in differences(subject.groups[0], "loader")
    }


def test_several_arms_of_other_batches_are_not_ranked() -> None:
    runs = [gnn_run(name=each, loader=each, repeat=index)
            for index, each in enumerate(("direct", "dgl", "mmap"))]  # fmt: skip
    row = row_of(subject_of(runs))
    assert row.ranking == ()
    assert row.loads.startswith("not comparable: different batches")


def drives(**changes: Any) -> list[Run]:
    """Return alternating runs on two drives, far above or at the paper's conditions."""
    runs: list[Run] = []
    for index in range(6):
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            own = {"rate": 1.9e6} if side == 0 else {
                "rate": 0.98e6, "serial": "SERIAL02", "model": "MICRON_9400",
                "link_gt_per_s": 16.0,
            }  # fmt: skip
            place = len(runs)
            common = {"loader": "gpu_queue", "graph": "igbh_full", "repeat": place}
            runs.append(
                gnn_run(name=f"r{place}", label="AB"[side], seed=place + 1,
                        **{**common, **own, **changes})
            )  # fmt: skip
    return runs


def claims_of(runs: Sequence[Run], by: str) -> dict[str, tuple[str, str]]:
    """Return verdict and reason of each claim of the paper on GNN training, by its id."""
    return {
        claim.id: (measured[0].verdict, measured[0].reason)
        for part in compare_claims(subject_of(runs, by))
        for claim, measured in part.claims
        if part.pair.between == ("drives" if by == "label" else "paths")
    }


def test_claims_are_measured_only_under_conditions_like_the_papers() -> None:
    near = claims_of(drives(), "label")
    assert near["aggregation_time"][0] == "differs"  # 1.94, printed 2
    assert near["accesses"][0] == "differs"
    assert near["accesses_a"][0] == "absolute"
    small = claims_of(drives(graph="igb_small"), "label")
    assert {verdict for verdict, _ in small.values()} == {"unmeasured"}
    assert "the paper has graph = igbh_full" in small["aggregation_time"][1]
    direct = claims_of(drives(loader="direct"), "label")
    assert direct["aggregation_time"] == (
        "unmeasured", "no GPU is proved to have asked for the rows of a",
    )  # fmt: skip
    emulated = claims_of(drives(trainer="emulated"), "label")
    assert emulated["training_time"] == ("unmeasured", "training is emulated")
    assert emulated["aggregation_time"][0] == "differs"
    ahead = claims_of(drives(overlap="ahead"), "label")
    assert ahead["total_time"][1] == "stages overlap; those of the paper are in turns"


def test_total_times_are_compared_without_verification() -> None:
    def ratio(verification_s: float) -> float:
        runs = [
            gnn_run(name=f"r{place}", label="AB"[place % 2], loader="gpu_queue", repeat=place,
                    graph="igbh_full", serial=f"SERIAL0{place % 2}", details={
                        "wall_s": (10.0, 20.0)[place % 2] + verification_s,
                        "stages": {"aggregation_s": 4.0, "verification_s": verification_s},
                    })
            for place in range(6)
        ]  # fmt: skip
        (found,) = [
            measured.ratio
            for part in compare_claims(subject_of(runs, "label"))
            for claim, (measured, *_) in part.claims
            if claim.id == "total_time"
        ]
        assert found is not None
        return found

    assert ratio(5.0) == ratio(0.5) == pytest.approx(2.0)


def test_the_claim_about_mmap_needs_a_gpu_that_asks_and_mmap() -> None:
    near = claims_of(pairs(graph="igbh_full"), "loader")
    assert near["mmap_time"][0] == "differs"  # 24.8, printed 26
    dropped = claims_of(pairs(graph="igbh_full", method="drop_cache"), "loader")
    assert dropped["mmap_time"] == ("unmeasured", "nothing limited the memory of both arms")
    runs = [run for run in pairs(graph="igbh_full") if run.record.workload.loader == "gpu_queue"]
    runs += [gnn_run(name=f"d{index}", graph="igbh_full", repeat=20 + index) for index in range(6)]
    assert claims_of(runs, "loader")["mmap_time"] == ("unmeasured", "b does not read by mmap")


def test_the_paper_is_named_with_its_path_and_what_it_does_not_state() -> None:
    section = claims_section(subject_of(drives(), "label"))
    text = plain(section)
    assert "a queue through host memory" in text
    assert "Not stated: batch size" in text


def test_the_exports_have_steps_rows_and_memory(compared: Subject) -> None:
    found = json.loads(json_report(compared))
    made = found["runs"][0]["graph_training"]
    assert made["memory"]["method"] == "cgroup2"
    assert made["profile"]["sizes"]
    assert made["stages_s"]["aggregation"] > 0
    text = plain(markdown_report(compared))
    assert "rows per J, A / B" in text
    assert "s per step" in text


@pytest.mark.parametrize(
    "details",
    [
        {"stages": None, "losses": None, "memory": None, "io_profile": None, "ceilings": None},
        {"wall_s": None, "rows": 0, "steps_per_epoch": 0, "cpu_s": None, "storage_bytes": None},
        {"fanouts": [], "graph": None, "source": 5, "training": None, "trainer": None},
    ],
)
def test_a_page_of_incomplete_details_is_made(details: dict[str, Any]) -> None:
    runs = [gnn_run(name="a", details=details), gnn_run(name="b", loader="mmap", repeat=1)]
    assert "GNN training" in page_of(subject_of(runs))
