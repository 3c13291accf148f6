"""The page of small random reads: who asked, cores, energy per read, limits, and what read none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.reports.random_reads import DRIVE_W, GPUS, pair_sweep, random_run, target_sweep
from wattload.reports.blocks import Block, Figure, FigureRow, Fold, Notice, Table
from wattload.reports.claims.comparison import compare_claims
from wattload.reports.quantity import MISSING
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run
from wattload.reports.sections.claims import claims_section
from wattload.reports.sections.random_reads import asking_blocks
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import Subject, make_subject
from wattload.reports.stats.summary import VerdictRow, first_screen


def subject_of(runs: Sequence[Run], by: str = "loader") -> Subject:
    return make_subject(runs, by)


def plain(value: object) -> str:
    return str(value).replace("\\xa0", " ").replace("\xa0", " ").replace("\u202f", " ")


def every(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from every(block.blocks)
        elif isinstance(block, FigureRow):
            yield from block.figures


def blocks_of(subject: Subject) -> list[Block]:
    (section,) = workload_sections(subject)
    return list(every(section.blocks))


def table_of(subject: Subject, caption: str) -> Table:
    return next(
        each for each in blocks_of(subject) if isinstance(each, Table) and each.caption == caption
    )


def cells(table: Table) -> list[dict[str, str]]:
    titles = [column.title for column in table.columns]
    return [
        dict(zip(titles, (plain(cell.text) for cell in row), strict=True)) for row in table.rows
    ]


def screen_row(subject: Subject) -> VerdictRow:
    (row,) = first_screen(subject).rows
    return row


def rivals(pairs: int = 6, **of_direct: Any) -> list[Run]:
    """Return a GPU's reads of 14 drives against those of CPU threads, in alternation."""
    runs: list[Run] = []
    for index in range(pairs):
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            place = len(runs)
            common = {"targets": 14, "repeat": place, "seed": place + 1}
            factor = 1 + 0.003 * (place * 7 % 5)
            if side == 0:
                own = {"name": f"g{index}", "rate": 94e6 * factor, "bottleneck": "link"}
            else:
                own = {"name": f"d{index}", "loader": "direct", "rate": 45e6 * factor,
                       "cores": 48.0, "bottleneck": None, **of_direct}  # fmt: skip
            runs.append(random_run(**common, **own))
    return runs


def test_the_first_screen_names_rate_energy_per_read_path_cores_and_limit() -> None:
    row = screen_row(subject_of([random_run(rate=7e6)]))
    assert row.rates.title == "M reads/s"
    assert row.rates.bars[0].text == "7.00"
    assert row.energies.title == "µJ per read"
    assert row.energies.bars[0].text == "2.00"
    assert row.efficiencies.title == "k reads per J"
    assert row.efficiencies.bars[0].text == "500"
    assert plain(row.paths).startswith("asked by the GPU")
    assert plain(row.paths).endswith("2.1 CPU cores")
    assert row.limits["gpu_queue"].startswith("limited by storage")


def test_gpu_joules_are_beside_those_of_drives_and_never_added() -> None:
    row = screen_row(subject_of([random_run(rate=10e6)]))
    (gpus,) = row.devices
    assert gpus.title == "GPU, µJ per read"
    assert gpus.bars[0].text == "12.0"
    assert row.energies.bars[0].text == "1.40"


def test_two_arms_have_a_winner_in_reads_per_joule_and_a_limit_each() -> None:
    subject = subject_of(rivals())
    row = screen_row(subject)
    assert row.speed is not None
    assert row.energy is not None
    assert (row.speed.letter, row.speed.outcome) == ("A", "won")
    assert (row.energy.letter, row.energy.outcome) == ("A", "won")
    assert row.energy.row is not None
    assert row.energy.row.quantity.name == "reads per joule"
    assert plain(row.shared_limit).startswith("limit: A: the GPU's link, 0.9")
    assert "B: unknown: " in row.shared_limit
    by_name = {entry.quantity.name for entry in compare(subject, subject.groups[0])}
    assert "rate per watt" not in by_name


def test_cores_are_counted_for_both_arms() -> None:
    gpu, cpu = cells(table_of(subject_of(rivals()), "Rate and cost"))
    assert (gpu["CPU cores"], cpu["CPU cores"]) == ("29.4", "48.0")
    assert float(cpu["CPU s per million"]) == pytest.approx(48 / 45, rel=0.02)
    assert float(gpu["reads per core, M/s"]) == pytest.approx(94 / 29.4, rel=0.02)


def test_both_units_of_a_rate_are_printed() -> None:
    subject = subject_of([random_run(rate=96.01e6)])
    (found,) = cells(table_of(subject, "Rate and cost"))
    assert (found["GB/s"], found["GiB/s"]) == ("49.2", "45.8")
    assert float(found["drives, µJ per read"]) == pytest.approx(DRIVE_W / 96.01, rel=0.01)


@pytest.mark.parametrize("engine", ["null", "memory"])
def test_what_read_no_storage_is_named_and_has_no_energy_per_read(engine: str) -> None:
    subject = subject_of([random_run(engine=engine, rate=94e6, bottleneck="queue")])
    row = screen_row(subject)
    assert "no storage was read" in row.paths
    assert row.energies.missing == "not measured: no storage was read"
    assert not row.devices
    notice = next(each for each in blocks_of(subject) if isinstance(each, Notice))
    assert notice.title == "No storage was read"
    (found,) = cells(table_of(subject, "Rate and cost"))
    assert not any("µJ" in title for title in found)
    assert (found["GB/s"] == MISSING) == (engine == "null")


def test_arms_without_storage_are_not_ranked_with_one_that_reads_it() -> None:
    runs = [
        random_run(name=engine, engine=engine, rate=rate, repeat=place, bottleneck="queue")
        for place, (engine, rate) in enumerate(
            (("null", 120e6), ("memory", 94e6), ("storage", 7e6))
        )
    ]
    row = screen_row(subject_of(runs, "loader.engine"))
    assert row.ranking == ()
    assert row.loads == "not comparable: no storage was read by A and B"


def test_a_run_that_is_not_proved_names_no_gpu() -> None:
    subject = subject_of([random_run(lost=3)])
    text = plain(list(asking_blocks(subject, subject.groups[0])))
    assert "path not proved" in text
    assert "asked by the GPU" not in text
    assert "asked by the GPU" not in screen_row(subject).paths


def test_no_page_calls_it_bam_scada_or_direct() -> None:
    page = page_of(subject_of(rivals(pairs=1)))
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for name in ("BaM", "SCADA", "GPUDirect", "GDS"):
        assert name not in text


def test_the_page_says_how_many_bytes_are_read_for_each_delivered() -> None:
    subject = subject_of([random_run(read_bytes=4096)])
    assert "8.0 bytes read for each delivered" in plain(blocks_of(subject))
    assert "8.0 bytes read for each delivered" in screen_row(subject).detail


def test_reads_in_flight_are_those_asked_and_those_at_pollers_and_drive() -> None:
    subject = subject_of([random_run(targets=2)])
    ((_, _, in_flight, _),) = table_of(subject, "Who asked for the blocks").rows
    assert plain(in_flight.text) == "asked 1 024"
    assert plain(in_flight.remark) == "at pollers and drive 1 000"


def test_reads_in_flight_without_a_queue_are_those_of_the_engine() -> None:
    subject = subject_of([random_run(loader="direct", bottleneck=None)])
    ((_, _, in_flight, _),) = table_of(subject, "Who asked for the blocks").rows
    assert (plain(in_flight.text), plain(in_flight.remark)) == (
        "asked 512",
        "at pollers and drive 500",
    )


def test_ceilings_are_named_where_they_were_measured() -> None:
    note = table_of(subject_of([random_run()]), "Rate and cost").note
    assert "By themselves, just before: " in plain(note)
    assert "the queue" in plain(note)


def test_failed_reads_are_named_by_reason() -> None:
    failures = [{"file": 0, "reason": "EIO", "offset_bytes": 512, "count": 3}]
    subject = subject_of([random_run(failures=failures)])
    text = plain(list(asking_blocks(subject, subject.groups[0])))
    assert "3 reads failed: EIO." in text


@pytest.mark.parametrize("value", [1e-300, 0, 9e18, "<script>alert(1)</script>", None, -5])
def test_a_page_is_made_whatever_the_details_hold(value: Any) -> None:
    names = ("seconds", "operations", "cpu_s", "pull_per_s", "queue_per_s", "outstanding_seen")
    row = dict.fromkeys(("seconds", "operations", "p99_s", "address", "gpu", "name"), value)
    details = {**dict.fromkeys(names, value), "files": [row], "gpus": [row], "failures": [row]}
    runs = [
        random_run(name=f"{speed}", arm=f"{speed}", link_gt_per_s=speed, details=details)
        for speed in (32.0, 64.0)
    ]
    page = page_of(subject_of(runs, "label"))
    assert "<script>alert" not in page


def test_each_gpu_has_a_row_with_its_address() -> None:
    run = random_run(targets=42, gpus=3, rate=281.34e6, bottleneck="link")
    rows = cells(table_of(subject_of([run]), "Reads of each GPU"))
    assert [each["GPU"] for each in rows] == list(GPUS)
    assert [each["targets"] for each in rows] == ["14"] * 3
    assert rows[2]["of the fastest GPU"] == "0.980"


def test_the_hit_rate_is_beside_the_reads_where_there_is_a_cache() -> None:
    caption = "Rate and cost"
    (found,) = cells(table_of(subject_of([random_run(rate=7e6, cache_bytes=1 << 24)]), caption))
    assert (found["reads, M/s"], found["GB/s"], found["hit rate"]) == ("7.00", "14.3", "75.0 %")
    (plainly,) = cells(table_of(subject_of([random_run(rate=7e6)]), caption))
    assert "hit rate" not in plainly
    by_gpu = "Reads of each GPU"
    (gpu,) = cells(table_of(subject_of([random_run(rate=7e6, cache_bytes=1 << 24)]), by_gpu))
    assert (gpu["reads, M/s"], gpu["GB/s"]) == ("7.070", "14.3")


def test_reads_with_another_cache_are_another_arm_and_not_ranked() -> None:
    runs = [
        random_run(name=f"{size}", arm="gpu_queue", cache_bytes=size, rate=rate, repeat=place)
        for place, (size, rate) in enumerate(((0, 7e6), (1 << 24, 2e6)))
    ]
    subject = subject_of(runs, "loader.cache_bytes")
    assert len(subject.groups[0].arms) == 2
    row = screen_row(subject)
    assert row.ranking == ()
    assert "different work: workload cache differs" in plain(row)
    third = random_run(name="3", arm="gpu_queue", cache_bytes=1 << 26, rate=1e6, repeat=2)
    row = screen_row(subject_of([*runs, third], "loader.cache_bytes"))
    assert row.ranking == ()
    assert row.loads.startswith("not comparable: a cache in the GPU's memory saved reads")


def test_each_target_has_operations_and_p99_at_each_point() -> None:
    subject = subject_of(target_sweep((1, 2)))
    rows = cells(table_of(subject, "Operations and latency of each target"))
    assert [(each["at"], each["target"]) for each in rows] == [
        ("1 target", "/mnt/0"),
        ("2 targets", "/mnt/0"),
        ("2 targets", "/mnt/1"),
    ]
    assert [each["p99 of reads"] for each in rows] == ["0.210 ms", "0.210 ms", "0.211 ms"]
    assert all(each["operations"] != MISSING for each in rows)


def test_peaks_are_by_generation_where_there_are_several() -> None:
    runs = [
        random_run(name=f"l{speed}", arm=f"{speed}", link_gt_per_s=speed, rate=rate, targets=2,
                   repeat=place)
        for place, (speed, rate) in enumerate(((32.0, 3.72e6), (64.0, 6.92e6)))
    ]  # fmt: skip
    title = "Small random reads: peak of one drive by PCIe generation"
    figures = [each for each in blocks_of(subject_of(runs, "label")) if isinstance(each, Figure)]
    figure = next(each for each in figures if each.title == title)
    rows = cells(figure.table)
    assert [each["link"] for each in rows] == ["Gen5 x4", "Gen6 x4"]
    assert [each["reads of a drive, M/s"] for each in rows] == ["1.860", "3.460"]
    alone = blocks_of(subject_of(runs[:1], "label"))
    assert title not in [each.title for each in alone if isinstance(each, Figure)]


def test_offsets_over_time_say_which_share_of_the_reads_is_drawn() -> None:
    subject = subject_of([random_run(traced=5000, rate=10e6)])
    figure = next(
        each for each in blocks_of(subject) if isinstance(each, Figure) and "went" in each.title
    )
    assert "2 500 of 100 000 000 operations (0.0025 %)" in plain(figure.caption)


def test_of_many_targets_the_first_are_drawn_and_the_others_counted() -> None:
    subject = subject_of([random_run(traced=2000, targets=8)])
    figure = next(
        each for each in blocks_of(subject) if isinstance(each, Figure) and "went" in each.title
    )
    assert figure.svg.count("<svg xmlns") == 6
    assert "2 more targets not drawn" in figure.caption
    assert len(figure.table.rows) == 8


def test_a_sweep_has_the_pull_ceiling_the_ideal_and_watts_on_the_axes_of_the_rate() -> None:
    subject = subject_of(target_sweep((1, 7, 14), rate=None))
    figure = next(
        each for each in blocks_of(subject) if isinstance(each, Figure) and "over" in each.title
        and "rates" in each.title
    )  # fmt: skip
    assert "Dotted: what the GPUs pull from host memory without a queue." in figure.caption
    assert "right axis: mean power of the drives" in figure.caption
    assert figure.svg.count("<svg xmlns") == 1
    assert "200 W" in figure.svg
    rows = cells(figure.table)
    kept = [
        each["kept of the single-drive peak"] for each in rows if each["rate"] == "reads per second"
    ]
    assert kept[0] == "100 %"
    assert 90 < float(kept[2].split()[0]) < 100
    watts = [each["median"] for each in rows if each["rate"] == "mean power of the drives"]
    assert watts == ["14.00", "98.00", "196.0"]


def test_a_ceiling_far_above_the_rates_is_in_the_caption_only() -> None:
    subject = subject_of(pair_sweep(arms=({"arm": "gpu_queue"},), repeats=1))
    text = plain([each.caption for each in blocks_of(subject) if isinstance(each, Figure)])
    assert "Above the chart: the GPUs pull 97.0 M/s or more" in text


def test_a_sweep_of_two_settings_has_panels_of_reads() -> None:
    runs = [
        random_run(name=f"{pairs}-{block}", queue_pairs=pairs, block_bytes=block, repeat=place)
        for place, (pairs, block) in enumerate((p, b) for p in (1, 8) for b in (512, 4096))
    ]
    titles = [each.title for each in blocks_of(subject_of(runs)) if isinstance(each, Figure)]
    assert "Small random reads: reads per second over queue pairs" in titles


def test_requests_have_latencies_and_no_rate_of_their_own() -> None:
    subject = subject_of(pair_sweep(arms=({"arm": "gpu_queue"},), repeats=1))
    figures = [each for each in blocks_of(subject) if isinstance(each, Figure)]
    requests = next(each for each in figures if each.title.endswith("throughput, requests"))
    assert "one in 64 is timed" in requests.caption
    assert not any("IOPS" in each.title for each in figures)


def test_published_absolute_figures_are_beside_those_of_the_page_without_a_verdict() -> None:
    subject = subject_of(rivals())
    parts = {part.pair.a: part for part in compare_claims(subject)}
    paths = parts["SCADA, initiated by the GPU"]
    assert paths.straight
    found = {claim.id: one for claim, (one, *_) in paths.claims}
    assert {one.verdict for one in found.values()} == {"absolute"}
    assert found["by_gpu"].value == pytest.approx(94.5e6, rel=0.01)
    assert found["by_cpu"].value == pytest.approx(45.3e6, rel=0.01)
    section = claims_section(subject)
    assert section is not None
    assert "94.7 M/s" in plain(section) or "94.5" in plain(section)


def test_a_published_figure_of_a_gpu_needs_one_that_asked() -> None:
    runs = rivals()
    for_cpu = [
        random_run(name=f"c{place}", requester="cpu", targets=14, repeat=place, rate=90e6,
                   seed=place + 1)
        if run.record.workload.loader == "gpu_queue"
        else run
        for place, run in enumerate(runs)
    ]  # fmt: skip
    parts = {part.pair.a: part for part in compare_claims(subject_of(for_cpu))}
    found = {claim.id: one for claim, (one, *_) in parts["SCADA, initiated by the GPU"].claims}
    assert (found["by_gpu"].verdict, found["by_gpu"].value) == ("unmeasured", None)


def test_a_published_figure_needs_reads_that_no_cache_saved() -> None:
    cached = [
        random_run(name=f"c{place}", targets=14, repeat=place, rate=90e6, cache_bytes=1 << 24,
                   seed=place + 1)
        if run.record.workload.loader == "gpu_queue"
        else run
        for place, run in enumerate(rivals())
    ]  # fmt: skip
    parts = {part.pair.a: part for part in compare_claims(subject_of(cached))}
    found = {claim.id: one for claim, (one, *_) in parts["SCADA, initiated by the GPU"].claims}
    assert (found["by_gpu"].verdict, found["by_gpu"].value) == ("unmeasured", None)
    assert found["by_gpu"].reason == "a cache in the GPU's memory saved reads"
    assert found["by_cpu"].verdict == "absolute"


def test_the_paper_s_numbers_of_drives_are_points() -> None:
    parts = {part.pair.a: part for part in compare_claims(subject_of(rivals()))}
    drives = {claim.id: one for claim, (one, *_) in parts["one PM1763 (Gen6)"].claims}
    assert drives["gpu"].verdict == "absolute"
    assert drives["gen6"].verdict == "unmeasured"
    assert "targets = 1" in drives["gen6"].reason


def mapped_against_direct() -> list[Run]:
    """Return reads of mapped files that the page cache served, and those of O_DIRECT."""
    own = {
        "mmap": {"rate": 5.98e6, "cached": 0.999998, "cores": 16.0},
        "direct": {"rate": 0.081e6, "cores": 1.0},
    }
    return [
        random_run(name=f"{name}-{pair}", loader=name, repeat=2 * pair + side, bottleneck=None,
                   seed=2 * pair + side + 1, **own[name])
        for pair in range(6)
        for side, name in enumerate(("mmap", "direct") if pair % 2 == 0 else ("direct", "mmap"))
    ]  # fmt: skip


def test_published_figures_are_not_measured_by_the_page_cache() -> None:
    for part in compare_claims(subject_of(mapped_against_direct())):
        straight = part.straight
        for claim, found in part.claims:
            is_of_mapped = (claim.parsed.over == "a") == straight
            if claim.parsed.under is None and not is_of_mapped:
                continue
            for one in found:
                assert (one.verdict, one.value, one.ratio) == ("unmeasured", None, None)
    drives = {
        claim.id: one
        for part in compare_claims(subject_of(mapped_against_direct()))
        for claim, (one, *_) in part.claims
    }
    assert drives["generations"].reason == "served by the page cache"


def test_the_page_cache_is_in_the_row_and_crowns_nobody() -> None:
    row = screen_row(subject_of(mapped_against_direct()))
    assert row.speed is not None
    assert (row.speed.outcome, row.speed.winner) == ("inconclusive", None)
    assert "the page cache served over 99.9 % of the pages of A" in plain(row.speed.reason)
    assert "A: page faults of CPU threads" in row.paths
    assert "the page cache served over 99.9 % of the pages" in plain(row.paths)


def test_of_three_arms_none_is_ranked_with_one_from_the_page_cache() -> None:
    runs = [*mapped_against_direct()[:2], random_run(name="q", rate=0.09e6, repeat=2)]
    row = screen_row(subject_of(runs))
    assert row.ranking == ()
    assert plain(row.loads).startswith("not comparable: the page cache served over 99.9 %")


def test_a_small_share_from_the_page_cache_bars_nothing() -> None:
    runs = [
        random_run(name=name, loader=name, repeat=place, bottleneck=None, rate=1e6,
                   cached=0.01 if name == "mmap" else None)
        for place, name in enumerate(("mmap", "direct", "gpu_queue"))
    ]  # fmt: skip
    row = screen_row(subject_of(runs))
    assert set(row.ranking) == {"mmap", "direct", "gpu_queue"}
    assert "the page cache served 1.0 % of the pages" in plain(row.paths)


def test_an_engine_without_storage_has_the_limit_of_its_record() -> None:
    reason = "no storage was read, and neither queue, pollers nor link limit the rate"
    run = random_run(engine="memory", bottleneck=None, bottleneck_reason=reason, rate=85e6)
    row = screen_row(subject_of([run]))
    assert row.limits["gpu_queue"] == f"limit unknown: {reason}"


def test_the_size_of_a_table_in_memory_is_named() -> None:
    row = screen_row(subject_of([random_run(engine="memory", bottleneck="queue")]))
    assert "blocks came from a table in host memory, 33.6 MB" in plain(row.paths)


def test_targets_on_one_drive_have_no_ideal_and_are_named_in_the_row() -> None:
    subject = subject_of(target_sweep((1, 2), has_shared_drive=True))
    assert plain(screen_row(subject).detail).endswith("2 targets on 1 drive")
    figure = next(
        each
        for each in blocks_of(subject)
        if isinstance(each, Figure) and "rates over" in each.title
    )
    assert "Dashed" not in figure.caption
    assert "No ideal scaling: 2 targets on 1 drive." in plain(figure.caption)
    assert not any("ideal" in title or "peak" in title for title in cells(figure.table)[0])
    rows = cells(table_of(subject, "Each point"))
    assert [each["at"] for each in rows] == ["1 target", "2 targets on 1 drive"]


def test_queue_pairs_have_a_chart_and_no_ideal() -> None:
    subject = subject_of(pair_sweep(arms=({"arm": "gpu_queue"},), repeats=1))
    figure = next(
        each
        for each in blocks_of(subject)
        if isinstance(each, Figure) and "rates over" in each.title
    )
    assert "queue pairs" in figure.title
    assert "Dashed" not in figure.caption
    assert not any("ideal" in title for title in cells(figure.table)[0])


def test_lists_of_targets_in_one_sweep_are_points_by_default() -> None:
    runs = [
        random_run(name=f"t{count}", targets=count, label="_".join("ab"[:count]), repeat=count,
                   interleave="none")
        for count in (1, 2)
    ]  # fmt: skip
    subject = subject_of(runs, "label")
    assert subject.arms == ("gpu_queue",)
    figures = [each.title for each in blocks_of(subject) if isinstance(each, Figure)]
    assert "Small random reads: rates over targets" in figures


@pytest.mark.parametrize(
    "changes",
    [{"interleave": "abba"}, {"session": "s2"}, {"block_bytes": 4096}],
    ids=["alternating", "two sessions", "other blocks"],
)
def test_lists_of_targets_stay_arms_where_more_differs(changes: dict[str, Any]) -> None:
    common = {"interleave": "none"}
    runs = [
        random_run(name="t1", label="a", repeat=1, **common),
        random_run(name="t2", label="a_b", targets=2, repeat=2, **{**common, **changes}),
    ]
    assert subject_of(runs, "label").arms == ("a", "a_b")


def test_the_phase_has_the_words_of_the_workload() -> None:
    page = page_of(subject_of([random_run(loader="mmap", bottleneck=None, cached=0.9)]))
    assert "GPU random read" not in page
    assert "small random reads" in page


def test_each_poller_has_a_rate_and_its_time_at_work() -> None:
    subject = subject_of([random_run(targets=2, rate=8e6)])
    rows = cells(table_of(subject, "Reads of each poller"))
    assert [each["reads, M/s"] for each in rows] == ["4.00", "4.00"]
    assert [each["at work"] for each in rows] == ["81 %", "81 %"]


@pytest.mark.parametrize("sweep", [True, False])
def test_each_caveat_is_on_the_page_once(*, sweep: bool) -> None:
    runs = target_sweep((1, 2)) if sweep else rivals(pairs=2)
    page = plain(page_of(subject_of(runs)))
    for words in ("A read lasts", "one in 64", "CPU cores are the CPU seconds"):
        assert page.count(words) == 1
    assert "the wait for a place in the drive's queue included" in page.replace("&#39;", "'")


def test_both_latencies_of_a_sweep_of_two_settings_are_named() -> None:
    runs = [
        random_run(name=f"{targets}-{block}", targets=targets, block_bytes=block, repeat=place)
        for place, (targets, block) in enumerate((t, b) for t in (1, 2) for b in (512, 4096))
    ]
    titles = [each.title for each in blocks_of(subject_of(runs)) if isinstance(each, Figure)]
    for kind in ("reads", "requests"):
        assert f"Small random reads: mean latency of {kind} over throughput" in titles


def test_targets_on_one_drive_are_not_the_drives_of_a_paper() -> None:
    subject = subject_of([
        random_run(name=name, loader=name, targets=14, has_shared_drive=True, repeat=place,
                   bottleneck=None)
        for place, name in enumerate(("gpu_queue", "direct"))
    ])  # fmt: skip
    parts = {part.pair.a: part for part in compare_claims(subject)}
    drives = {claim.id: one for claim, (one, *_) in parts["one PM1763 (Gen6)"].claims}
    assert drives["gpu"].verdict == "unmeasured"
    assert "targets = 1," in drives["gpu"].reason
