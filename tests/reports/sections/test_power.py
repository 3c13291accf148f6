"""Power states and temperatures, each said once for all workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.reports.sessions import turn
from wattload.reports.blocks import Block, Paragraph
from wattload.reports.sections.power import states_section
from wattload.reports.stats.subject import make_subject


def blocks_of(states: Mapping[str, int]) -> list[Block]:
    runs = [
        turn(
            label,
            0,
            1e9,
            name=f"{kind}-{label}",
            session=kind,
            workload=kind,
            state=state,
            power="measured",
        )
        for kind in ("unet3d", "checkpoint")
        for label, state in states.items()
    ]
    found: Any = states_section(make_subject(runs))
    return list(found.blocks)


def test_constant_power_states_are_one_sentence() -> None:
    (sentence,) = blocks_of({"A": 0, "B": 1})
    assert isinstance(sentence, Paragraph)
    assert (
        sentence.text
        == "Each arm stayed in one power state in its timed phases: A in PS0 and B in PS1."
    )


def test_the_same_state_in_all_arms_needs_no_arm() -> None:
    (sentence,) = blocks_of({"A": 1, "B": 1})
    assert isinstance(sentence, Paragraph)
    assert sentence.text == "All timed phases ran in PS1."
