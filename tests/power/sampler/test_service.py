"""A sampler service: runs of several users at a time, and what it grants them."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.model_host.drive import Model, load, sent, store
from tests.power.nobody import NOBODY, as_nobody, folder_for_all, need_nobody
from tests.power.sampler_bench import ROOT, RUN_ID, Bench, restore_slowly, wait_for
from wattload import __version__
from wattload.core.errors import ConfigError, PowerError, PowerPermissionError
from wattload.core.power import Channel
from wattload.core.record.file import RECORD_FILE
from wattload.power.config import PowerConfig, QuarchConfig, RedfishConfig, ReplayConfig
from wattload.power.sampler import relay
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.host import SamplerHost, power_config
from wattload.power.sampler.protocol import Message, MessageStream
from wattload.power.sampler.samples import RoundTarget, read_samples
from wattload.power.sampler.server import Sampler, serve_client
from wattload.power.sampler.service import listening

OPEN = """
import sys
from pathlib import Path
from wattload.core.errors import PowerError
from wattload.power.sampler.client import SamplerClient
try:
    SamplerClient.spawn(Path(sys.argv[1]), service=Path(sys.argv[2]))
except PowerError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def two(make_bench: Callable[..., Bench]) -> Bench:
    """A host with two drives."""
    return make_bench(nvme0=Model(), nvme1=Model(serial="TWO"))


def opened(bench: Bench, path: Path, run_id: str = RUN_ID, device: str = "nvme0") -> SamplerClient:
    """Open a run that has set power state 1 through the service."""
    if not (bench.runs / run_id).exists():
        bench.add_run(run_id)
    client = bench.spawn(path)
    config = PowerConfig(state=1, period_s=0.02)
    client.open(run_id, config, devices=[device], block_devices=[])
    return client


def children(service: int) -> list[int]:
    """Return the processes in which a service serves its clients."""
    path = Path(f"/proc/{service}/task/{service}/children")
    return [int(pid) for pid in path.read_text().split()]


def test_a_run_through_a_service(bench: Bench) -> None:
    client = opened(bench, bench.service())
    assert bench.state() == 1
    client.start()
    wait_for(lambda: bench.round_count() >= 5)
    client.quiet(is_on=True)
    client.quiet(is_on=False)
    finished = client.finish()
    assert bench.state() == 0
    assert finished.states[0].restored == 0
    samples = list(read_samples(bench.samples))
    assert finished.cost is not None
    assert finished.cost.sample_count == len(samples)
    assert finished.cost.lost_sample_count == 0
    assert not (bench.run / RECORD_FILE).exists()
    client.open("run-2", PowerConfig(), devices=["nvme0"], block_devices=[])
    client.finish()


def test_samples_are_in_the_folder_while_the_run_goes_on(bench: Bench) -> None:
    client = opened(bench, bench.service())
    client.start()
    wait_for(lambda: bench.samples.exists() and len(list(read_samples(bench.samples))) > 6)


def test_two_drives_serve_two_runs_and_one_drive_serves_one(two: Bench) -> None:
    path = two.service()
    first = opened(two, path)
    second = opened(two, path, "run-2", "nvme1")
    third = two.spawn(path)
    with pytest.raises(PowerError, match="MODEL0001 is in use by run run-1; wait until it has"):
        third.open("run-3", PowerConfig(), devices=["nvme0"], block_devices=[])
    assert (two.state("nvme0"), two.state("nvme1")) == (1, 1)
    first.finish()
    assert (two.state("nvme0"), two.state("nvme1")) == (0, 1)
    third.open("run-3", PowerConfig(), devices=["nvme0"], block_devices=[])
    third.finish()
    second.finish()
    assert two.state("nvme1") == 0


def test_a_run_says_nothing_about_a_run_on_another_drive(two: Bench) -> None:
    path = two.service()
    opened(two, path)
    reply = two.spawn(path).open("run-2", PowerConfig(), devices=["nvme1"], block_devices=[])
    assert reply.recovered == ()
    assert two.state("nvme0") == 1


def test_the_end_of_a_client_is_the_end_of_its_run_alone(two: Bench) -> None:
    path = two.service()
    first, second = opened(two, path), opened(two, path, "run-2", "nvme1")
    first.close()
    wait_for(lambda: two.state("nvme0") == 0)
    assert two.record().status == "aborted"
    (state,) = [each for each in two.record().power.states if each.serial == "MODEL0001"]
    assert (state.verified, state.restored) == (1, 0)
    assert two.state("nvme1") == 1
    second.finish()


def test_a_run_that_is_killed_is_recorded_and_undone(bench: Bench) -> None:
    process = bench.killable_client(str(bench.service()))
    os.killpg(process.pid, signal.SIGKILL)
    wait_for((bench.run / RECORD_FILE).exists)
    assert bench.state() == 0
    assert bench.record().status == "aborted"
    assert list(read_samples(bench.samples))


def test_a_run_is_recorded_when_the_service_goes_away_at_its_end(bench: Bench) -> None:
    path = bench.service()
    service = bench.processes[-1]
    client = bench.killable_client(str(path))
    serving = children(service.pid)[-1]
    os.kill(serving, signal.SIGSTOP)
    os.killpg(client.pid, signal.SIGKILL)
    time.sleep(0.3)  # the command to restore has been sent, and is not answered
    os.kill(serving, signal.SIGKILL)
    wait_for((bench.run / RECORD_FILE).exists)
    assert bench.record().status == "aborted"


def test_a_service_that_does_not_answer_does_not_hold_up_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ANSWER_TIMEOUT_S", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        commands = relay.Relay(MessageStream(ours), SamplerHost(), bench.runs)
        commands.run_id = RUN_ID
        commands.end()
        assert MessageStream(theirs).read()[0] == {"command": "abort"}
    assert commands.states == ()


def test_a_client_that_vanishes_with_its_sampler_is_undone(bench: Bench) -> None:
    """The next command writes the record from the run's folder."""
    client = opened(bench, bench.service())
    os.kill(client.pid, signal.SIGKILL)
    wait_for(lambda: bench.state() == 0)
    with pytest.raises(PowerError, match="ended with status -9 before it answered finish"):
        client.finish()
    assert not (bench.run / RECORD_FILE).exists()


def test_a_client_that_is_stopped_holds_up_no_other(two: Bench) -> None:
    path = two.service()
    stopped = opened(two, path)
    stopped.start()
    os.kill(stopped.pid, signal.SIGSTOP)
    opened(two, path, "run-2", "nvme1").finish()
    two.processes[-1].terminate()
    wait_for(lambda: two.state("nvme0") == 0)
    assert two.processes[-1].wait(10) == 0
    os.kill(stopped.pid, signal.SIGKILL)


def test_a_bug_that_one_run_meets_ends_that_run_alone(two: Bench) -> None:
    path = two.service()
    first, second = opened(two, path), opened(two, path, "run-2", "nvme1")
    first.start()
    model = load(two.models / "nvme0.json")
    model.crashes = (0x02,)
    store(two.models / "nvme0.json", model)
    wait_for(lambda: two.state("nvme0") == 0)
    with pytest.raises(PowerError, match="the sampler service has ended"):
        first.finish()
    second.finish()
    assert "ZeroDivisionError: a bug" in (two.folder / "service.log").read_text()


def test_a_restarted_service_undoes_what_the_killed_one_left(bench: Bench) -> None:
    client = opened(bench, bench.service())
    for pid in (bench.processes[-1].pid, *children(bench.processes[-1].pid)):
        os.kill(pid, signal.SIGKILL)
    bench.processes[-1].wait()
    with pytest.raises(PowerError, match="has ended or hangs; its restart restores"):
        client.start()
    assert bench.state() == 1
    bench.service()
    assert bench.state() == 0
    log = bench.folder / "service.log"
    wait_for(lambda: "restored to power state 0" in log.read_text())


def test_a_service_ends_with_a_signal_and_removes_its_socket(bench: Bench) -> None:
    path = bench.service()
    client = opened(bench, path)
    bench.processes[-1].send_signal(signal.SIGTERM)
    assert bench.processes[-1].wait(10) == 0
    assert bench.state() == 0
    assert not path.exists()
    with pytest.raises(PowerError, match="the sampler service has ended"):
        client.finish()


def test_a_second_signal_does_not_interrupt_a_restore_of_the_service(bench: Bench) -> None:
    opened(bench, bench.service())
    serving = children(bench.processes[-1].pid)[-1]
    restore_slowly(bench)
    os.kill(serving, signal.SIGTERM)
    wait_for(lambda: sent(bench.models)[-1] == "0x2 0")
    bench.processes[-1].terminate()  # it passes the signal on
    assert bench.processes[-1].wait(10) == 0
    assert bench.state() == 0


def test_a_trace_is_replayed_beside_the_service(bench: Bench) -> None:
    trace = bench.run / "replay.csv"
    rows = "".join(f"{row / 100},{row}\n" for row in range(1000))
    trace.write_text("# evidence: measured\ntime_s,power_w\n" + rows)
    config = PowerConfig(
        source="replay", period_s=0.02, state=1, replay=ReplayConfig(path=str(trace))
    )
    client = bench.spawn(bench.service())
    client.open(RUN_ID, config, devices=["nvme0"], block_devices=[])
    assert bench.state() == 1
    client.start()
    wait_for(lambda: bench.round_count() >= 6)
    client.finish()
    samples = list(read_samples(bench.samples))
    watts = [s.value for s in samples if (s.source, s.channel) == ("replay", Channel.POWER_W)]
    assert watts == list(range(len(watts)))
    assert len(watts) > 3
    assert Channel.POWER_STATE in {s.channel for s in samples}


def test_a_service_reads_no_file_that_a_run_names(bench: Bench) -> None:
    trace = bench.run / "secret.csv"
    trace.write_text("# evidence: measured\ntime_s,power_w\n0,5\n")
    config = PowerConfig(source="replay", replay=ReplayConfig(path=str(trace)))
    request = asdict(config)
    del request["sampler_socket"]
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(bench.service()))
        messages = MessageStream(stream)
        names = {"devices": ["nvme0"], "block_devices": []}
        messages.send(
            {"command": "open", "version": __version__, "run_id": "r", "request": request} | names
        )
        assert "power=replay is not available" in messages.read()[0]["error"]


def refused(bench: Bench, path: Path) -> str:
    reported = subprocess.run(
        [*bench.program, "--socket", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert reported.returncode == 1
    return reported.stderr


def test_a_second_service_does_not_take_the_socket(bench: Bench) -> None:
    path = bench.service()
    assert "listens on" in refused(bench, path)
    opened(bench, path)


def test_the_socket_of_a_killed_service_is_taken_over(bench: Bench) -> None:
    path = bench.service()
    bench.processes[-1].kill()
    bench.processes[-1].wait()
    assert path.exists()
    opened(bench, bench.service())


def test_a_socket_that_cannot_be_made_is_one_sentence(bench: Bench) -> None:
    assert refused(bench, Path("/proc/nowhere")).startswith(
        "the socket /proc/nowhere can't be created"
    )
    assert "can't be created" in refused(bench, bench.folder / ("x" * 200))
    precious = bench.folder / "precious"
    precious.write_text("three years of work")
    assert "can't be created" in refused(bench, precious)
    assert precious.read_text() == "three years of work"


def test_a_service_that_is_not_there_says_what_to_do(bench: Bench) -> None:
    with pytest.raises(PowerError, match="WATTLOAD_SAMPLER_SOCKET"):
        bench.spawn(bench.folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bench.folder / "deaf"))
        with pytest.raises(PowerError, match="no sampler answers"):
            bench.spawn(bench.folder / "deaf")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket to a group")
def test_the_socket_is_open_to_its_group_alone(tmp_path: Path) -> None:
    for gid, mode in ((None, 0o600), (4242, 0o660)):
        with listening(tmp_path / "socket", gid):
            found = (tmp_path / "socket").stat()
        assert stat.S_IMODE(found.st_mode) == mode
        assert gid in (None, found.st_gid)


def test_a_user_outside_the_group_is_refused_in_one_sentence() -> None:
    need_nobody()
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        process = as_nobody(OPEN, str(bench.runs), str(bench.service("--group", "4242")))
        out, error = process.communicate(timeout=60)
        assert out.startswith(
            f"PowerPermissionError user {NOBODY} may not use the sampler service on"
        ), error
        assert len(out.splitlines()) == 1
        bench.clean()


def no_target(run_id: str, period_s: float) -> RoundTarget:
    raise AssertionError("nothing is sampled here")


OPEN_FIELDS = {"run_id": "r", "request": {}, "devices": [], "block_devices": []}


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"command": "open", "version": "0.0", "run_id": "r"}, "of the run 0.0"),
        ({"command": "open", "version": "0.0", "new": 1, **OPEN_FIELDS}, "of the run 0.0"),
        ({"command": "open", "protocol": 4, **OPEN_FIELDS}, "of the run unknown"),
        (
            {"command": "open", "version": __version__, "run_id": "r"},
            "unknown command open with the fields run_id",
        ),
        (
            {"command": "open", "version": __version__, "new": 1, **OPEN_FIELDS},
            "unknown command open with the fields new, run_id, request, devices, block_devices",
        ),
        ({"command": "status"}, "unknown command status with the fields none"),
        ({"command": ["abort"]}, "unknown command ['abort'] with the fields none"),
        ({}, "unknown command None with the fields none"),
        ({"command": "quiet"}, "unknown command quiet with the fields none"),
        ({"command": "finish", "new": 1}, "unknown command finish with the fields new"),
    ],
)
def test_another_version_or_command_is_refused_in_one_sentence(
    message: Message, sentence: str
) -> None:
    """A command that does nothing is never confirmed, and the client is not dropped."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = MessageStream(ours)
        client.send(message)
        ours.shutdown(socket.SHUT_WR)
        serve_client(MessageStream(theirs), Sampler(SamplerHost(), no_target))
        answer = client.read()[0]
    assert answer["error"].endswith(f"{sentence}: start both from the same wattload")
    assert not answer["ok"]


@pytest.mark.parametrize("command", ["open", "finish"])
def test_a_service_s_reply_of_another_version_is_one_sentence(bench: Bench, command: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        commands = relay.Relay(MessageStream(ours), SamplerHost(), bench.runs)
        MessageStream(theirs).send({"ok": True, "report": {"host": "box"}})
        request = {"source": "none", "beside": [], "period_s": 1.0}
        with pytest.raises(PowerError, match="start both from the same wattload"):
            commands.execute({"command": command, **OPEN_FIELDS, "request": request})


@pytest.mark.parametrize("device", ["../sda", "a/b", "..", ""])
def test_a_device_is_a_name_and_never_a_path(bench: Bench, device: str) -> None:
    client = bench.spawn(bench.service())
    for names in (
        {"devices": [device], "block_devices": []},
        {"devices": [], "block_devices": [device]},
    ):
        with pytest.raises(PowerError, match="a device must match"):
            client.open(RUN_ID, PowerConfig(), **names)


def test_a_controller_that_is_not_served_is_refused(two: Bench) -> None:
    client = two.spawn(two.service("--device", "nvme1"))
    with pytest.raises(
        PowerPermissionError,
        match=r"nvme0 is not served .*`wattload sampler --device nvme0` adds it",
    ):
        client.open(RUN_ID, PowerConfig(), devices=["nvme0"], block_devices=[])
    client.open(RUN_ID, PowerConfig(), devices=["nvme1", "vda"], block_devices=[])


def test_the_system_drive_is_the_administrator_s_to_grant(bench: Bench) -> None:
    (bench.models / "nvme0.system").touch()
    config = PowerConfig(state=1, allow_system_drive=True)
    client = bench.spawn(bench.service())
    with pytest.raises(PowerPermissionError, match="started without --allow-system-drive"):
        client.open(RUN_ID, config, devices=["nvme0"], block_devices=[])
    bench.processes[-1].terminate()
    bench.processes[-1].wait()
    client = bench.spawn(bench.service("--allow-system-drive"))
    client.open(RUN_ID, config, devices=["nvme0"], block_devices=[])
    assert bench.state() == 1


def granted(config: PowerConfig, settings: PowerConfig | None = None) -> PowerConfig:
    host = SamplerHost(is_service=True, settings=settings)
    return power_config(asdict(config), [], host)


def test_no_run_chooses_the_hosts_that_a_service_contacts() -> None:
    redfish = RedfishConfig(url="https://evil.example")
    quarch = QuarchConfig(module="tcp::evil", host="evil.example")
    for config in (PowerConfig(redfish=redfish), PowerConfig(source="quarch", quarch=quarch)):
        with pytest.raises(
            PowerPermissionError, match=r"a run may not set power\.(redfish|quarch)"
        ):
            granted(config)


def test_the_administrator_s_meters_are_used() -> None:
    own = PowerConfig(quarch=QuarchConfig(module="tcp::qtl1999-02-020"))
    for requested in (QuarchConfig(), own.quarch):
        config = granted(PowerConfig(source="quarch", quarch=requested), own)
        assert config.quarch == own.quarch


@pytest.mark.parametrize("period_s", [0.001, 61.0])
def test_the_period_has_limits(period_s: float) -> None:
    with pytest.raises(ConfigError, match=r"power\.period_s"):
        granted(PowerConfig(period_s=period_s))
