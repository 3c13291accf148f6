from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from wattload.core.errors import ConfigError
from wattload.core.units import Unit
from wattload.reports.claims.papers import (
    Closure,
    Fact,
    Formula,
    Kind,
    Notation,
    Paper,
    compute,
    names,
    papers,
    parse_arithmetic,
    parse_formula,
    read_paper,
    text_of,
)
from wattload.reports.runs.load import load_runs
from wattload.reports.stats.figures import quantities

DOCS = Path(__file__).resolve().parents[3] / "docs"
LAB = DOCS / "examples/lab"
NAMES = sorted(p.name for p in files("wattload.reports.claims").iterdir() if ".yaml" in p.name)
PAPERS = {paper.id: paper for paper in papers()}
SMALL = """
id: P9
name: A paper
publisher: Someone
setup: [one host]
pairs:
  drives: {between: drives, a: one drive, b: another}
figures:
  - {id: seconds_a, value: 10, unit: s, words: 10 s}
claims:
  - id: time
    pair: drives
    workload: checkpoint
    figure: write_seconds_per_checkpoint
    formula: b.time / a.time
    printed: {value: 50, reading: percent_more, words: 50 % more time}
    consistency: {status: unchecked, reason: nothing is printed beside it}
    needs: two drives
closures: []
"""


def closure(paper: str, name: str) -> Closure:
    (found,) = [each for each in PAPERS[paper].closures if each.id == name]
    return found


def sides(paper: str, name: str) -> tuple[float, float | None]:
    return PAPERS[paper].computed(closure(paper, name))


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_a_paper(name: str) -> None:
    text = (files("wattload.reports.claims") / name).read_text(encoding="utf-8")
    assert read_paper(text, name).claims


def test_there_is_one_file_per_paper() -> None:
    assert list(PAPERS) == [f"P{number}" for number in range(1, 12)]
    assert len(NAMES) == len(PAPERS)


@pytest.mark.parametrize(
    ("paper", "claim", "ratio"),
    [
        ("P1", "checkpoint_time", 2.51),
        ("P1", "checkpoint_energy", 3.09),
        ("P1", "checkpoint_rate", 2.35),
        ("P1", "unet3d_rate_per_watt", 1.20),
        ("P1", "unet3d_rate", 1.30),
        ("P1", "dlrm_energy", 1.65),
        ("P2", "paths_4k_rate", 6.4),
        ("P2", "paths_4k_response", 7.3),
        ("P2", "paths_128k_rate", 1.6),
        ("P2", "paths_1m_rate", 1.5),
        ("P2", "drives_4k_rate", 1.42),
        ("P3", "mmap_time", 26),
        ("P4", "steady_rate", 1.4),
        ("P5", "generations", 1.86),
        ("P5", "gen6", 6.92e6),
        ("P5", "gpu", 96e6),
        ("P6", "read_1", 13.54 * 2**30),
        ("P7", "suzhou_latency", 2.47896e-3),
        ("P8", "energy_ratio", 27.2),
        ("P9", "io2_time", 6.18),
        ("P10", "moe_time", 32.05),
        ("P11", "energy", 0.63),
    ],
)
def test_a_printed_figure_is_read_as_a_ratio_or_in_si_units(
    paper: str, claim: str, ratio: float
) -> None:
    assert PAPERS[paper].values[claim] == pytest.approx(ratio)


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_what_a_file_says_of_its_arithmetic_is_what_its_figures_give(paper: Paper) -> None:
    for each in paper.closures:
        assert paper.closes(each) == each.closes
    for claim in paper.claims:
        assert paper.consistency_of(claim) == claim.consistency.status


def test_times_and_rates_of_the_same_bytes_differ_in_print() -> None:
    assert sides("P1", "time_and_rate") == pytest.approx((2.51, 2.35))
    assert closure("P1", "time_and_rate").closes is False


def test_energy_over_time_is_the_ratio_of_mean_power() -> None:
    assert sides("P1", "power_and_caps") == pytest.approx((3.09 / 2.51, 1.25))
    assert sides("P1", "unet3d_power")[0] == pytest.approx(1.30 / 1.20)


def test_stages_that_do_not_sum_ask_for_35_seconds() -> None:
    assert sides("P3", "aggregation_ratio") == pytest.approx((25 / 18, 2))
    assert sides("P3", "stages_b") == pytest.approx((33.2, 43.2))
    assert sides("P3", "aggregation_needed")[0] == pytest.approx(35.0)
    assert not any(closure("P3", name).closes for name in ("aggregation_ratio", "stages_b"))


def test_hours_saved_and_rates_apart_do_not_close() -> None:
    hours, seconds = sides("P4", "hours_from_rates"), sides("P4", "rates_from_hours")
    assert hours == pytest.approx((9239, 50400), abs=1)
    assert seconds == pytest.approx((0.1393e9, 0.76e9), rel=1e-3)


@pytest.mark.parametrize(
    ("paper", "decimal", "binary", "printed"),
    [
        ("P4", "datasheet_decimal", "datasheet_binary", 2812.5),
        ("P5", "bandwidth_decimal", "bandwidth_binary", 45.78),
    ],
)
def test_a_binary_number_under_a_decimal_unit_is_found(
    paper: str, decimal: str, binary: str, printed: float
) -> None:
    assert sides(paper, binary) == pytest.approx((printed, printed), rel=1e-4)
    assert closure(paper, binary).closes is True
    assert closure(paper, decimal).closes is False


def test_searches_read_twice_what_arrays_did_and_nothing_where_nobody_counted() -> None:
    assert sides("P7", "suzhou_bytes_twice") == pytest.approx((2 * 179.2, 179.2), rel=1e-4)
    assert sides("P7", "suzhou_reads") == pytest.approx((41.7, 50), rel=1e-3)
    assert sides("P7", "tta_bytes")[1] == 0
    assert sides("P7", "tta_rate_of_processes")[0] == pytest.approx(1.7 * 59245, rel=0.01)


def test_the_score_of_energies_is_the_sum_of_five_data_sets() -> None:
    assert sides("P8", "score") == pytest.approx((0.648, 0.648), rel=1e-3)


def test_look_ups_of_system_prompts_found_nothing_and_requests_outlasted_the_clock() -> None:
    assert sides("P6", "hit_rate_with_prompts") == pytest.approx((0.896, 0.896), abs=0.0005)
    assert sides("P6", "hit_rate_without_prompts")[0] == pytest.approx(0.923, abs=0.0005)
    until_the_end, printed = sides("P6", "read_until_the_end")
    assert until_the_end == pytest.approx(12.64 * 2**30, rel=1e-3)
    assert printed is not None
    assert until_the_end < 0.95 * printed
    ratios = [sides("P6", f"ratio_{name}")[0] for name in ("hpe", "many", "farm", "samsung")]
    assert ratios == pytest.approx([3.88, 4.43, 4.67, 4.72], abs=0.005)


def test_figures_that_claims_name_are_figures_of_real_runs() -> None:
    """A metric that is renamed must not leave a claim that nothing ever answers."""
    known = {
        (run.record.workload.name, key)
        for run in load_runs([LAB])
        for key in quantities(run.record)
    }
    workloads = {workload for workload, _ in known}
    named = {
        (claim.workload, claim.figure)
        for paper in PAPERS.values()
        for claim in paper.claims
        if claim.workload in workloads
    }
    assert named
    assert named <= known


def test_a_capacity_of_another_number_in_the_table_is_a_slip() -> None:
    assert sides("P4", "capacity_of_table") == (30.2e12, 30.72e12)
    assert closure("P4", "capacity_of_table").closes is False


def test_a_claim_says_what_it_needs_unless_a_workload_measures_it() -> None:
    assert read_paper(SMALL.replace("    needs: two drives\n", ""), "p9.yaml").claims[0].needs == ""
    unmeasured = SMALL.replace("    workload: checkpoint\n", "").replace(
        "    figure: write_seconds_per_checkpoint\n", ""
    )
    assert read_paper(unmeasured, "p9.yaml").claims
    with pytest.raises(ConfigError, match="needs has to say what is missing"):
        read_paper(unmeasured.replace("    needs: two drives\n", ""), "p9.yaml")


def test_the_docs_name_every_file_every_fact_and_every_kind() -> None:
    text = (DOCS / "claims.md").read_text(encoding="utf-8")
    for name in (*NAMES, *Fact, *Kind, *Notation):
        assert f"`{name}`" in text


def test_quotations_are_short() -> None:
    for paper in PAPERS.values():
        assert all(len(claim.printed.words.split()) <= 12 for claim in paper.claims)


def test_a_small_paper_is_read() -> None:
    assert read_paper(SMALL, "small.yaml").values == {"seconds_a": 10, "time": 1.5}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: A paper", "name: A paper\ntitel: x", "unknown key titel"),
        ("words: 10 s", "words: 10 s, colour: red", "unknown key figures.0.colour"),
        ("publisher: Someone", "id: P8", "is not valid YAML"),
        ("publisher: Someone", "", "publisher: Field required"),
        ("value: 50", "value: many", "claims.0.printed.value: .* got 'many'"),
        ("value: 50", 'value: "50"', "claims.0.printed.value: .* got '50'"),
        ("percent_more", "percent_faster", "claims.0.printed.reading: .* got 'percent_faster'"),
        ("pair: drives", "pair: drive", "claim time: unknown pair 'drive'; use one of drives"),
        ("formula: b.time", "formula: c.time", "claims.0.formula: a formula must"),
        ("id: time", "id: seconds_a", "duplicate id seconds_a"),
        (", b: another", "", "claim time: its pair has no arm b"),
        ("workload: checkpoint", "remark: x", "give workload and figure, or neither"),
        ("status: unchecked", "status: consistent", "make it unchecked"),
        ("id: P9", "id: nine", "id: String should match"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence_that_names_the_key(
    old: str, new: str, message: str
) -> None:
    assert old in SMALL
    with pytest.raises(ConfigError, match=f"small.yaml.*{message}") as caught:
        read_paper(SMALL.replace(old, new), "small.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"left": "time / second_a", "right": "2", "closes": True}, "'second_a' is no figure"),
        ({"left": "time", "right": "2", "closes": True}, "has closes: True, but its sides are"),
        ({"left": "time", "right": "2"}, "give right and closes, or neither"),
        ({"left": "1 + 1", "right": "2", "closes": True}, "neither side uses a figure"),
        ({"left": "time ** 2"}, "and parentheses are allowed"),
        ({"left": "time / (seconds_a - 10)"}, "divides by zero"),
    ],
)
def test_a_wrong_closure_is_refused(fields: dict[str, object], message: str) -> None:
    written = json.dumps([{"id": "it", "says": "it holds", **fields}])
    with pytest.raises(ConfigError, match=message):
        read_paper(SMALL.replace("closures: []", f"closures: {written}"), "small.yaml")


def test_a_closure_that_fails_makes_its_claims_inconsistent() -> None:
    written = json.dumps(
        [{"id": "it", "says": "so", "left": "time", "right": "2", "closes": False}]
    )
    text = SMALL.replace("closures: []", f"closures: {written}")
    with pytest.raises(ConfigError, match="make it inconsistent"):
        read_paper(text, "small.yaml")
    paper = read_paper(text.replace("unchecked", "inconsistent"), "small.yaml")
    assert paper.consistency_of(paper.claims[0]) == "inconsistent"


def test_at_most_needs_no_tolerance() -> None:
    written = json.dumps(
        [
            {
                "id": "it",
                "says": "so",
                "left": "time",
                "right": "1.5",
                "relation": "at_most",
                "tolerance": 0,
                "closes": True,
            }
        ]
    )
    text = SMALL.replace("closures: []", f"closures: {written}").replace("unchecked", "consistent")
    paper = read_paper(text, "small.yaml")
    assert paper.closes(paper.closures[0]) is True


def test_nested_brackets_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"c99\.yaml is not valid YAML"):
        read_paper("a: " + "[" * 100_000, "c99.yaml")


def test_a_ratio_of_two_arms_is_parsed() -> None:
    found = parse_formula("b.time / a.time")
    assert found == Formula(Kind.TIME, "b", "a")
    assert found.unit is Unit.SECONDS


def test_the_figure_of_one_arm_is_parsed() -> None:
    assert parse_formula("a.iops") == Formula(Kind.OPERATIONS, "a")


@pytest.mark.parametrize("kind", list(Kind))
def test_a_formula_reads_as_it_was_written(kind: Kind) -> None:
    for text in (f"a.{kind} / b.{kind}", f"b.{kind}"):
        assert str(parse_formula(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "median(a.time)",
        "a.time / a.time",
        "a.time / b.rate",
        "c.time",
        "a.time * b.time",
        "a.time / 2",
        "a.weight",
        "a.time / b.time\n",
        "__import__('os').system('true')",
    ],
)
def test_anything_else_is_no_formula(text: str) -> None:
    with pytest.raises(ValueError, match=r"a formula must|a ratio must"):
        parse_formula(text)


def test_arithmetic_is_computed_by_hand_and_here_alike() -> None:
    term = parse_arithmetic("(total - part) / 2 * 10 + -0".replace("-0", "0"))
    assert names(term) == {"total", "part"}
    assert compute(term, {"total": 7.0, "part": 3.0}) == 20.0


def test_arithmetic_reads_with_every_inner_part_in_parentheses() -> None:
    assert text_of(parse_arithmetic("a_s - b / c * 2")) == "a_s − ((b ÷ c) × 2)"  # noqa: RUF001 - the sign is meant


@pytest.mark.parametrize(
    "text",
    [
        "", "a +", "a ** 2", "-a", "a if b else c", "f(a)", "a.b", "a[0]", "'a'", "True", "a < b",
        "lambda: a", "1e999", "(a := 2)", "__import__('os')", "1j", "(" * 3000 + "a" + ")" * 3000,
    ],
)  # fmt: skip
def test_nothing_but_names_numbers_and_four_signs_is_arithmetic(text: str) -> None:
    with pytest.raises(ValueError, match="and parentheses are allowed"):
        parse_arithmetic(text)


def test_a_name_that_no_figure_has_is_refused() -> None:
    with pytest.raises(ValueError, match="'wath' is no figure or claim of this paper; it has watt"):
        compute(parse_arithmetic("wath / 2"), {"watt": 1.0})


def test_a_division_by_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="1 ÷ a divides by zero"):
        compute(parse_arithmetic("1 / a"), {"a": 0.0})
