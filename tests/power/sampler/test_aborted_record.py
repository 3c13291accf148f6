"""Records of runs that ended without one, also in folders that other users may write to."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.records import Scenario, make_run
from tests.second_user import OTHER, as_other, need_second_user, shared_folder
from wattload.core.errors import RecordError
from wattload.core.files import Folder, choose_folder, open_folder
from wattload.core.record import file as record_file
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.file import DRAFT_FILE, RECORD_FILE, read_record
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import Status
from wattload.power.sampler.aborted_record import finish_abandoned, finish_in, read_journals

SPAN = PhaseSpan(
    name="read", parent=None, host="h", rank=0, timed=True, start_ns=1, end_ns=5, read_bytes=7,
    written_bytes=0, operations=1, cpu_s=0.0,
)  # fmt: skip


def state(serial: str, restored: int) -> PowerStateRecord:
    return PowerStateRecord(
        host="h", serial=serial, requested=1, before=0, verified=1, after=1, restored=restored,
        sentence="it was put back", saved=0, saved_after=0, knob="power.state",
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    record, _ = make_run(Scenario())
    power = record.power.model_copy(update={"states": (state("A", 5), state("B", 6))})
    draft = record.model_copy(update={"spans": (), "limits": ("a limit",), "power": power})
    (tmp_path / "draft.json").write_text(draft.model_dump_json())
    return tmp_path


def finish(run: Path, status: Status, reason: str, states: Sequence[PowerStateRecord] = ()) -> None:
    with open_folder(run) as folder:
        finish_in(folder, status, reason, states=states)


def journal(run: Path, rank: int, *events: dict[str, object]) -> None:
    text = "".join(json.dumps(event) + "\n" for event in events)
    (run / f"journal-{rank}.jsonl").write_text(text)


def span(**changes: object) -> dict[str, object]:
    return {"event": "span", "time_ns": 9, **SPAN.model_dump(), **changes}


def begin(name: str, parent: str | None = None) -> dict[str, object]:
    return {"event": "begin", "name": name, "parent": parent, "time_ns": 1, "rank": 0}


def test_record_is_the_draft_with_what_the_ranks_did(run: Path) -> None:
    journal(run, 0, begin("read"), span())
    journal(run, 1, span(rank=1), {"event": "something else"})
    finish(run, "aborted", "killed")
    record = read_record(run)
    assert (record.status, record.status_reason) == ("aborted", "killed")
    assert record.finished_utc is not None
    assert record.spans == (SPAN, SPAN.model_copy(update={"rank": 1}))
    assert record.limits == ("a limit",)


def test_states_replace_the_draft_s_by_serial(run: Path) -> None:
    finish(run, "failed", "x", [state("B", 0)])
    assert [(each.serial, each.restored) for each in read_record(run).power.states] == [
        ("A", 5),
        ("B", 0),
    ]


def test_existing_record_is_left_alone(run: Path) -> None:
    (run / RECORD_FILE).write_text("mine")
    finish(run, "aborted", "killed")
    assert (run / RECORD_FILE).read_text() == "mine"


@pytest.mark.parametrize("text", [None, "", "{", "{}"])
def test_run_without_a_draft_is_an_error(run: Path, text: str | None) -> None:
    draft = run / "draft.json"
    draft.unlink() if text is None else draft.write_text(text)
    with pytest.raises(RecordError):
        finish(run, "aborted", "killed")
    assert not (run / RECORD_FILE).exists()


def test_open_phases_are_limits_and_never_zeros(run: Path) -> None:
    journal(run, 0, begin("epoch"), begin("read", "epoch"), span(parent="epoch"))
    journal(run, 3, begin("read"), begin("read"), span(rank=3))
    finish(run, "aborted", "killed")
    record = read_record(run)
    assert len(record.spans) == 2
    assert record.limits[-1] == (
        "The run ended with rank 0 in phase epoch, rank 3 in phase read: "
        "how much moved there is unknown."
    )


def test_cut_last_line_is_left_out(run: Path) -> None:
    whole = json.dumps(span())
    (run / "journal-0.jsonl").write_text(f"{whole}\n{whole[:-5]}")
    with open_folder(run) as folder:
        reported = read_journals(folder)
    assert reported.spans == [SPAN]
    assert reported.unreadable == []


def test_damaged_lines_are_named_and_the_others_kept(run: Path) -> None:
    text = "\n".join(["{", "[]", json.dumps(span(read_bytes=-1)), json.dumps(span()), ""])
    (run / "journal-0.jsonl").write_text(text)
    (run / "journal-1.jsonl").mkdir()
    finish(run, "aborted", "killed")
    record = read_record(run)
    assert record.spans == (SPAN,)
    assert record.limits[-1] == (
        "These journals of ranks could not be read: journal-0.jsonl, line 1, "
        "journal-0.jsonl, line 2, journal-0.jsonl, line 3, journal-1.jsonl."
    )


def test_first_failure_by_the_clock_is_the_run_s(run: Path) -> None:
    for rank, time_ns in ((0, 30), (2, 25), (10, 20)):
        journal(
            run,
            rank,
            {"event": "failed", "time_ns": time_ns, "status": "failed", "reason": f"rank {rank}"},
        )
    finish(run, "aborted", "killed")
    record = read_record(run)
    assert (record.status, record.status_reason) == ("failed", "rank 10")


@pytest.mark.parametrize("damage", [{"time_ns": None}, {"time_ns": "1"}, {"reason": None}])
def test_failure_without_a_time_or_a_reason_is_named_as_unreadable(
    run: Path, damage: dict[str, object]
) -> None:
    failure = {"event": "failed", "time_ns": 20, "status": "failed", "reason": "the disk is full"}
    journal(run, 0, {**failure, **damage}, failure)
    finish(run, "aborted", "killed")
    record = read_record(run)
    assert (record.status, record.status_reason) == ("failed", "the disk is full")
    assert record.limits[-1].endswith("could not be read: journal-0.jsonl, line 1.")


def test_lines_that_are_unreadable_are_named_and_no_more_than_twenty(run: Path) -> None:
    text = "\n".join(["[" * 100_000, *["{"] * 31, json.dumps(span()), ""])
    (run / "journal-0.jsonl").write_text(text)
    finish(run, "aborted", "killed")
    record = read_record(run)
    assert len(record.spans) == 1
    assert "line 1, journal-0.jsonl, line 2" in record.limits[-1]
    assert record.limits[-1].endswith("line 20, 12 more.")


def test_what_became_of_a_setting_is_in_the_reason(run: Path) -> None:
    unchanged = state("A", 0)
    missing = {name: why for name, why in unchanged.missing.items() if name != "knob"}
    changed = unchanged.model_copy(update={"knob": "power.state", "missing": missing})
    finish(run, "aborted", "killed", [changed])
    assert read_record(run).status_reason == "killed. it was put back"


MARKS = (record_file.LOCK_FILE, record_file.OWNER_FILE, record_file.RESERVE_FILE)


def left(runs: Path, name: str) -> Path:
    """Make the folder of a run that was killed together with its sampler."""
    record, _ = make_run(Scenario(run_id=name.strip(".")))
    with choose_folder(runs) as above, above.make(name) as folder:
        record_file.write_owner(folder)
        folder.write(DRAFT_FILE, record.model_copy(update={"spans": ()}).model_dump_json())
        folder.write(record_file.RESERVE_FILE, "")
        folder.lock(record_file.LOCK_FILE).release()
    return runs / name


def test_what_others_plant_among_the_runs_keeps_none_from_its_record() -> None:
    need_second_user()
    with shared_folder() as runs:

        def plant() -> None:
            for name in ("0", ".0.new"):
                (runs / name).mkdir(mode=0)
                (runs / f"1{name}").mkdir()
                os.mkfifo(runs / f"1{name}" / DRAFT_FILE)
                (runs / f"2{name}").symlink_to("/proc/self/fd")
                (runs / f"3{name}").symlink_to(runs / f"3{name}")

        as_other(plant)
        folder = left(runs, "run")
        unborn = left(runs, ".run.new")
        # This one may not look into the folders of the other, as root may.
        os.chown(runs, 0, 0)
        runs.chmod(0o1777)
        assert finish_abandoned([runs])[folder] == ""
        assert read_record(folder).status == "aborted"
        assert not unborn.exists()


def test_a_closed_folder_hides_no_other_run() -> None:
    need_second_user()
    with shared_folder() as runs:
        (runs / "0").mkdir(mode=0)

        def find() -> None:
            folder = left(runs, "run")
            assert record_file.unfinished_runs([runs, runs / "0"]) == [folder]
            assert finish_abandoned([runs, runs / "0" / "below"]) == {folder: ""}

        as_other(find)


def test_a_run_s_folder_that_is_replaced_meanwhile_gets_its_own_record_and_no_other(
    tmp_path: Path,
) -> None:
    """The owner of the runs folder may rename whatever is in it, also while root works there."""
    need_second_user()
    victim = left(tmp_path, "victim")
    with shared_folder() as runs:
        os.chown(runs, OTHER, OTHER)
        folder = left(runs, "run")

        def swap() -> None:
            folder.rename(runs / "moved")
            folder.symlink_to(victim)

        with record_file.abandoned(folder) as opened:
            as_other(swap)
            assert isinstance(opened, Folder)
            finish_in(opened, "aborted", "killed")
        assert read_record(runs / "moved").status == "aborted"
        assert {path.name for path in victim.iterdir()} == {DRAFT_FILE, *MARKS}


@pytest.mark.parametrize("name", ["run", ".run.new"])
def test_a_folder_of_root_is_not_touched_for_another_user(name: str) -> None:
    need_second_user()
    with shared_folder() as runs:
        folder = left(runs, name)
        as_other(lambda: finish_abandoned([runs, folder]))
        assert {path.name for path in folder.iterdir()} == {DRAFT_FILE, *MARKS}
