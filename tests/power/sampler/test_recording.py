from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from tests.model_host.drive import NOT_CHANGEABLE, Model, RawState, sent, store
from tests.power.sampler_bench import RUN_ID, Bench, is_running, wait_for
from wattload.core.errors import ConfigError, PowerError, PowerStateError
from wattload.core.power import Channel
from wattload.core.record.file import RECORD_FILE
from wattload.power.config import DeclaredProfile, PowerConfig
from wattload.power.control.journal import ChangeJournal
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.recording import Recording
from wattload.power.sampler.samples import SampleFile, read_samples

MakeBench = Callable[..., Bench]


def a_disk() -> str:
    disks = (path.parent.name for path in Path("/sys/class/block").glob("*/stat"))
    return next(iter(sorted(disks)))


def test_a_run_from_hello_to_finish(bench: Bench) -> None:
    client = bench.spawn()
    disk = a_disk()
    opened = client.open(
        RUN_ID, PowerConfig(period_s=0.02, state=1), devices=["nvme0"], block_devices=[disk]
    )
    assert bench.state() == 1
    assert "took nvme for nvme0" in opened.choice
    assert [source.used for source in opened.sources if source.name == "nvme"] == [True]
    (state,) = opened.states
    assert (state.serial, state.before, state.requested, state.verified) == ("MODEL0001", 0, 1, 1)
    reading = opened.controllers["nvme0"]
    assert reading.fields["power_state"] == 0
    assert reading.fields["smart"]["temperature_k"] == 310
    assert reading.power_states is not None
    assert [each.max_w for each in reading.power_states] == [25.0, 18.0, 11.0, 4.0, 0.05]
    client.start()
    wait_for(lambda: bench.round_count() >= 5)
    finished = client.finish()
    assert bench.state() == 0
    (state,) = finished.states
    assert (state.after, state.restored) == (1, 0)
    assert "restored to 0" in state.sentence
    assert finished.controllers["nvme0"].fields["power_state"] == 1
    samples = list(read_samples(bench.samples))
    assert finished.cost is not None
    assert len(samples) == finished.cost.sample_count
    assert finished.cost.lost_sample_count == 0
    channels = {(sample.device, sample.channel) for sample in samples}
    assert channels == {
        ("MODEL0001", Channel.POWER_STATE),
        ("MODEL0001", Channel.UPPER_W),
        ("MODEL0001", Channel.LOWER_W),
        ("MODEL0001", Channel.TEMPERATURE_K),
        ("MODEL0001", Channel.HOST_WRITTEN_BYTES),
        ("MODEL0001", Channel.THERMAL_TRANSITIONS),
        ("MODEL0001", Channel.THROTTLED_S),
        (disk, Channel.READ_BYTES),
        (disk, Channel.WRITTEN_BYTES),
    }
    assert {s.value for s in samples if s.channel is Channel.UPPER_W} == {18.0}
    assert not (bench.run / RECORD_FILE).exists()
    assert is_running(client)
    client.close()
    assert not is_running(client)


def test_controllers_are_read_as_they_were_found(make_bench: MakeBench) -> None:
    bench = make_bench(nvme0=Model(apst=True))
    client = bench.spawn()
    config = PowerConfig(state=2, apst=False)
    opened = client.open(RUN_ID, config, devices=["nvme0"], block_devices=[])
    before = opened.controllers["nvme0"].fields
    assert (before["power_state"], before["apst_enabled"]) == (0, True)
    after = client.finish().controllers["nvme0"].fields
    assert (after["power_state"], after["apst_enabled"]) == (2, False)


def test_one_sampler_serves_run_after_run(bench: Bench) -> None:
    client = bench.spawn()
    for run_id in (RUN_ID, "run-2"):
        if run_id != RUN_ID:
            bench.add_run(run_id)
        client.open(run_id, PowerConfig(state=2), devices=["nvme0"], block_devices=[])
        client.start()
        assert client.finish().states[0].restored == 0
        assert (bench.runs / run_id / "samples-host-1.jsonl").exists()


def test_abort_restores_and_reports_it(bench: Bench) -> None:
    client = bench.opened(PowerConfig(state=1))
    client.start()
    (state,) = client.abort()
    assert bench.state() == 0
    assert state.restored == 0
    assert not (bench.run / RECORD_FILE).exists()  # the run writes it


def test_client_knows_whether_there_is_a_run_to_abort(bench: Bench) -> None:
    client = bench.spawn()
    assert not client.has_run
    client.open(RUN_ID, PowerConfig(), devices=["nvme0"], block_devices=[])
    assert client.has_run
    client.start()
    client.finish()
    assert not client.has_run


def test_run_that_has_a_record_keeps_it(bench: Bench) -> None:
    client = bench.opened()
    (bench.run / RECORD_FILE).write_text("the run's own")
    client.close()
    assert (bench.run / RECORD_FILE).read_text() == "the run's own"


def test_refusal_of_the_drive_reaches_the_run(bench: Bench) -> None:
    store(bench.models / "nvme0.json", Model(refuses=NOT_CHANGEABLE))
    client = bench.spawn()
    with pytest.raises(PowerStateError, match="Feature Not Changeable"):
        client.open(RUN_ID, PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    (state,) = client.abort()
    assert state.verified is None


def test_second_drive_s_refusal_restores_the_first(make_bench: MakeBench) -> None:
    bench = make_bench(nvme0=Model(), nvme1=Model(serial="TWO", refuses=NOT_CHANGEABLE))
    client = bench.spawn()
    with pytest.raises(PowerStateError, match="nvme1"):
        client.open(RUN_ID, PowerConfig(state=1), devices=["nvme0", "nvme1"], block_devices=[])
    assert sent(bench.models) == ["0x2 1", "0x2 0"]


def test_state_without_a_controller_is_refused(bench: Bench) -> None:
    client = bench.spawn()
    with pytest.raises(PowerError, match="there is no NVMe controller under the target"):
        client.open(RUN_ID, PowerConfig(state=1), devices=[], block_devices=[a_disk()])


def test_closed_drive_leaves_a_run_without_drive_power(bench: Bench) -> None:
    store(bench.models / "nvme0.json", Model(privileged=False))
    client = bench.spawn()
    opened = client.open(RUN_ID, PowerConfig(), devices=["nvme0"], block_devices=[])
    assert "found no source for nvme0" in opened.choice
    assert "CAP_SYS_ADMIN" in opened.states[0].sentence
    assert "CAP_SYS_ADMIN" in opened.controllers["nvme0"].missing["smart"]
    assert opened.controllers["nvme0"].nvme_version == "2.3.0"


def test_closed_drive_cannot_be_set(bench: Bench) -> None:
    store(bench.models / "nvme0.json", Model(privileged=False))
    client = bench.spawn()
    with pytest.raises(PowerError, match=r"power\.state=1 is not available: .*CAP_SYS_ADMIN"):
        client.open(RUN_ID, PowerConfig(state=1), devices=["nvme0"], block_devices=[])


def test_absent_drive_is_reported(bench: Bench) -> None:
    client = bench.spawn()
    opened = client.open(RUN_ID, PowerConfig(), devices=["nvme5"], block_devices=["no-such-disk"])
    assert opened.controllers["nvme5"].fields == {}
    assert opened.controllers["nvme5"].power_states is None
    client.start()
    assert client.finish().controllers["nvme5"].serial == "nvme5"


def test_data_sheet_run_still_watches_the_power_state(bench: Bench) -> None:
    profile = DeclaredProfile(name="sheet", citation="made up", typical_w=20.0)
    client = bench.opened(PowerConfig(source="declared", profile=profile, period_s=0.02))
    client.start()
    client.finish()
    samples = list(read_samples(bench.run / "samples-host-1.jsonl"))
    kinds = {(sample.source, sample.channel) for sample in samples}
    assert ("declared", Channel.POWER_W) in kinds
    assert ("nvme", Channel.POWER_STATE) in kinds


def test_power_none_touches_no_drive(bench: Bench) -> None:
    client = bench.opened(PowerConfig(source="none"))
    client.start()
    client.finish()
    assert list(read_samples(bench.run / "samples-host-1.jsonl")) == []


def test_two_runs_do_not_set_one_drive(bench: Bench) -> None:
    bench.opened(PowerConfig(state=1))
    bench.add_run("run-2")
    second = bench.spawn()
    with pytest.raises(PowerError, match="in use by run run-1"):
        second.open("run-2", PowerConfig(state=2), devices=["nvme0"], block_devices=[])
    with pytest.raises(PowerError, match="the run is ended"):
        second.start()
    assert bench.state() == 1


def test_request_of_wrong_type_is_a_configuration_error(bench: Bench) -> None:
    client = bench.spawn()
    with pytest.raises(ConfigError, match=r"power\.source must be one of"):
        client.open(RUN_ID, PowerConfig(source="meter"), devices=[], block_devices=[])


def test_samples_file_is_made_once(bench: Bench) -> None:
    (bench.run / "samples-host-1.jsonl").symlink_to("/etc/hostname")
    client = bench.opened()
    with pytest.raises(PowerError, match="can't be created"):
        client.start()


def test_a_run_without_a_folder_has_no_samples(bench: Bench) -> None:
    client = bench.spawn()
    client.open("another-run", PowerConfig(), devices=["nvme0"], block_devices=[])
    with pytest.raises(PowerError, match=r"samples file .*another-run.* can't be created"):
        client.start()


def test_drive_with_one_state_runs_in_it(make_bench: MakeBench) -> None:
    bench = make_bench(nvme0=Model(states=(RawState(mp=2500),)))
    client = bench.opened(PowerConfig(state=0))
    client.start()
    state = client.finish().states[0]
    assert (state.verified, state.restored) == (0, 0)


def test_sampler_that_cannot_start_names_its_log(bench: Bench) -> None:
    program = (*bench.program, "--no-such-option")
    log = bench.folder / "the.log"
    with (
        SamplerClient.spawn(bench.runs, log, program=program) as client,
        pytest.raises(PowerError, match=r"ended with status 2 before it answered start.*the\.log"),
    ):
        client.start()
    with pytest.raises(PowerError, match="can't be started"):
        SamplerClient.spawn(bench.runs, log, program=("/no/such/program",))


def test_without_a_place_for_a_log_there_is_none(bench: Bench) -> None:
    with SamplerClient.spawn(
        bench.runs, Path("/proc/no/sampler.log"), program=bench.program
    ) as client:
        client.open(RUN_ID, PowerConfig(), devices=["nvme0"], block_devices=[])


class Step:
    """A drive, a source or a file that records its calls and fails in the given ones."""

    def __init__(
        self, name: str, done: list[str], error: Exception, breaks: Collection[str] = ()
    ) -> None:
        self._name = name
        self._done = done
        self._error = error
        self._breaks = breaks

    def restore(self) -> None:
        self._do("restore")

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self._done.append(f"{what} {self._name}")
        if what in self._breaks:
            raise self._error


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), PowerError("it hangs"), OSError("it is gone")]
)
def test_what_breaks_in_one_step_keeps_no_other_from_being_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    host = SamplerHost(journal=ChangeJournal(tmp_path / "state"))
    recording: Any = Recording(host, "run-1", lambda _: SampleFile(1, host="h", period_s=1.0))
    done: list[str] = []
    both = ("restore", "close")
    recording._drives = [Step("drive", done, error, both)]
    recording._sources = [Step("25h", done, error, both), Step("meter", done, error)]
    recording._counters = [Step("counter", done, error, both)]
    recording.end()
    recording.end()
    assert done == [
        "restore drive",
        "restore 25h",
        "restore meter",
        "close drive",
        "close 25h",
        "close meter",
        "close counter",
    ]
    assert caplog.text.count(str(error)) >= 4
