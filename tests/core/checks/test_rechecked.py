"""The checks of a stored record: evaluated again, kept, or missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.record_figures import OF_WORKLOAD
from tests.records import Scenario, WorkloadName, make_run
from tests.training import program_epoch
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.results.reading import judged
from wattload.results.registry import results_of
from wattload.results.training.facts import Program
from wattload.run.compose import compose, workload_class
from wattload.run.config_groups import option_schemas

ROOT = Path(__file__).parents[3]
WORKLOADS: tuple[WorkloadName, ...] = ("unet3d", "checkpoint", "dlrm")


def record_of(workload: WorkloadName = "unet3d", **scenario: Any) -> RunRecord:
    return make_run(Scenario(workload=workload, virtual=False, power="measured", **scenario))[0]


def by_program() -> RunRecord:
    """Return a record of an outside program that owned the loop."""
    program = Program(version="1", command=("outside",), epochs=(program_epoch(),))
    return record_of(loader="dlio", facts={"program": program.model_dump(mode="json")})


def changed(record: RunRecord, **changes: Any) -> RunRecord:
    return record.model_copy(update=changes)


def failed(record: RunRecord) -> set[str]:
    checks = judged(record).checks
    return {check.name for check in checks if check.verdict == "fail"}


def barred(record: RunRecord) -> set[str]:
    return {check.name for check in judged(record).checks if check.bars_verdict}


def without(record: RunRecord, name: str) -> RunRecord:
    left = tuple(check for check in record.checks if check.name != name)
    assert left != record.checks
    return changed(record, checks=left)


def with_check(record: RunRecord, name: str, **changes: Any) -> RunRecord:
    checks = [c.model_copy(update=changes) if c.name == name else c for c in record.checks]
    assert tuple(checks) != record.checks
    return changed(record, checks=tuple(checks))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_an_untouched_record_stays_valid(workload: WorkloadName) -> None:
    assert failed(record_of(workload)) == set()


@pytest.mark.parametrize(
    ("workload", "name"),
    [(workload, name) for workload in WORKLOADS for name in OF_WORKLOAD[workload]],
)
def test_a_check_that_only_the_workload_can_make_must_be_there(
    workload: WorkloadName, name: str
) -> None:
    record = without(record_of(workload), name)
    assert name in barred(record)
    assert name not in barred(record_of(workload))


def test_the_check_of_an_unfinished_run_need_not_be_there() -> None:
    record = changed(record_of(), status="aborted", status_reason="killed", checks=())
    assert "delivered_bytes" not in barred(record)


@pytest.mark.parametrize(
    ("workload", "name"),
    [("unet3d", "delivered_bytes"), ("dlrm", "data_digests"), ("checkpoint", "cold_cache")],
)
def test_a_workloads_check_that_could_not_be_made_bars_the_verdict(
    workload: WorkloadName, name: str
) -> None:
    record = with_check(
        record_of(workload), name, verdict="not_checked", mandatory=False, figures={}
    )
    assert name in barred(record)


def test_a_check_that_could_not_be_made_bars_no_verdict_where_that_is_known() -> None:
    record = record_of()
    no_extents = with_check(record, "written_extents", verdict="not_checked", mandatory=False)
    assert "written_extents" not in barred(no_extents)
    undelivered = with_check(
        by_program(), "delivered_bytes", verdict="not_checked", mandatory=False
    )
    assert "delivered_bytes" not in barred(undelivered)


def test_a_check_that_only_one_loader_makes_is_missing_from_its_records_alone() -> None:
    assert "files_verified" not in barred(record_of())
    assert "files_verified" in barred(by_program())


def test_a_stored_failure_of_a_rule_that_is_gone_still_fails() -> None:
    old = Check(name="rule_of_last_year", verdict="fail", sentence="It did not hold.")
    record = record_of()
    assert failed(changed(record, checks=(*record.checks, old))) == {"rule_of_last_year"}


def test_a_record_of_an_unknown_workload_gets_no_verdict() -> None:
    record = record_of()
    other = changed(record, workload=record.workload.model_copy(update={"name": "os"}))
    (check,) = (c for c in judged(other).checks if c.name == "workload_checks")
    assert check.bars_verdict
    assert "does not have the run's workload" in check.sentence


@pytest.mark.parametrize("name", ["os", "", "..", "unet3d.config", "__init__", "unet3d/../null"])
def test_a_name_from_a_record_imports_nothing_but_a_workload(name: str) -> None:
    assert results_of(name) is None


PRESETS = {"gpu_random_read": "gpu_read"}
"""Workloads that are presets of another one."""


def declared_faults(workload: str) -> dict[str, str]:
    """Return the checks that runs of a workload store, and the fault that fails each."""
    results = results_of(workload)
    assert results is not None
    return {check.name: check.fault for check in results.observed}


def test_every_workload_declares_its_checks_under_its_own_name() -> None:
    for name in option_schemas("workload"):
        assert all(declared_faults(name).values())
        config, _ = compose([f"workload={name}", "target.path=/tmp"])
        assert workload_class(config).name == PRESETS.get(name, name)


def test_every_check_that_is_made_outside_of_the_recomputed_ones_is_declared() -> None:
    """An undeclared check could be removed from a record, and nothing would miss it."""
    named = {name: set(declared_faults(name)) for name in option_schemas("workload")}
    everywhere = set().union(*named.values())
    found = 0
    for folder in ("workloads", "loaders", "power", "wattload/run", "wattload/session"):
        for file in (ROOT / folder).rglob("*.py"):
            declared = named.get(file.parent.name, everywhere)
            for name in names_of_checks(file):
                found += 1
                starts = any(each.startswith(name) for each in declared)
                assert name in declared or (name.endswith("_") and starts), (file, name)
    assert found > 10


def names_of_checks(file: Path) -> Iterator[str]:
    """Yield the name of each check that a module makes; the beginning of a formatted name."""
    text = file.read_text()
    if "heck(" not in text:
        return
    tree = ast.parse(text)
    values: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.Tuple)):
            for target in node.targets:
                pairs = (
                    zip(target.elts, node.value.elts, strict=True)
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                values |= {ast.unparse(each): value for each, value in pairs}
        elif isinstance(node, ast.FunctionDef):
            arguments = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            values |= {each.arg: default for each, default in arguments if default is not None}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).lower().endswith("check"):
            for keyword in node.keywords:
                if keyword.arg == "name":
                    value = values.get(ast.unparse(keyword.value), keyword.value)
                    either = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                    for each in either:
                        part = each.values[0] if isinstance(each, ast.JoinedStr) else each
                        assert isinstance(part, ast.Constant), (file, ast.unparse(value))
                        yield str(part.value)
