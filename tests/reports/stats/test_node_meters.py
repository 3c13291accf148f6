"""Meters of whole nodes: what they can't show, and that they decide nothing about drives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import unescape

import pytest

from tests.reports.conftest import render_page
from tests.reports.sessions import session
from tests.reports.stats.test_summary import FAST, REAL, SLOW
from wattload.cli.summary import energy_lines
from wattload.core.power import Evidence, Scope
from wattload.reports.runs.energy import ALL_PHASES, node_limits, scope_energy_j
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen

PARTS_J = {"gain": 900.0, "offset": 400.0, "noise": 30.0, "edges": 40.0, "gap": 0.0}
OF_NODE = {"scope": Scope.NODE, "device": "pdu:3"}


def behind_a_node_meter(
    run: Run, parts_j: Mapping[str, float] = PARTS_J, source: str = "snmp"
) -> Run:
    """Return the run with a node's meter for its drive's, with these parts of its uncertainty."""
    power = run.record.power
    (used,) = power.sources
    assert used.facts is not None
    facts = used.facts.model_copy(update={**OF_NODE, "name": source, "device_name": "pdu:3"})
    changes = {**OF_NODE, "source": source, "uncertainty_parts_j": parts_j, "states": ()}
    power = power.model_copy(
        update={
            "energy": tuple(each.model_copy(update=changes) for each in power.energy),
            "sources": (
                used.model_copy(update={"facts": facts, "name": source, "device": "pdu:3"}),
            ),
        }
    )
    return replace(run, record=run.record.model_copy(update={"power": power}))


@pytest.fixture(scope="module")
def arms() -> list[Run]:
    """Runs in turns of two arms, of which one uses more than twice the node's energy."""
    return [behind_a_node_meter(run) for run in session({"A": FAST, "B": SLOW}, **REAL)]


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def test_what_a_meter_cannot_show_leaves_out_what_two_runs_have_in_common(arms: list[Run]) -> None:
    (energy,) = arms[0].record.power.energy
    # 50 J at k = 2 in each of two runs are 70.7 J of their difference
    assert energy.least_difference_w == pytest.approx(70.71 / energy.seconds, rel=1e-4)
    common = {name: PARTS_J[name] for name in ("gain", "offset")}
    for parts_j in ({}, common):
        changed = energy.model_copy(update={"uncertainty_parts_j": parts_j})
        assert changed.least_difference_w is None


def test_two_arms_behind_a_node_meter_have_no_verdict_on_energy(arms: list[Run]) -> None:
    subject = make_subject(arms, "label")
    (row,) = first_screen(subject).rows
    assert row.devices[0].title.startswith("node, ")
    assert [bar.value is not None for bar in row.devices[0].bars] == [True, True]
    assert row.speed is not None
    assert row.speed.winner == "A"
    assert row.energy is not None
    assert (row.energy.outcome, row.energy.winner, row.energy.leader) == ("missing", None, None)
    assert not any(each.quantity.is_energy for each in compare(subject, subject.groups[0]))
    assert "drive energy not measured" in plain(finding(subject))


def test_the_page_says_what_the_node_meter_cannot_show(arms: list[Run]) -> None:
    # the shortest runs show the least
    shortest = min(run.record.power.energy[0].seconds for run in arms)
    sentence = (
        f"The node's meter snmp can't show a difference below {70.71 / shortest:.2g} W between two "
        f"runs of {shortest:.2f} s. No verdict is based on the node's energy."
    )
    assert plain(unescape(render_page(arms))).count(f">{sentence}<") == 1


def test_each_meter_has_its_own_limit_by_its_coarsest_run(arms: list[Run]) -> None:
    fine = {"noise": 3.0}
    records = [
        behind_a_node_meter(arms[0], fine, "ipmi").record,
        behind_a_node_meter(arms[1], fine).record,
        arms[0].record,
        behind_a_node_meter(arms[2], {}, "command").record,
    ]
    ipmi, snmp = (plain(each) for each in node_limits(records, ALL_PHASES))
    (energy,) = arms[0].record.power.energy
    assert ipmi.startswith(f"ipmi can't show a difference below {4.243 / energy.seconds:.2g} W ")
    assert snmp.startswith(f"snmp can't show a difference below {70.71 / energy.seconds:.2g} W ")


def with_another(run: Run, source: str, evidence: Evidence, share: float) -> Run:
    """Return the run with a second meter of its node, which shows this share of the energy."""
    power = run.record.power
    second = [
        each.model_copy(
            update={
                "source": source,
                "device": source,
                "evidence": evidence,
                "energy_j": (each.energy_j or 0.0) * share,
            }
        )
        for each in power.energy
    ]
    power = power.model_copy(update={"energy": (*power.energy, *second)})
    return replace(run, record=run.record.model_copy(update={"power": power}))


@pytest.mark.parametrize(
    ("evidence", "share", "counted"),
    [
        (Evidence.SELF_REPORTED, 2.0, 1.0),  # a PDU and a BMC: the PDU
        (Evidence.MEASURED, 0.3, 1.0),  # a PDU and a meter of a part of the node: the PDU
        (Evidence.MEASURED, 1.1, 1.1),
    ],
)
def test_two_meters_of_a_node_are_not_added(
    arms: list[Run], evidence: Evidence, share: float, counted: float
) -> None:
    alone = scope_energy_j(arms[0].record, Scope.NODE, ALL_PHASES)
    assert alone is not None
    both = with_another(arms[0], "second", evidence, share).record
    assert scope_energy_j(both, Scope.NODE, ALL_PHASES) == pytest.approx(alone * counted)


def test_the_summary_of_a_run_says_it_next_to_the_energy_of_the_node(arms: list[Run]) -> None:
    (line,) = (plain(each.text) for each in energy_lines(arms[0].record) if "node" in each.text)
    assert " J, not part of the drive's; snmp can't show a difference below " in line
