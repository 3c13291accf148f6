"""What the preflight refuses, before a byte is written."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.context import directory_target
from tests.records import Scenario, make_run
from tests.tinyfs import tiny_file_system
from wattload.core.errors import ConfigError, TargetError, WattloadError
from wattload.core.record.target import BlockNode, NodeKind
from wattload.core.storage.targets import resolve_targets
from wattload.core.units import TB
from wattload.core.workload import WorkloadPlan
from wattload.run.compose import compose, require_hosts
from wattload.run.config import RunConfig
from wattload.run.preflight import (
    WriteLedger,
    finished_writes,
    hosts_text,
    preflight,
    require_controllers,
    require_own_meters,
    require_trace,
    space_of,
    waits_text,
    writes_of,
)

NOTHING = WorkloadPlan(
    data_bytes=0,
    prepare_bytes=0,
    run_bytes=0,
    peak_bytes=0,
    memory_bytes_per_rank=0,
    needs_direct_io=False,
)


def _config(path: Path, *overrides: str) -> RunConfig:
    return compose([f"target.path={path}", "workload=null", *overrides])[0]


def _refusal(path: Path, plan: WorkloadPlan, *overrides: str, ranks: int = 1) -> str:
    with pytest.raises(WattloadError) as caught:
        preflight(_config(path, *overrides), [directory_target(path)], plan, ranks)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_the_mount_point_above_a_target_is_announced(tmp_path: Path) -> None:
    config = _config(tmp_path)
    targets = config.target.resolve(host="box", try_direct_io=False)
    above = subprocess.check_output(["stat", "--format=%m", tmp_path], text=True).strip()
    (line,) = preflight(config, targets, NOTHING, 1)[:1]
    assert line.endswith(f", mounted at {above}: writes nothing")


def test_a_plan_that_fits_is_announced_with_its_shares(tmp_path: Path) -> None:
    plan = replace(NOTHING, prepare_bytes=10**6, run_bytes=10**6, peak_bytes=10**6)
    lines = preflight(_config(tmp_path), [directory_target(tmp_path)], plan, 1)
    assert lines[0].startswith(f"target {tmp_path} on ")
    assert "writes 2.00 MB, takes up to 1.00 MB of " in lines[0]
    assert "drive writes" not in lines[0]
    wearing = replace(plan, run_bytes=space_of(directory_target(tmp_path)).total_bytes // 2)
    lines = preflight(_config(tmp_path), [directory_target(tmp_path)], wearing, 1)
    assert "(0.5 drive writes)" in lines[0]


def test_more_files_than_free_inodes_are_refused(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    if not status.f_files:
        pytest.skip("this file system has no fixed number of inodes")
    refused = _refusal(tmp_path, replace(NOTHING, prepare_files=status.f_files))
    assert f"free inodes, but the run creates {status.f_files} files; use a smaller" in refused
    few = replace(NOTHING, prepare_files=status.f_favail // 2)
    assert preflight(_config(tmp_path), [directory_target(tmp_path)], few, 1)


def test_five_percent_of_the_file_system_stay_free(tmp_path: Path) -> None:
    target = directory_target(tmp_path)
    space = space_of(target)
    room = space.available_bytes - int(0.05 * space.total_bytes)
    above = replace(NOTHING, peak_bytes=room + space.total_bytes // 100)
    assert "stay free" in _refusal(tmp_path, above)
    present = replace(above, present_bytes=space.total_bytes // 50)
    assert preflight(_config(tmp_path), [target], present, 1)


def test_all_that_is_wrong_is_listed_at_once(tmp_path: Path) -> None:
    large = replace(NOTHING, peak_bytes=1 << 60, memory_bytes_per_rank=1 << 60, maximum_ranks=1)
    with pytest.raises(ConfigError) as caught:
        preflight(_config(tmp_path), [directory_target(tmp_path)], large, 2)
    assert "at most 1 process, got" in str(caught.value)
    space, memory = caught.value.__notes__
    assert "must stay free" in space
    assert "the buffers of 2 processes need" in memory


def test_data_that_lies_there_already_needs_no_new_room(tmp_path: Path) -> None:
    target = directory_target(tmp_path)
    total = space_of(target).total_bytes
    reused = replace(NOTHING, data_bytes=total, prepare_bytes=0, peak_bytes=total)
    assert preflight(_config(tmp_path), [target], reused, 1)


def test_more_than_a_capacity_of_writes_needs_a_word(tmp_path: Path) -> None:
    writes = replace(NOTHING, run_bytes=11 * TB)
    text = _refusal(tmp_path, writes)
    assert f"target.max_write_bytes={11 * TB}" in text
    assert re.search(r"more than (its capacity, )?the limit without confirmation \(", text)
    allowed = _config(tmp_path, f"target.max_write_bytes={11 * TB}")
    assert preflight(allowed, [directory_target(tmp_path)], writes, 1)
    assert "target.max_write_bytes=5" in _refusal(tmp_path, writes, "target.max_write_bytes=5")


def test_writes_of_all_runs_of_a_command_are_summed_by_drive(tmp_path: Path) -> None:
    here, elsewhere = directory_target(tmp_path), directory_target(Path("/tmp"))
    config = _config(tmp_path, "target.max_write_bytes=100")
    plan = replace(NOTHING, prepare_bytes=30, run_bytes=30)
    ledger = WriteLedger()
    assert preflight(config, [here], plan, 1, ledger)
    ledger.add([here], writes_of(plan))
    with pytest.raises(ConfigError) as caught:
        preflight(config, [here], plan, 1, ledger)
    assert "writes 120 B (60 B of it earlier)" in str(caught.value)
    assert "target.max_write_bytes=120 allows it" in str(caught.value)
    assert preflight(config, [elsewhere], plan, 1, ledger)


def test_a_copy_of_a_ledger_is_charged_alone(tmp_path: Path) -> None:
    target = directory_target(tmp_path)
    ledger = WriteLedger()
    ledger.add([target, target], 5)
    copied = ledger.copy()
    copied.add([target], 7)
    assert (ledger.written_bytes(target), copied.written_bytes(target)) == (5, 12)


def test_a_drive_under_two_targets_is_charged_for_both(tmp_path: Path) -> None:
    target = directory_target(tmp_path)
    alone = replace(target, facts=target.facts.model_copy(update={"devices": ("a",)}))
    striped = replace(target, facts=target.facts.model_copy(update={"devices": ("a", "b")}))
    ledger = WriteLedger()
    ledger.add([striped], 5)
    ledger.add([alone], 7)
    assert ledger.written_bytes(alone) == ledger.written_bytes(striped) == 12
    both = WriteLedger()
    both.add([striped, alone], 3)
    assert both.written_bytes(striped) == 3


def test_a_run_that_is_done_is_charged_with_what_its_ranks_counted(tmp_path: Path) -> None:
    record, _ = make_run(Scenario(workload="checkpoint"))
    (facts,) = [target.facts for target in record.targets]
    target = replace(directory_target(tmp_path), facts=facts)
    ledger = WriteLedger()
    ledger.charge(*finished_writes(record, "renamed"))
    written = sum(span.written_bytes for span in record.spans)
    assert ledger.written_bytes(target) == written > 0


@pytest.mark.parametrize("shared", [False, True])
def test_a_run_over_hosts_is_charged_to_each_of_its_drives(tmp_path: Path, shared: bool) -> None:
    record, _ = make_run(Scenario(workload="checkpoint"))
    there = [
        span.model_copy(update={"host": "other", "written_bytes": 2 * span.written_bytes})
        for span in record.spans
    ]
    both = record.model_copy(
        update={
            "hosts": (*record.hosts, *record.hosts),
            "spans": (*record.spans, *there),
            "config": {**record.config, "target": {"shared": shared}},
        }
    )
    (facts,) = [target.facts for target in record.targets]
    target = replace(directory_target(tmp_path), facts=facts)
    ledger = WriteLedger()
    ledger.charge(*finished_writes(both, facts.host))
    written = sum(span.written_bytes for span in record.spans)
    assert ledger.written_bytes(target) == (3 if shared else 1) * written


@pytest.mark.parametrize(("least", "most", "ranks"), [(4, None, 2), (1, 2, 3)])
def test_process_counts_that_do_not_fit_are_refused(
    tmp_path: Path, least: int, most: int | None, ranks: int
) -> None:
    plan = replace(NOTHING, minimum_ranks=least, maximum_ranks=most)
    assert f"got {ranks}" in _refusal(tmp_path, plan, ranks=ranks)


def test_a_target_that_refuses_direct_io_names_what_else_works(tmp_path: Path) -> None:
    target = replace(
        directory_target(tmp_path), direct_io=None, direct_io_missing="the file system refuses it"
    )
    plan = replace(NOTHING, needs_direct_io=True)
    with pytest.raises(TargetError, match="loader=torch"):
        preflight(_config(tmp_path), [target], plan, 1)


def test_full_scale_on_the_root_file_system_is_refused(tmp_path: Path) -> None:
    (target,) = resolve_targets([tmp_path], host="box")
    system = target.facts.file_system
    assert system is not None
    facts = target.facts.model_copy(
        update={"file_system": system.model_copy(update={"is_root": True})}
    )
    with pytest.raises(ConfigError, match="root file system"):
        preflight(_config(tmp_path, "scale=full"), [replace(target, facts=facts)], NOTHING, 1)


@pytest.mark.parametrize(
    ("override", "refused"),
    [
        ("power=nvme", "power=nvme is not available"),
        ("power.beside=[nvme]", r"power\.beside=\[nvme\] is not available"),
        ("power.state=1", r"power\.state=1 is not available"),
        ("power.apst=false", r"power\.apst=false is not available"),
        ("power=auto", ""),
    ],
)
def test_what_only_an_nvme_drive_can_do_is_refused_without_one(
    tmp_path: Path, override: str, refused: str
) -> None:
    target = directory_target(tmp_path)
    power = _config(tmp_path, "power=none" if "beside" in override else override).power
    if "beside" in override:
        power = replace(power, source="rapl", beside=["nvme"])
    if not refused:
        require_controllers(power, [target])
        return
    with pytest.raises(ConfigError, match=f"^{refused}: there is no NVMe controller"):
        require_controllers(power, [target])
    facts = target.facts.model_copy(update={"stack": _node("controller", "nvme0")})
    require_controllers(power, [replace(target, facts=facts)])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("power=nvme",), "idle 60 s, rest 30 s, idle after 30 s, quiet 2 x 60 s"),
        (("power=auto", "power.idle_s=5"), "idle 5 s, rest 30 s"),
        (("power=none",), ""),
    ],
)
def test_what_a_run_waits_for_is_said_before_it(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    text = waits_text(_config(tmp_path, *words).power, [directory_target(tmp_path)])
    assert text == (said and f"where a drive's power is measured: {said}")


def test_a_trace_that_can_not_be_replayed_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    words = ["power=replay", f"power.replay.path={trace}"]
    for text, said, more in (
        ("# volts: 12\ntime_s,power_w\n0,5\n", "unknown head line 'volts'", ""),
        (
            "# evidence: measured\ntime_s,power_w\n0,5\n",
            "needs a column unix_s",
            "power.replay.align=wall",
        ),
    ):
        trace.write_text(text)
        with pytest.raises(WattloadError, match=said):
            require_trace(_config(tmp_path, *words, *filter(None, [more])).power)
    trace.write_text("# evidence: measured\ntime_s,power_w\n0,5\n")
    require_trace(_config(tmp_path, *words).power)


def _node(kind: NodeKind, name: str, *children: BlockNode) -> BlockNode:
    unknown = ("major_minor", "size_bytes", "model", "serial", "redundancy", "queue")
    return BlockNode(
        kind=kind,
        name=name,
        children=children,
        **dict.fromkeys(unknown),
        missing=dict.fromkeys(unknown, "made up"),
    )


@pytest.mark.parametrize(
    ("kind", "shared", "refused"),
    [
        ("loop", ("/",), True),
        ("loop", ("/data",), False),
        ("partition", ("/",), False),
    ],
)
def test_full_scale_in_a_file_on_the_root_disk_is_refused(
    tmp_path: Path, kind: NodeKind, shared: tuple[str, ...], refused: bool
) -> None:
    target = directory_target(tmp_path)
    facts = target.facts.model_copy(
        update={"stack": _node(kind, "top", _node("virtio", "vda")), "shared_with": shared}
    )
    target = replace(target, facts=facts)
    assert preflight(_config(tmp_path, "scale=quick"), [target], NOTHING, 1)
    if refused:
        with pytest.raises(ConfigError, match="in a file on the disk of the root file system"):
            preflight(_config(tmp_path, "scale=full"), [target], NOTHING, 1)
    else:
        assert preflight(_config(tmp_path, "scale=full"), [target], NOTHING, 1)


def test_processes_of_a_job_and_of_a_host_are_counted_apart(tmp_path: Path) -> None:
    """Twelve processes on three hosts, each of which does the whole job."""
    config, targets = _config(tmp_path), [directory_target(tmp_path)]
    assert preflight(
        config, targets, replace(NOTHING, maximum_ranks=4), 12, job_ranks=4, host_ranks=4
    )
    with pytest.raises(ConfigError, match="at most 3 processes on each host, got 4"):
        preflight(config, targets, replace(NOTHING, maximum_ranks=3), 12, job_ranks=4, host_ranks=4)
    some = replace(NOTHING, memory_bytes_per_rank=1 << 60)
    with pytest.raises(ConfigError, match="the buffers of 4 processes need"):
        preflight(config, targets, some, 12, job_ranks=4, host_ranks=4)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ([], "a drive each: each host does the whole job; sizes are those of a"),
        (["workload=unet3d"], "a drive each: 12 processes do one job together; sizes are those of"),
        (["target.shared=true"], "one shared folder: 12 processes do one job together"),
    ],
)
def test_hosts_are_announced_with_what_they_do(
    tmp_path: Path, overrides: list[str], text: str
) -> None:
    config = _config(tmp_path, *overrides)
    require_hosts(config, ("a", "b", "c"))
    assert hosts_text(config, ("a", "b", "c"), 12).startswith(f"3 (a, b, c), {text}")


def test_a_workload_of_one_host_is_refused_on_several(tmp_path: Path) -> None:
    config = _config(tmp_path, "workload=gnn")
    require_hosts(config, ("a",))
    with pytest.raises(ConfigError) as refused:
        require_hosts(config, ("a", "b"))
    assert str(refused.value) == (
        "workload=gnn runs on one host, and the processes are on 2 (a, b); start all of them on "
        "one, for example with --hosts a:2"
    )


def test_full_scale_in_a_real_file_on_the_root_disk_is_refused(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as folder:
        (target,) = resolve_targets([folder], host="box")
        system = target.facts.file_system
        if system is None or system.type == "tmpfs" or "/" not in target.facts.shared_with:
            pytest.skip("no loop device mounts here, or the temporary folder is on another disk")
        with pytest.raises(
            ConfigError, match=r"through a loop device\), where scale=full is not allowed"
        ):
            preflight(_config(folder, "scale=full"), [target], NOTHING, 1)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("power=snmp", "power.snmp.outlets=[pdu.example/7]"), "snmp"),
        (("power.beside=[redfish]", "power.redfish.url=https://bmc.example"), "redfish"),
        (("power=quarch", "power.quarch.module=tcp::qtl1999-02-020"), ""),
        (("power.beside=[ipmi]",), ""),
    ],
)
def test_a_node_meter_is_not_read_by_several_hosts(
    tmp_path: Path, words: tuple[str, ...], refused: str
) -> None:
    power = _config(tmp_path, *words).power
    require_own_meters(power, ["one"])
    if not refused:
        require_own_meters(power, ["one", "two"])
        return
    with pytest.raises(ConfigError, match=rf"^{refused} is one meter, and 2 hosts \(one, two\)"):
        require_own_meters(power, ["one", "two"])
