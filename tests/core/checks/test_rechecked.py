"""A stored record is judged by its figures: an edited or removed verdict changes nothing."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import wattload.workloads
from tests.record_figures import OF_WORKLOAD
from tests.records import Scenario, WorkloadName, make_run
from wattload.core.checks.evaluation import declared_checks, read_judged, rechecked
from wattload.core.errors import RecordError
from wattload.core.record.file import (
    BLANK,
    RECORD_FILE,
    SCHEMA_VERSION,
    SEALED_SINCE,
    read_stored,
    seal_of,
    write_record,
)
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.run.compose import compose, workload_class

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/data/records"
WORKLOADS: tuple[WorkloadName, ...] = ("unet3d", "checkpoint", "dlrm")


def record_of(workload: WorkloadName = "unet3d", **scenario: Any) -> RunRecord:
    record, _ = make_run(Scenario(workload=workload, virtual=False, power="measured", **scenario))
    return record


def changed(record: RunRecord, **changes: Any) -> RunRecord:
    return record.model_copy(update=changes)


def failed(record: RunRecord, schema_version: int = SCHEMA_VERSION) -> set[str]:
    checks = rechecked(record, schema_version).checks
    return {check.name for check in checks if check.verdict == "fail"}


def barred(record: RunRecord) -> set[str]:
    return {check.name for check in rechecked(record).checks if check.bars_verdict}


def without(record: RunRecord, name: str) -> RunRecord:
    left = tuple(check for check in record.checks if check.name != name)
    assert left != record.checks
    return changed(record, checks=left)


def with_check(record: RunRecord, name: str, **changes: Any) -> RunRecord:
    checks = [c.model_copy(update=changes) if c.name == name else c for c in record.checks]
    assert tuple(checks) != record.checks
    return changed(record, checks=tuple(checks))


def figures_of(record: RunRecord, name: str) -> Mapping[str, Any]:
    return next(check.figures for check in record.checks if check.name == name)


def wrong_bytes(record: RunRecord) -> RunRecord:
    """Return a record whose ranks counted a byte more than its phases."""
    first, *others = (span for span in record.spans if span.timed)
    more = first.model_copy(update={"read_bytes": first.read_bytes + 1})
    rest = [span for span in record.spans if not span.timed]
    return changed(record, spans=(more, *others, *rest))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_an_untouched_record_stays_valid(workload: WorkloadName) -> None:
    assert failed(record_of(workload)) == set()


def test_a_failing_check_stored_as_passed_fails() -> None:
    record = wrong_bytes(record_of())
    assert next(c for c in record.checks if c.name == "bytes_add_up").verdict == "pass"
    assert "bytes_add_up" in failed(record)


def test_a_failing_check_that_was_removed_is_made_again() -> None:
    assert "bytes_add_up" in failed(without(wrong_bytes(record_of()), "bytes_add_up"))
    assert "bytes_add_up" in failed(changed(wrong_bytes(record_of()), checks=()))


@pytest.mark.parametrize(
    ("workload", "name"),
    [(workload, name) for workload in WORKLOADS for name in OF_WORKLOAD[workload]],
)
def test_a_check_that_only_the_workload_can_make_must_be_there(
    workload: WorkloadName, name: str
) -> None:
    assert failed(without(record_of(workload), name)) == {name}


def test_the_check_of_an_unfinished_run_need_not_be_there() -> None:
    record = changed(record_of(), status="aborted", status_reason="killed", checks=())
    assert failed(record) == set()


@pytest.mark.parametrize(
    ("workload", "name", "figures"),
    [
        ("unet3d", "cold_cache", {"resident_bytes": 4_000_000_000}),
        ("unet3d", "delivered_bytes", {"altered_samples": 1}),
        ("unet3d", "delivered_bytes", {"hashed_samples": 0, "expected_samples": 0}),
        ("unet3d", "delivered_bytes", {"hashed_samples": 7}),
        ("checkpoint", "checkpoint_durable", {"synced_files": 3}),
        ("checkpoint", "checkpoint_bytes_on_target", {"file_bytes": 4095}),
        ("checkpoint", "checkpoint_read_back", {"bad_blocks": 1}),
        ("checkpoint", "checkpoint_read_back", {"delivered_bytes": 4000}),
        ("dlrm", "dlrm_rows", {"parquet_row_count": 9}),
        ("dlrm", "dlrm_sample", {"different_count": 1}),
        ("dlrm", "dlrm_sample", {"compared_count": 0}),
        ("dlrm", "dlrm_sample", {"found_sha256": "ac"}),
        ("dlrm", "dlrm_tsv_bytes", {"read_bytes": 511}),
    ],
)
def test_a_workloads_check_turned_to_pass_is_refuted_by_its_figures(
    workload: WorkloadName, name: str, figures: Mapping[str, Any]
) -> None:
    record = record_of(workload)
    edited = with_check(record, name, figures={**figures_of(record, name), **figures})
    assert failed(edited) == {name}
    assert failed(with_check(edited, name, verdict="warn")) == {name}


def test_a_workloads_check_without_its_figures_proves_nothing() -> None:
    record = with_check(record_of(), "delivered_bytes", figures={})
    assert failed(record) == {"delivered_bytes"}
    assert failed(record, schema_version=2) == set()


@pytest.mark.parametrize(
    ("workload", "name"),
    [("unet3d", "delivered_bytes"), ("dlrm", "data_digests"), ("checkpoint", "cold_cache")],
)
def test_a_workloads_check_turned_to_not_checked_bars_the_verdict(
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
    undelivered = with_check(record, "delivered_bytes", verdict="not_checked", mandatory=False)
    by_dlio = record.workload.model_copy(update={"loader": "dlio"})
    assert "delivered_bytes" not in barred(changed(undelivered, workload=by_dlio))


@pytest.mark.parametrize(
    ("made_by", "loader"), [("files_verified", "dlio"), ("harness_bytes", "dlio")]
)
def test_a_check_that_only_one_loader_makes_is_missing_from_its_records_alone(
    made_by: str, loader: str
) -> None:
    record = record_of()
    assert made_by not in failed(record)
    other = record.workload.model_copy(update={"loader": loader})
    assert made_by in failed(changed(record, workload=other))


def test_a_check_that_one_setting_adds_is_missing_from_such_records_alone() -> None:
    record = record_of("checkpoint")
    assert failed(changed(record, config={"workload": {"protocol": "interleaved"}})) == set()
    by_rule = changed(record, config={"workload": {"protocol": "mlperf"}})
    assert failed(by_rule) == {"mlperf_read_start"}


NO_COUNTS = (None, -1, -0.5, float("nan"), float("inf"), -float("inf"), "", "0", "1", "pass")
EXTREMES = (True, False, 0, 0.5, 1e308, 2**63, 10**400)
CASES = [
    (workload, name, figure)
    for workload in WORKLOADS
    for name, figures in OF_WORKLOAD[workload].items()
    for figure in figures
    if figure not in {"altered_device_rows", "limit_fraction", "times_checked"}
]


@pytest.mark.parametrize(("workload", "name", "figure"), CASES)
def test_no_hostile_figure_supports_a_verdict(
    workload: WorkloadName, name: str, figure: str, tmp_path: Path
) -> None:
    """Each figure is replaced in a sealed file by what is no count, or removed; others are read."""
    write_record(record_of(workload), tmp_path)
    document = json.loads((tmp_path / RECORD_FILE).read_text())
    (check,) = (check for check in document["checks"] if check["name"] == name)
    true = check["figures"]
    for value in (*NO_COUNTS, *EXTREMES):
        check["figures"] = {**true, figure: value}
        judged = resealed(document, tmp_path)
        if value in NO_COUNTS:
            assert judged is None or name in failed(judged), value
    for figures in ({}, {key: true[key] for key in true if key != figure}):
        check["figures"] = figures
        judged = resealed(document, tmp_path)
        assert judged is not None
        assert name in failed(judged)


def resealed(document: Mapping[str, Any], folder: Path) -> RunRecord | None:
    """Return a sealed document as it is judged, ``None`` if it is refused in one sentence."""
    content = json.dumps({**document, "seal": BLANK}, indent=1).encode() + b"\n"
    content = content.replace(BLANK.encode(), str(seal_of(content)).encode())
    (folder / RECORD_FILE).write_bytes(content)
    try:
        return read_judged(folder).record
    except RecordError:
        return None


def test_a_record_relabelled_as_another_workload_contradicts_its_configuration() -> None:
    record = record_of()
    named = {"_target_": "wattload.workloads.unet3d.workload.Unet3d"}
    record = changed(record, config={**record.config, "workload": named})
    assert failed(record) == set()
    other = record.workload.model_copy(update={"name": "null"})
    assert "settings_agree" in failed(changed(record, workload=other, checks=()))


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_of_today_under_an_older_version_counts_as_edited(
    version: int, tmp_path: Path
) -> None:
    record = record_of()
    moment = record.hosts[0].before.clock
    host = record.hosts[0].model_copy(update={"clocks": (moment,)})
    write_record(changed(without(record, "written_extents"), hosts=(host,)), tmp_path)
    document = json.loads((tmp_path / RECORD_FILE).read_text())
    document["schema_version"] = version
    document["seal"] = None if version < SEALED_SINCE else BLANK
    content = json.dumps(document, indent=1).encode() + b"\n"
    if version >= SEALED_SINCE:
        content = content.replace(BLANK.encode(), str(seal_of(content)).encode())
    (tmp_path / RECORD_FILE).write_bytes(content)
    assert read_stored(tmp_path).seal == ("holds" if version >= SEALED_SINCE else "none")
    judged = read_judged(tmp_path)
    assert judged.seal == "broken"
    assert "written_extents" in {c.name for c in judged.record.checks if c.verdict == "fail"}


def test_what_a_check_of_today_needs_is_not_asked_of_an_older_record() -> None:
    record = without(record_of(), "step_times_close")
    (missing,) = (c for c in rechecked(record, 2).checks if c.name == "step_times_close")
    assert (missing.verdict, missing.mandatory) == ("not_checked", False)
    assert missing.sentence == "Records of schema version 2 did not have this check yet."
    assert failed(record) == {"step_times_close"}


def test_a_stored_failure_of_a_rule_that_is_gone_still_fails() -> None:
    old = Check(name="rule_of_last_year", verdict="fail", sentence="It did not hold.")
    record = record_of()
    assert failed(changed(record, checks=(*record.checks, old))) == {"rule_of_last_year"}


def test_a_record_of_an_unknown_workload_gets_no_verdict() -> None:
    record = record_of()
    other = changed(record, workload=record.workload.model_copy(update={"name": "os"}))
    (check,) = (c for c in rechecked(other).checks if c.name == "workload_checks")
    assert check.bars_verdict
    assert "does not have the run's workload" in check.sentence


@pytest.mark.parametrize("name", ["os", "", "..", "unet3d.config", "__init__", "unet3d/../null"])
def test_a_name_from_a_record_imports_nothing_but_a_workload(name: str) -> None:
    assert declared_checks(name) is None


def test_every_workload_declares_its_checks_under_its_own_name() -> None:
    for module in iter_modules(wattload.workloads.__path__):
        declared = declared_checks(module.name)
        assert declared is not None
        assert all(check.since <= SCHEMA_VERSION for check in declared.values())
        config, _ = compose([f"workload={module.name}", "target.path=/tmp"])
        assert workload_class(config).name == module.name


def test_every_check_that_is_made_outside_of_the_recomputed_ones_is_declared() -> None:
    """An undeclared check could be removed from a record, and nothing would miss it."""
    named = {
        module.name: set(declared_checks(module.name) or {})
        for module in iter_modules(wattload.workloads.__path__)
    }
    everywhere = set().union(*named.values())
    found = 0
    for folder in ("workloads", "loaders", "power", "wattload/run", "wattload/session"):
        for file in (ROOT / folder).rglob("*.py"):
            declared = named.get(file.parent.name, everywhere)
            for name in names_of_checks(file):
                found += 1
                starts = any(each.startswith(name) for each in declared)
                assert name in declared or (name.endswith("_") and starts), (file, name)
    assert found > 20


def names_of_checks(file: Path) -> Iterator[str]:
    """Yield the name of each check that a module makes; the beginning of a formatted name."""
    tree = ast.parse(file.read_text())
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


@pytest.mark.parametrize("version", [1, 2])
def test_records_of_older_versions_are_judged_by_what_those_required(version: int) -> None:
    judged = read_judged(GOLDEN / f"version-{version}.json")
    assert judged.schema_version == version
    # This made-up record never had the check, which real records of its version did.
    assert {c.name for c in judged.record.checks if c.verdict == "fail"} == {"delivered_bytes"}


def test_an_edited_record_is_judged_again_when_it_is_read(tmp_path: Path) -> None:
    write_record(without(wrong_bytes(record_of()), "bytes_add_up"), tmp_path)
    assert read_stored(tmp_path).seal == "holds"
    checks = {check.name: check.verdict for check in read_judged(tmp_path).record.checks}
    assert checks["bytes_add_up"] == "fail"


def _no_end(record: RunRecord) -> dict[str, Any]:
    return {"finished_utc": None}


def _no_state_after(record: RunRecord) -> dict[str, Any]:
    return {"hosts": tuple(host.model_copy(update={"after": None}) for host in record.hosts)}


def _no_ranks(record: RunRecord) -> dict[str, Any]:
    return {"ranks": ()}


@pytest.mark.parametrize("gap", [_no_end, _no_state_after, _no_ranks])
def test_a_failed_run_marked_complete_lacks_what_its_end_adds(gap: Any) -> None:
    record = record_of()
    assert "finished" in failed(changed(record, **gap(record)))
    unfinished = changed(record, status="failed", **gap(record))
    assert "finished" not in failed(unfinished)


def test_a_phase_that_was_removed_leaves_figures_behind() -> None:
    record = record_of("checkpoint")
    left = {
        name: tuple(each for each in getattr(record, name) if each.name != "read")
        for name in ("windows", "spans")
    }
    assert "phases_known" in failed(changed(record, **left))


DETAILS: Mapping[WorkloadName, Mapping[str, Any]] = {
    "unet3d": {
        "epoch_s": [4.0, 6.0],
        "accelerators": 2,
        "batch_samples": 7,
        "steps_per_epoch": 50,
        "epochs": 2,
        "record_mean_bytes_configured": 1e6,
        "dlio": {
            "train_au_percentage": [90.0, 92.0],
            "train_throughput_samples_per_second": [100.0, 300.0],
        },
    },
    "checkpoint": {"write_seconds": [1.0, 3.0], "read_seconds": [1.0, 1.0]},
    "dlrm": {
        "rounds": 2,
        "row_count": 1000,
        "tsv_bytes": 200_000,
        "tsv_to_parquet_round_s": [1.0, 3.0],
        "parquet_to_binary_round_s": [2.0, 2.0],
    },
}


def with_details(workload: WorkloadName, name: str, value: float) -> RunRecord:
    record = record_of(workload, details=DETAILS[workload])
    unit = Unit.BYTES if name.endswith("_bytes") else Unit.SECONDS
    metric = Metric.of(name, value, unit, "neither", "Made up.")
    return changed(record, metrics=(metric,))


@pytest.mark.parametrize(
    ("workload", "name", "value"),
    [
        ("unet3d", "samples_per_s", 140.0),
        ("unet3d", "au_dlio", 0.91),
        ("unet3d", "dlio_samples_per_s", 200.0),
        ("unet3d", "dlio_nominal_bytes_per_s", 2e8),
        ("checkpoint", "write_seconds_per_checkpoint", 2.0),
        ("checkpoint", "read_seconds_per_checkpoint", 1.0),
        ("dlrm", "conversion_s", 4.0),
        ("dlrm", "tsv_bytes_per_s", 50_000.0),
        ("dlrm", "rows_per_s", 250.0),
        ("dlrm", "tsv_to_parquet_s", 2.0),
        ("dlrm", "parquet_to_binary_s", 2.0),
    ],
)
def test_a_metric_that_follows_from_other_figures_is_computed_again(
    workload: WorkloadName, name: str, value: float
) -> None:
    record = with_details(workload, name, value)
    assert "metrics_close" not in failed(record)
    assert "metrics_close" in {check.name for check in rechecked(record).checks}
    assert "metrics_close" in failed(with_details(workload, name, value * 1.001))


def test_a_rate_over_other_seconds_than_those_of_its_phase_fails() -> None:
    record = record_of("checkpoint", details=DETAILS["checkpoint"])
    rate = record.moved_bytes("write", "written") / 4.0
    metric = Metric.of("write_bytes_per_s", rate, Unit.BYTES_PER_SECOND, "higher", "Made up.")
    assert "metrics_close" not in failed(changed(record, metrics=(metric,)))
    faster = metric.model_copy(update={"value": rate * 1.01})
    assert "metrics_close" in failed(changed(record, metrics=(faster,)))


@pytest.mark.parametrize("hostile", [[], ["1"], [0.0], "12", {}, 7, [None], [float("nan")]])
def test_details_of_another_type_or_missing_ones_fail_but_old_records_lack_them(
    hostile: object,
) -> None:
    record = with_details("checkpoint", "write_seconds_per_checkpoint", 2.0)

    def with_seconds(details: Mapping[str, Any]) -> RunRecord:
        workload = record.workload.model_copy(update={"details": details})
        return changed(record, workload=workload)

    assert "metrics_close" in failed(with_seconds({"write_seconds": hostile}))
    assert "metrics_close" in failed(with_seconds({}))
    old = rechecked(with_seconds({}), schema_version=2)
    assert "metrics_close" not in {check.name for check in old.checks}


def test_text_that_looks_like_a_number_is_not_multiplied() -> None:
    """A text of accelerators times a large batch would take all memory."""
    record = with_details("unet3d", "samples_per_s", 140.0)
    details = {**record.workload.details, "accelerators": "9", "batch_samples": 10**12}
    workload = record.workload.model_copy(update={"details": details})
    assert "metrics_close" in failed(changed(record, workload=workload))


def test_a_relabelled_record_contradicts_its_configuration() -> None:
    record = record_of()
    record = changed(record, config={**record.config, "label": record.label})
    assert failed(record) == set()
    assert failed(changed(record, label="other")) == {"settings_agree"}


def test_a_rate_that_its_bytes_and_seconds_deny_fails() -> None:
    record = record_of()
    metrics = tuple(
        metric.model_copy(update={"value": 2 * metric.value})
        if metric.name == "throughput_bytes_per_s" and metric.value is not None
        else metric
        for metric in record.metrics
    )
    assert "closure_throughput_bytes_per_s" in failed(changed(record, metrics=metrics))
