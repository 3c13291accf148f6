"""The sections of records that lack something, or have more than usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.record_machine import read
from tests.records import Scenario
from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from wattload.core.record.controller import ControllerRecord
from wattload.core.record.target import BlockNode
from wattload.reports.blocks import Block, Facts, Notice, Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.figures import figures_tables, phases_tables
from wattload.reports.sections.first import title
from wattload.reports.sections.machine import drive_blocks, machine_blocks
from wattload.reports.sections.wording import moment, target_words
from wattload.reports.stats.subject import Subject, make_subject


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return one(tmp_path, arm("A", 0, ranks=2))


def altered(run: Run, **changes: object) -> tuple[Subject, Run]:
    record = run.record.model_copy(update=changes)
    other = replace(run, record=record)
    return make_subject([other]), other


def words(blocks: Sequence[Block]) -> str:
    """Return all text of tables, facts and notices."""
    found: list[str] = []
    for block in blocks:
        if isinstance(block, Table):
            found += [cell.text + " " + cell.remark for row in block.rows for cell in row]
            found += [block.caption, block.note]
        elif isinstance(block, Facts):
            found += [f"{name} {value}" for name, value in block.pairs]
        elif isinstance(block, Notice):
            found += [block.title, *map(str, block.sentences)]
    return " | ".join(found).replace("\u00a0", " ")


def test_ranks_that_ended_apart_say_by_how_much(run: Run) -> None:
    (span,) = [each for each in run.record.spans if each.timed]
    late = span.model_copy(update={"rank": 1, "end_ns": span.end_ns + 500_000_000})
    spans = (*run.record.spans, late)
    assert "0.50 s apart" in words(phases_tables(altered(run, spans=spans)[1]))


def test_a_device_that_kept_no_times_has_a_dash_for_its_depth(run: Run) -> None:
    reason = {"busy_s": "the kernel keeps none", "weighted_s": "the kernel keeps none"}
    gaps = {"busy_s": None, "weighted_s": None, "read_bytes": None}
    counters = tuple(
        counter.model_copy(update={**gaps, "missing": {**reason, "read_bytes": "not kept"}})
        for counter in run.record.counters
    )
    (_phases, table) = phases_tables(altered(run, counters=counters)[1])
    assert [cell.text for cell in table.rows[0][-3:]] == ["\u2013"] * 3


def test_a_run_without_phases_or_figures_has_no_such_sections(run: Run) -> None:
    changes: dict[str, object] = {"spans": (), "metrics": (), "counters": ()}
    _, bare = altered(run, **changes)
    assert phases_tables(bare) == []
    assert figures_tables(bare) == []


def test_a_run_without_any_machine_has_no_such_section(run: Run) -> None:
    empty = {"hosts": (), "targets": (), "controllers": (), "ranks": ()}
    workload = run.record.workload.model_copy(update={"paths": ()})
    assert machine_blocks(altered(run, **empty, workload=workload)[1]) == []


def test_an_array_says_how_often_it_writes_each_byte(run: Run) -> None:
    (target,) = run.record.targets
    mirror = read(BlockNode, "unknown", kind="md", name="md0", redundancy=2.0)
    facts = target.facts.model_copy(update={"stack": mirror})
    _subject, other = altered(run, targets=(target.model_copy(update={"facts": facts}),))
    assert "writes 2 copies" in Page(render_page([other])).text()
    assert "md md0" in target_words(facts)


def test_a_target_of_which_little_is_known_has_a_name_all_the_same(run: Run) -> None:
    (target,) = run.record.targets
    reasons = {"path": "none", "file_system": "no mount", "stack": "no block device"}
    bare = target.facts.model_copy(
        update={**dict.fromkeys(reasons), "kind": "null", "missing": reasons}
    )
    assert target_words(bare) == "a null target (unknown file system)"


def test_what_could_not_be_read_of_a_target_stands_with_its_reason(run: Run) -> None:
    assert "unknown" in words(machine_blocks(run))
    host = run.record.hosts[0].facts
    assert "c_states" in host.missing
    assert "c states" in Page(render_page([run])).text()


def test_a_page_of_runs_without_target_is_named_by_the_workload(run: Run) -> None:
    subject, _ = altered(run, targets=())
    assert title(subject) == "Unet3D"


def _drive(run: Run, **difference: object) -> ControllerRecord:
    (controller,) = run.record.controllers
    assert controller.difference is not None
    return controller.model_copy(
        update={
            "facts": controller.facts.model_copy(update={"holds_system": True}),
            "difference": controller.difference.model_copy(update=difference),
        }
    )


def _pairs(controller: ControllerRecord) -> dict[str, str]:
    return {
        name: value
        for block in drive_blocks(controller)
        if isinstance(block, Facts)
        for name, value in block.pairs
    }


def test_a_drive_tells_its_write_amplification_or_why_not(run: Run) -> None:
    known = _drive(run, write_amplification=1.2345, changed=("firmware",), missing={})
    assert _pairs(known)["write amplification"] == "1.23"
    assert _pairs(known)["changed during the run"] == "firmware"
    assert _pairs(known)["system drive"] == "holds root or swap"
    assert _pairs(run.record.controllers[0])["write amplification"] == "no OCP log C0h"


def test_a_drive_that_could_be_read_neither_before_nor_after_is_still_named(run: Run) -> None:
    (controller,) = run.record.controllers
    bare = controller.model_copy(update={"before": None, "after": None, "difference": None})
    assert _pairs(bare)["link now, maximum"] == "unknown, 32 GT/s x4"
    assert not any(isinstance(block, Notice) for block in drive_blocks(bare))


def test_a_drive_at_full_link_speed_has_no_notice(run: Run) -> None:
    (controller,) = run.record.controllers
    facts = controller.facts.model_copy(update={"link_speed_max_gt_per_s": 16.0})
    full = controller.model_copy(update={"facts": facts})
    assert not any(isinstance(block, Notice) for block in drive_blocks(full))


def test_a_drive_without_smart_or_after_shows_what_there_is(run: Run) -> None:
    (controller,) = run.record.controllers
    assert controller.before is not None
    before = controller.before.model_copy(update={"smart": None, "missing": {"smart": "refused"}})
    partial = controller.model_copy(update={"before": before, "after": None})
    table = next(block for block in drive_blocks(partial) if isinstance(block, Table))
    assert table.note.endswith("smart: refused.")
    assert {row[2].text for row in table.rows} == {"\u2013"}


def test_a_host_that_counts_pressure_says_how_long_tasks_waited(run: Run) -> None:
    (host,) = run.record.hosts
    assert host.after is not None
    rest = {k: v for k, v in host.before.missing.items() if k != "pressure_io_some_s"}
    before = host.before.model_copy(update={"pressure_io_some_s": 1.0, "missing": rest})
    after = host.after.model_copy(update={"pressure_io_some_s": 3.5, "missing": rest})
    waited = host.model_copy(update={"before": before, "after": after})
    assert "time that some task waited for I/O 2.50 s" in words(
        machine_blocks(altered(run, hosts=(waited,))[1])
    )


def test_a_run_that_is_not_over_has_no_end() -> None:
    assert moment(None) == "unknown"


@pytest.mark.parametrize(("spread", "word"), [(0.12, "noisy, run more"), (0.3, "unstable")])
def test_noisy_arms_are_told_to_run_more(tmp_path: Path, spread: float, word: str) -> None:
    rates = [1e9 * (1 + spread * (index % 2)) for index in range(4)]
    runs = [
        one(tmp_path, Scenario(run_id=f"run-{index}", seconds=1.0, rate_bytes_per_s=rate))
        for index, rate in enumerate(rates)
    ]
    assert word in Page(render_page(runs)).text()


@pytest.mark.parametrize(
    ("kind", "below", "words"),
    [
        ("loop", "virtio", "/dev/x (whole device: loop device on virtio disk)"),
        ("loop", None, "/dev/x (whole device: loop device)"),
        ("ram", None, "/dev/x (whole device: device in memory)"),
        ("namespace", "controller", "/dev/x (whole device: Micron_9550)"),
    ],
)
def test_a_raw_target_is_a_whole_device(run: Run, kind: str, below: str | None, words: str) -> None:
    (target,) = run.record.targets
    models = {"virtio": "virtio disk", "controller": "Micron_9550", "loop": "file /srv/a"}

    def node(kind: str, *children: BlockNode) -> BlockNode:
        model = {"model": models[kind]} if kind in models else {}
        return read(BlockNode, "unknown", kind=kind, name="a", children=children, **model)

    stack = node(kind) if below is None else node(kind, node(below))
    changes = {"kind": "block", "path": "/dev/x", "file_system": None, "stack": stack}
    facts = target.facts.model_copy(update={**changes, "virtual": False})
    assert target_words(facts) == words
