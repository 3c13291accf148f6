"""The page of reads into GPU memory: proved paths, path x load, the load, costs, panels."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.gpu_reads import BLOCKS, reads_run, reads_sweep
from wattload.reports.blocks import Figure, Fold, Table
from wattload.reports.claims.comparison import Measured, compare_claims, match_condition
from wattload.reports.claims.papers import Fact, papers
from wattload.reports.render.json_export import document
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run
from wattload.reports.runs.redact import Masker
from wattload.reports.sections.gpu_reads import more_blocks, path_blocks
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.conditions import differences, different_work
from wattload.reports.stats.loads import loaded_points, ratio_of_a
from wattload.reports.stats.subject import Subject, make_subject
from wattload.reports.stats.summary import first_screen
from wattload.reports.stats.sweeps import panels


def subject_of(runs: list[Run], by: str = "loader") -> Subject:
    return make_subject(runs, by)


@pytest.fixture(scope="module")
def small() -> list[Run]:
    """Six pairs at one block and two thread counts, idle and busy; no arm is direct."""
    return reads_sweep(blocks=(4096,), threads=(8, 512))


def text_of(subject: Subject) -> str:
    """Return what the section's own blocks say, with plain spaces in numbers."""
    group = subject.groups[0]
    text = str([*path_blocks(subject, group), *more_blocks(subject, group)])
    return text.replace("\\xa0", " ").replace("\\u202f", " ")


def visible(html: str) -> str:
    """Return the text of a page without its data."""
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


@pytest.mark.parametrize("word", ["posix_bounce", "host_bounce", "mixed", "unverified"])
def test_gpudirect_storage_is_not_named_without_a_proved_direct_path(word: str) -> None:
    runs = [reads_run(name="a", loader="cufile", word=word), reads_run(name="b", loader="bounce")]
    page = visible(page_of(subject_of(runs)))
    assert "GPUDirect" not in page
    assert "GDS" not in page


@pytest.mark.parametrize("word", ["p2p_nvfs", "p2p_pci", "p2p_via_peer_gpu"])
def test_gpudirect_storage_is_named_beside_a_proved_direct_path(word: str) -> None:
    runs = [reads_run(name="a", loader="cufile", word=word), reads_run(name="b", loader="bounce")]
    text = text_of(subject_of(runs))
    assert "GPUDirect Storage" in text
    assert word in text


def test_the_proof_names_the_counters() -> None:
    run = reads_run(name="a", loader="cufile", word="posix_bounce", rate=4096e6 / 30)
    text = text_of(subject_of([run]))
    assert "through host memory (cuFile compatibility mode)" in text
    assert "library 1 000 016" in text


def test_kvikio_reads_by_posix_without_cufile() -> None:
    run = reads_run(name="a", loader="kvikio", word="posix_bounce")
    assert "through host memory (KvikIO, POSIX)" in text_of(subject_of([run]))


def test_a_panel_for_each_block_size_and_load_with_loads_as_rows() -> None:
    subject = subject_of(reads_sweep(pairs=1, threads=(8, 32)))
    found = panels(subject.groups[0])
    assert [panel.name for panel in found] == [
        f"{size} blocks, {host} host"
        for host in ("idle", "busy")
        for size in ("4\u00a0KiB", "128\u00a0KiB", "1\u00a0MiB")
    ]
    assert [point.value for point in found[0].points] == ["8", "32"]


def test_more_panels_than_can_be_read_become_tables() -> None:
    blocks = tuple(4096 * 2**power for power in range(5))
    runs = [
        reads_run(
            name=f"{loader}-{block}-{load}-{threads}",
            loader=loader,
            block_bytes=block,
            load=load,
            threads=threads,
            rate=1e9 + threads,
        )
        for loader in ("cufile", "bounce")
        for block in blocks
        for load in ("none", "busy")
        for threads in (8, 32)
    ]
    subject = subject_of(runs)
    assert len(panels(subject.groups[0])) == 10
    (section,) = workload_sections(subject)
    assert not [each for each in section.blocks if isinstance(each, Figure)]
    folds = [each.summary for each in section.blocks if isinstance(each, Fold)]
    assert any("mean latency over throughput" in each for each in folds)


def test_panels_show_mean_and_tails_of_every_point(small: list[Run]) -> None:
    (section,) = workload_sections(subject_of(small))
    figures = [each for each in section.blocks if isinstance(each, Figure)]
    assert [each.title.partition(": ")[2] for each in figures] == [
        "mean latency over throughput",
        "p50, p99 and p99.9 latency over throughput",
        "read rate over threads",
    ]
    assert all(each.svg.count("<svg xmlns") == 2 for each in figures)
    assert len(figures[0].table.rows) == 8


def test_the_ratio_of_ratios_is_tested_from_pairs(small: list[Run]) -> None:
    subject = subject_of(small)
    found = loaded_points(subject, subject.groups[0])
    assert [each.name for each in found] == ["8 threads", "512 threads"]
    for each in found:
        assert each.change is not None
        assert each.change.ratio == pytest.approx(0.93 / 0.45, rel=0.03)
        assert each.change.lower is not None
        assert each.change.lower < 0.93 / 0.45 < (each.change.upper or 0)
        assert each.call == "more"


@pytest.mark.parametrize("pairs", [5, 6])
def test_busy_over_idle_is_the_quotient_of_the_ratios_beside_it(pairs: int) -> None:
    runs = reads_sweep(blocks=(4096,), threads=(8, 512), pairs=pairs)
    alone = reads_run(name="alone", loader="cufile", load="busy", threads=8, repeat=90, rate=9e8)
    subject = subject_of([*runs, *_singles(alone, 6)])
    for each in loaded_points(subject, subject.groups[0]):
        idle, busy = ratio_of_a(each.idle), ratio_of_a(each.busy)
        assert each.change is not None
        assert idle is not None
        assert busy is not None
        assert each.change.ratio == pytest.approx(busy[0] / idle[0])


def _singles(run: Run, count: int) -> list[Run]:
    """Return runs like this one that are in no pair."""
    found = []
    for index in range(count):
        own = run.record.comparison.model_copy(update={"session_id": f"alone-{index}"})
        changes = {"run_id": f"alone-{index}", "comparison": own}
        found.append(replace(run, record=run.record.model_copy(update=changes)))
    return found


def test_the_ratio_that_grows_is_named_whichever_arm_is_faster() -> None:
    runs = reads_sweep(blocks=(4096,), threads=(8, 512))
    found = loaded_points(subject_of(runs), subject_of(runs).groups[0])
    assert {each.words for each in found} == {"A ÷ B grows with the load"}
    turned = reads_sweep(
        blocks=(4096,),
        threads=(8, 512),
        loaders=("bounce", "cufile"),
        words=("host_bounce", "posix_bounce"),
    )
    found = loaded_points(subject_of(turned), subject_of(turned).groups[0])
    assert {each.words for each in found} == {"A ÷ B falls with the load"}


def test_too_few_pairs_make_the_ratio_of_ratios_inconclusive() -> None:
    subject = subject_of(reads_sweep(blocks=(4096,), threads=(8, 512), pairs=5))
    for each in loaded_points(subject, subject.groups[0]):
        assert (each.words, each.reason, each.call) == (
            "inconclusive",
            "5 pairs; 6 needed",
            "",
        )
        assert each.interval_text == ""


def test_a_ratio_that_the_load_does_not_change_has_no_winner() -> None:
    runs = reads_sweep(
        blocks=(4096,), threads=(8, 512), loaders=("kvikio", "ring"), words=("posix_bounce",) * 2
    )
    subject = subject_of(runs)
    found = loaded_points(subject, subject.groups[0])
    assert [each.call for each in found] == ["", ""]
    assert all(0.97 < each.change.ratio < 1.03 for each in found if each.change)


def test_arms_under_different_loads_did_different_work() -> None:
    runs = [
        reads_run(name=f"{loader}-{index}", loader=loader, load=load, repeat=index, seed=index + 1)
        for index in range(6)
        for loader, load in (("cufile", "none"), ("bounce", "busy"))
    ]
    subject = subject_of(runs)
    (rate, *_) = compare(subject, subject.groups[0])
    assert rate.call == "barred"
    assert "different load: none and busy" in rate.reason


def test_loads_may_be_what_is_compared() -> None:
    runs = [
        reads_run(name=f"{load}-{index}", load=load, repeat=2 * index + place, seed=index + 9)
        for index in range(6)
        for place, load in enumerate(("none", "busy"))
    ]
    subject = subject_of(runs, "load.name")
    (rate, *_) = compare(subject, subject.groups[0])
    assert rate.call == "a"


def test_points_with_failed_reads_are_in_no_comparison() -> None:
    runs = reads_sweep(blocks=(4096,), threads=(8,), loads=("none",), failed=3)
    subject = subject_of(runs)
    rows = compare(subject, subject.groups[0])
    assert rows[0].call == "barred"
    assert rows[0].reason == "36 reads failed in 12 runs"
    assert "cuFileRead returned 5011" in text_of(subject)


def test_own_counts_of_memory_traffic_are_no_utilisation(small: list[Run]) -> None:
    text = text_of(subject_of(small))
    assert "utili" not in text
    assert "of load's peak" in text
    assert "the load's own count" in text


def test_a_metered_load_has_its_meter_and_what_it_kept() -> None:
    text = text_of(subject_of([reads_run(load="busy", meter="uncore")]))
    assert "memory controllers' counters" in text
    assert "load's own count" not in text
    assert "The load kept 81.0 % of its work" in text


def test_the_share_of_time_in_no_latency_is_stated_only_where_it_is_large() -> None:
    low = text_of(subject_of([reads_run(in_latency=0.8)]))
    assert "up to 20.0 %" in low
    assert "no latency" not in text_of(subject_of([reads_run(in_latency=0.99)]))


def test_costs_are_per_gb_by_device_and_the_rest_is_named(small: list[Run]) -> None:
    subject = subject_of(small)
    table = next(
        block
        for fold in more_blocks(subject, subject.groups[0])
        if isinstance(fold, Fold) and fold.summary.startswith("CPU time")
        for block in fold.blocks
        if isinstance(block, Table)
    )
    assert [each.title for each in table.columns] == [
        "at", "CPU A", "CPU B", "drives A", "drives B",
    ]  # fmt: skip
    assert "Not measured: GPUs and node." in table.note


def published(word: str, claim: str, **changes: Any) -> tuple[Measured, ...]:
    runs = reads_sweep(
        words=(word, "host_bounce"), **({"blocks": (4096,), "threads": (8, 2048)} | changes)
    )
    parts = compare_claims(subject_of(runs))
    return next(found for part in parts for each, found in part.claims if each.id == claim)


def test_p2_is_measured_at_its_threads_block_and_load_only() -> None:
    (found,) = published("p2p_nvfs", "paths_4k_rate")
    assert found.at == "2048 threads, busy host"
    assert found.ratio == pytest.approx(0.93 / 0.45 / 0.75, rel=0.03)
    assert found.verdict == "differs"


def test_response_times_are_ratios_of_means() -> None:
    (found,) = published("p2p_nvfs", "paths_4k_response")
    assert found.ratio == pytest.approx(0.93 / 0.45 / 0.75, rel=0.03)


@pytest.mark.parametrize("word", ["posix_bounce", "mixed", "unverified"])
def test_p2_is_not_measured_against_an_arm_that_bounced(word: str) -> None:
    (found,) = published(word, "paths_4k_rate")
    assert found.verdict == "unmeasured"
    assert found.reason.startswith("against an arm that bounced")


def test_p2_is_not_measured_on_an_idle_host() -> None:
    (found,) = published("p2p_nvfs", "paths_4k_rate", loads=("none",))
    assert (found.verdict, found.ratio) == ("unmeasured", None)
    assert "load = busy" in found.reason


def with_load(runs: list[Run], **asked: float) -> list[Run]:
    """Return the runs with other shares asked of their load."""
    changed = []
    for run in runs:
        config = run.record.config
        load = {**config["load"], **asked} if run.record.loads else config["load"]
        record = run.record.model_copy(update={"config": {**config, "load": load}})
        changed.append(replace(run, record=record))
    return changed


@pytest.mark.parametrize("asked", [{"cpu_share": 0.5}, {"memory_share": 0.3}])
def test_p2_is_not_measured_under_a_load_of_other_shares(asked: dict[str, float]) -> None:
    runs = reads_sweep(words=("p2p_nvfs", "host_bounce"), blocks=(4096,), threads=(8, 2048))
    parts = compare_claims(subject_of(with_load(runs, **asked)))
    found = next(own for part in parts for each, own in part.claims if each.id == "paths_4k_rate")
    page = {"cpu_share": 0.86, "memory_share": 0.5, **asked}
    assert found[0].reason.replace("\u00a0", " ") == (
        "the paper has threads = 2048, block size = 4 KiB, load = busy, load.cpu_share = 0.86, "
        "load.memory_share = 0.5; this page has threads = 8 and 2048, block size = 4 KiB, "
        f"load = none and busy, load.cpu_share = {page['cpu_share']}, "
        f"load.memory_share = {page['memory_share']}"
    )


def test_what_a_load_s_share_of_memory_traffic_means_is_a_condition() -> None:
    runs = reads_sweep(words=("p2p_nvfs", "host_bounce"), blocks=(4096,), threads=(2048,))
    paper = next(each for each in papers() if each.id == "P2")
    expected = next(each.a for each in paper.conditions if each.fact is Fact.MEMORY_TRAFFIC)
    found = match_condition(runs, Fact.MEMORY_TRAFFIC, expected)
    assert found.text == "share of the measured peak, counted by the load itself"
    assert found.match == "differs"
    load = runs[-1].record.loads[0].model_copy(update={"peak_of": "theoretical", "meter": "uncore"})
    like = replace(runs[-1], record=runs[-1].record.model_copy(update={"loads": (load,)}))
    assert match_condition([like], Fact.MEMORY_TRAFFIC, expected).match == "alike"


def test_the_direct_path_is_the_papers_a_in_any_order() -> None:
    runs = reads_sweep(
        words=("host_bounce", "p2p_pci"),
        loaders=("bounce", "cufile"),
        blocks=(4096,),
        threads=(8, 2048),
    )
    part = next(each for each in compare_claims(subject_of(runs)) if each.pair.between == "paths")
    assert not part.straight
    assert part.claims[0][1][0].ratio == pytest.approx(0.93 / 0.45 / 0.75, rel=0.03)


def test_of_two_drives_the_largest_ratio_of_the_sweep_counts() -> None:
    runs = reads_sweep(
        words=("p2p_nvfs", "p2p_nvfs"),
        serials=("SERIAL01", "SERIAL02"),
        blocks=(4096,),
        loads=("busy",),
        threads=(8, 512),
    )
    part = next(each for each in compare_claims(subject_of(runs)) if each.pair.between == "drives")
    found = {claim.id: measured for claim, measured in part.claims}["drives_4k_rate"]
    (largest,) = found
    assert "the largest of 2 points" in largest.at
    subject = subject_of(runs)
    ratios = [
        1 / row.effect.ratio
        for row in compare(subject, subject.groups[0])
        if row.effect and row.quantity.key == "read_bytes_per_s"
    ]
    assert largest.ratio == pytest.approx(max(ratios))


def test_of_two_drives_both_must_read_directly() -> None:
    runs = reads_sweep(
        words=("p2p_nvfs", "posix_bounce"),
        serials=("SERIAL01", "SERIAL02"),
        blocks=(4096,),
        loads=("busy",),
        threads=(8, 512),
    )
    part = next(each for each in compare_claims(subject_of(runs)) if each.pair.between == "drives")
    ((_, (largest,)), *_) = part.claims
    assert largest.reason == "against an arm that bounced: b is not proved to read directly"


def test_redaction_keeps_addresses_of_gpus_and_masks_serials() -> None:
    record = reads_run(load="busy").record
    masked = replace(reads_run(), record=Masker([record]).record(record))
    text = visible(page_of(make_subject([masked])))
    assert "0000:65:00.0" in text
    assert "SERIAL01" not in text


def test_a_large_sweep_is_a_page_of_moderate_size() -> None:
    subject = subject_of(reads_sweep(blocks=BLOCKS))
    page = page_of(subject)
    assert len(page) < 2_000_000
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_exports_have_paths_loads_and_the_ratio_of_ratios(small: list[Run]) -> None:
    found = document(subject_of(small))
    (group,) = found["comparisons"]
    assert group["path_by_load"][0]["call"] == "more"
    busy = next(each for each in found["runs"] if each["loads"])
    assert busy["loads"][0]["kept_fraction"] in (0.93, 0.81)
    assert busy["gpu_paths"][0]["effective"] in ("posix_bounce", "host_bounce")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            "posix_bounce",
            "A: through host memory (cuFile compatibility mode) · B: through pinned host memory; "
            "none is direct",
        ),
        (
            "unverified",
            "A: path not proved · B: through pinned host memory; none is proved to be direct",
        ),
        ("p2p_pci", "A: GPUDirect Storage (PCI P2PDMA) · B: through pinned host memory"),
    ],
)
def test_the_first_screen_names_the_path_of_each_arm(word: str, expected: str) -> None:
    runs = [reads_run(name="a", loader="cufile", word=word), reads_run(name="b", loader="bounce")]
    (found,) = first_screen(subject_of(runs)).rows
    assert found.paths == expected
    assert expected in page_of(subject_of(runs))


def failed_before_reading() -> Run:
    run = reads_run(name="a", loader="cufile")
    workload = run.record.workload.model_copy(update={"paths": ()})
    ended = {"status": "failed", "status_reason": "cuFile does not start", "spans": ()}
    record = run.record.model_copy(update={**ended, "workload": workload, "windows": ()})
    return Run(record=record, traces=run.traces)


def test_the_page_of_a_failed_run_says_so_first_and_that_no_read_was_made() -> None:
    subject = subject_of([failed_before_reading()])
    page = visible(page_of(subject))
    assert page.index("The run failed") < page.index("Results by workload")
    assert "cuFile does not start." in page
    assert "not proved" not in page
    assert "no read was made" in text_of(subject)
    assert "per GB" not in text_of(subject)


def test_three_arms_of_different_loads_are_not_ranked() -> None:
    runs = [
        reads_run(name=name, loader=name, load=load)
        for name, load in (("bounce", "none"), ("cufile", "none"), ("kvikio", "busy"))
    ]
    (found,) = first_screen(subject_of(runs)).rows
    assert found.loads == "not comparable: different load, none (A, B) and busy (C)"
    assert found.ranking == ()
    assert found.loads in page_of(subject_of(runs))


def test_a_different_load_of_two_arms_is_one_phrase() -> None:
    runs = [reads_run(name="a", loader="cufile", load="busy"), reads_run(name="b")]
    subject = subject_of(runs)
    group = subject.groups[0]
    assert different_work(group, "loader") == "different load: busy and none"
    assert [each.name for each in differences(group, "loader") if each.is_work] == ["config load"]


def test_arms_by_load_are_named_by_it() -> None:
    subject = subject_of([reads_run(name="a"), reads_run(name="b", load="busy")], "load.name")
    assert subject.arms == ("load none", "load busy")


def test_an_unmeasured_claim_lists_the_same_settings_of_paper_and_page() -> None:
    subject = subject_of(reads_sweep(blocks=(4096,), threads=(8, 32), loads=("none",), pairs=1))
    reasons = {
        measured.reason.replace("\u00a0", " ")
        for part in compare_claims(subject)
        for _, found in part.claims
        for measured in found
    }
    assert (
        "the paper has threads = 2048, block size = 4 KiB, load = busy, load.cpu_share = 0.86, "
        "load.memory_share = 0.5; this page has threads = 8 and 32, block size = 4 KiB, "
        "load = none, load.cpu_share = not set, load.memory_share = not set"
    ) in reasons


def test_counts_and_blocks_are_printed_whole() -> None:
    subject = subject_of(reads_sweep(blocks=(4096,), threads=(8, 32), loads=("none",), pairs=1))
    page = visible(page_of(subject))
    assert "8.000" not in page
    alone = visible(page_of(subject_of([reads_run(name="a")])))
    assert "reads of 4\u00a0KiB" in alone
