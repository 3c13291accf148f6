"""A run, a sampler or a run folder that dies or hangs: the drive is restored all the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.model_host.drive import ModelDrive, load, sent, store
from tests.model_host.host import RUN_ID
from tests.power.hanging_fuse import HangingFolder, hanging
from tests.power.sampler_bench import Bench, is_running, restore_slowly, wait_for
from wattload.core.errors import PowerError
from wattload.core.record.file import RECORD_FILE
from wattload.power.config import PowerConfig
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal
from wattload.power.control.undo import recover_changes
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.samples import read_samples


def wait_for_record(bench: Bench) -> None:
    wait_for((bench.run / RECORD_FILE).exists)


def test_killed_process_group_leaves_an_aborted_record_and_the_old_state(bench: Bench) -> None:
    client = bench.killable_client()
    os.killpg(client.pid, signal.SIGKILL)
    wait_for_record(bench)
    assert bench.state() == 0
    record = bench.record()
    assert record.status == "aborted"
    assert record.status_reason.startswith(
        "the run's process was killed or crashed; run the same command again"
    )
    assert record.finished_utc is not None
    (state,) = [each for each in record.power.states if each.serial == "MODEL0001"]
    assert (state.requested, state.verified, state.after, state.restored) == (1, 1, 1, 0)
    assert list(read_samples(bench.run / "samples-host-1.jsonl"))
    assert not list((bench.models / "state").glob("*.run.json"))


def test_worker_that_outlives_the_run_does_not_hide_its_death(bench: Bench) -> None:
    client = bench.killable_client("--with-worker")
    os.kill(client.pid, signal.SIGKILL)
    wait_for_record(bench)
    assert bench.state() == 0
    os.killpg(client.pid, signal.SIGKILL)


def test_signals_to_the_run_s_group_do_not_reach_the_sampler(bench: Bench) -> None:
    client = bench.killable_client()
    os.killpg(client.pid, signal.SIGINT)
    wait_for_record(bench)
    assert bench.state() == 0
    assert bench.record().status == "aborted"


@pytest.mark.parametrize("has_service", [False, True])
def test_a_run_that_ends_between_its_abort_and_its_record_gets_one(
    bench: Bench, has_service: bool
) -> None:
    client = bench.spawn(bench.service() if has_service else None)
    client.open(RUN_ID, PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    client.abort()
    client.close()
    wait_for_record(bench)
    (state,) = [each for each in bench.record().power.states if each.serial == "MODEL0001"]
    assert (state.requested, state.restored) == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ending_signal_restores_and_leaves_the_record_to_the_run(
    bench: Bench, number: signal.Signals
) -> None:
    client = bench.opened(PowerConfig(state=1))
    client.start()
    os.kill(client.pid, number)
    wait_for(lambda: bench.state() == 0)
    with pytest.raises(PowerError, match="the sampler ended with status 0 before it answered"):
        client.finish()
    client.close()
    assert not (bench.run / RECORD_FILE).exists()


def test_second_signal_does_not_interrupt_the_restore(bench: Bench) -> None:
    client = bench.opened(PowerConfig(state=1))
    restore_slowly(bench)
    os.kill(client.pid, signal.SIGTERM)
    wait_for(lambda: sent(bench.models)[-1] == "0x2 0")
    os.kill(client.pid, signal.SIGTERM)
    wait_for(lambda: not is_running(client))
    assert bench.state() == 0


def test_idle_sampler_ends_at_once(bench: Bench) -> None:
    client = bench.spawn()
    with pytest.raises(PowerError, match="send open first"):
        client.start()
    os.kill(client.pid, signal.SIGTERM)
    wait_for(lambda: not is_running(client))
    with pytest.raises(PowerError, match="the sampler ended with status 0 before it answered"):
        client.start()


def test_killed_sampler_is_an_error_and_its_state_can_be_recovered(bench: Bench) -> None:
    client = bench.opened(PowerConfig(state=1))
    client.start()
    os.kill(client.pid, signal.SIGKILL)
    wait_for(lambda: not is_running(client))
    with pytest.raises(PowerError, match=r"ended with status -9 before it answered finish.*log"):
        client.finish()
    assert bench.state() == 1
    journal = ChangeJournal(bench.models / "state")
    host = PowerHost(
        journal=journal,
        open_device=lambda name: ModelDrive(bench.models, name),
        list_names=lambda: ["nvme0"],
    )
    undone = recover_changes(host)
    assert [each.restored for each in undone] == [0]
    assert bench.state() == 0


def test_sampler_with_a_bug_restores_before_it_ends(bench: Bench) -> None:
    client = bench.opened(PowerConfig(state=1, period_s=0.02))
    client.start()
    model = load(bench.models / "nvme0.json")
    model.crashes = (0x02,)
    store(bench.models / "nvme0.json", model)
    wait_for(lambda: not is_running(client))
    assert bench.state() == 0
    assert not (bench.run / RECORD_FILE).exists()  # the run lives, and writes its own
    log = bench.folder / "sampler.log"
    wait_for(lambda: "ZeroDivisionError: a bug" in log.read_text())
    with pytest.raises(PowerError, match="the sampler ended with status 1"):
        client.finish()


def test_run_without_a_draft_is_undone_anyway(bench: Bench) -> None:
    (bench.run / "draft.json").unlink()
    client = bench.killable_client()
    os.killpg(client.pid, signal.SIGKILL)
    wait_for(lambda: bench.state() == 0)
    wait_for(lambda: "has no record" in (bench.folder / "sampler.log").read_text())
    assert not (bench.run / RECORD_FILE).exists()


def test_spawned_sampler_has_its_own_session_and_no_descriptor_of_the_run(bench: Bench) -> None:
    with (bench.folder / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        client = bench.spawn()
        with pytest.raises(PowerError, match="there is no run"):  # it serves from here on
            client.start()
        links = [str(each.readlink()) for each in Path(f"/proc/{client.pid}/fd").iterdir()]
    assert os.getsid(client.pid) == client.pid != os.getsid(0)
    assert str(bench.folder / "open") not in links
    own = {"/dev/null", str(bench.folder / "sampler.log")}
    assert {link for link in links if link.startswith("/")} <= own


def test_a_sampler_that_was_never_to_begin_leaves_no_trace(tmp_path: Path) -> None:
    """Its run has failed before it knew whether this process leads its host."""
    runs, log = tmp_path / "runs", tmp_path / "state/sampler.log"
    with SamplerClient.spawn(runs, log, waits=True) as client:
        assert is_running(client)
    wait_for(lambda: not is_running(client))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def hung(bench: Bench) -> Iterator[HangingFolder]:
    folder = bench.runs / "mine"
    folder.mkdir()
    with hanging(folder, owner=0) as mounted:
        yield mounted


@pytest.mark.parametrize("has_service", [False, True])
def test_a_run_on_a_file_system_that_hangs_is_restored_and_its_samples_count_as_lost(
    bench: Bench, hung: HangingFolder, has_service: bool
) -> None:
    client = bench.spawn(bench.service() if has_service else None)
    config = PowerConfig(state=1, period_s=0.02)
    client.open("mine", config, devices=["nvme0"], block_devices=[])
    client.start()
    time.sleep(0.2)
    hung.hang()
    time.sleep(0.2)
    finished = client.finish()
    assert finished.states[0].restored == 0
    assert finished.cost is not None
    assert finished.cost.lost_sample_count > 0
    assert bench.state() == 0
    hung.unmount()


def test_the_end_of_a_run_on_a_file_system_that_hangs_restores_the_drive(
    bench: Bench, hung: HangingFolder
) -> None:
    client = bench.spawn()
    config = PowerConfig(state=1, period_s=0.02)
    client.open("mine", config, devices=["nvme0"], block_devices=[])
    client.start()
    hung.hang()
    Thread(target=client.close, daemon=True).start()  # waits for the sampler
    wait_for(lambda: bench.state() == 0)
    hung.unmount()
    wait_for(lambda: not is_running(client))
