"""Power from a program: what it may print, when its times are used, and that it always ends."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.energy.test_uncertainty import STEP_W, TIMES_S, record_of
from tests.power.energy_facts import facts
from tests.run.running import family, started_family, until
from wattload.core.errors import ConfigError, PowerDataLostError, PowerError
from wattload.core.power import Boxcar, Evidence, Instant, PowerSource, Sample, Scope
from wattload.core.processes import stat_fields
from wattload.power.config import AccuracyConfig, CommandConfig, PowerConfig
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.command import CommandSource, find

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
METER = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
while not (folder / "end").exists():
    if not (folder / "silent").exists():
        print((folder / "line").read_text(), flush=True)
    time.sleep(0.01)
"""
"""Prints the content of the file ``line`` every 10 ms, unless a file ``silent`` exists."""

Open = Callable[..., CommandSource]


@pytest.fixture
def open_program() -> Iterator[Open]:
    """Open the source of a program of Python or of a command; it is closed with the test."""
    opened: list[CommandSource] = []

    def open_it(text: str = "", *words: object, run: str = "", **settings: Any) -> CommandSource:
        command = run or shlex.join([sys.executable, "-c", text, *map(str, words)])
        source = source_of(run=command, **settings)
        opened.append(source)
        source.open()
        return source

    yield open_it
    for source in opened:
        source.close()


def source_of(**settings: Any) -> CommandSource:
    config = PowerConfig(command=CommandConfig(**settings))
    (source,) = find([DRIVE], config)
    assert isinstance(source, CommandSource)
    return source


def meter_in(folder: Path, line: str = "12.5") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "line").write_text(line)
    (folder / "meter.py").write_text(METER)
    return shlex.join([sys.executable, str(folder / "meter.py"), str(folder)])


def read_until(source: PowerSource, count: int = 1) -> list[Sample]:
    """Return at least so many samples."""
    samples: list[Sample] = []

    def is_enough() -> bool:
        samples.extend(source.read())
        return len(samples) >= count

    until(is_enough)
    return samples


def read_until_logged(source: PowerSource, log: pytest.LogCaptureFixture) -> list[Sample]:
    """Return the samples until the log has an entry."""
    samples: list[Sample] = []

    def is_logged() -> bool:
        samples.extend(source.read())
        return bool(log.messages)

    until(is_logged)
    return samples


def loss_of(source: PowerSource) -> tuple[list[Sample], str]:
    """Return the samples until readings are lost, and the sentence on the loss."""
    samples: list[Sample] = []
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        try:
            samples += source.read()
        except PowerDataLostError as error:
            return samples, str(error)
        time.sleep(0.02)
    pytest.fail("no reading was lost")


def processes_with(word: str) -> list[int]:
    """Return the processes that run and have a word in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


class TestContract(PowerSourceContract):
    gathers = True

    @pytest.fixture(autouse=True)
    def in_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self) -> PowerSource:
        return source_of(run=meter_in(self.folder))

    def break_reads(self, source: PowerSource) -> None:
        (self.folder / "silent").touch()
        until(lambda: [sample.value for sample in source.read()] == [None])

    def read_some(self, source: PowerSource) -> list[Sample]:
        source.start()
        return read_until(source, 5)

    def test_failed_read_is_a_sample_without_value(self, source: PowerSource) -> None:
        """As in the contract, but the first line after the start is waited for."""
        given = {sample.channel for sample in self.read_some(source)}
        self.break_reads(source)
        failed = source.read()
        assert {(sample.channel, sample.value) for sample in failed} == {(*given, None)}


def test_a_line_of_watts_is_a_reading_at_its_arrival(tmp_path: Path, open_program: Open) -> None:
    source = open_program(run=meter_in(tmp_path))
    source.start()
    begin_ns = time.monotonic_ns()
    sample = read_until(source)[-1]
    assert sample.value == 12.5
    assert begin_ns <= sample.time_ns <= time.monotonic_ns()
    assert source.facts().detail.startswith(f"`{meter_in(tmp_path)}`, stamped on arrival")


@pytest.mark.parametrize("separator", [" ", ",", " , ", "\t"])
def test_own_times_are_used_with_their_difference_as_spread(
    open_program: Open, separator: str
) -> None:
    source = open_program(
        "import sys, time\nprint('# a comment\\n', flush=True)\n"
        "while True:\n"
        "    at = time.time() - 0.25\n"
        "    print(f'{at}{sys.argv[1]}7.5', flush=True)\n"
        "    time.sleep(0.01)",
        separator,
    )
    assert ", its own times" in source.facts().detail
    source.start()
    time.sleep(0.3)  # readings from before the start are left out
    start_ns = time.monotonic_ns()
    sample = read_until(source)[0]
    assert sample.value == 7.5
    assert sample.spread_ns >= 0.25e9
    assert sample.time_ns <= start_ns


@pytest.mark.parametrize("ahead_s", [-3.2, 3600])
def test_times_of_a_clock_that_differs_are_not_used(open_program: Open, ahead_s: float) -> None:
    source = open_program(
        "import sys, time\n"
        "while True:\n"
        "    print(time.time() + float(sys.argv[1]), 7.5, flush=True)\n"
        "    time.sleep(0.01)",
        ahead_s,
    )
    assert "stamped on arrival: its times differ by " in source.facts().detail
    assert source.facts().detail.count(" s (clock or delay)") == 1
    begin_ns = time.monotonic_ns()
    source.start()
    readings = read_until(source)
    assert all(begin_ns <= each.time_ns <= time.monotonic_ns() for each in readings)
    assert all(each.spread_ns >= max(-ahead_s, 0.5) * 1e9 for each in readings)


def test_lines_that_come_together_may_be_as_late_as_those_before(open_program: Open) -> None:
    source = open_program(BURSTS, 4, 0.8, 4)
    source.start()
    assert "stamped on arrival, up to " in source.facts().detail
    assert all(each.spread_ns >= 0.8e9 for each in read_until(source, 4) if each.value)


@pytest.mark.parametrize(("prefix", "late_s"), [("", 0.4), ("{time.time() - 2} ", 2.0)])
def test_a_delay_that_is_not_stated_makes_times_uncertain(
    open_program: Open, prefix: str, late_s: float
) -> None:
    """A shift of all readings by the delay, over a step of 12 W at each edge."""
    text = f"import time\nwhile True: print(f'{prefix}5', flush=True); time.sleep(0.01)"
    unstated, stated = (open_program(text, lag_s=each) for each in (None, 0.0))
    unstated.start()
    stated.start()
    spread_ns, stated_ns = (read_until(each)[0].spread_ns for each in (unstated, stated))
    assert stated_ns < 0.4e9
    meter = facts("meter", sensor=unstated.facts().sensor, accuracy_percent=0.1)
    exact, unsure = (record_of(STEP_W, meter, spread_ns=each) for each in (0, spread_ns))
    late = record_of(STEP_W, meter, TIMES_S + late_s)
    assert late.energy_j is not None
    assert unsure.energy_j is not None
    assert exact.uncertainty_j is not None
    assert unsure.uncertainty_j is not None
    assert exact.uncertainty_j < abs(late.energy_j - unsure.energy_j) <= unsure.uncertainty_j


def test_a_time_in_the_future_is_at_most_the_arrival(open_program: Open) -> None:
    source = open_program(
        "import time\n"
        "while True:\n"
        "    print(time.time() + 0.3, 7.5, flush=True)\n"
        "    time.sleep(0.01)"
    )
    assert ", its own times" in source.facts().detail
    source.start()
    assert all(each.time_ns <= time.monotonic_ns() for each in read_until(source))


def test_the_period_is_that_of_the_lines(open_program: Open) -> None:
    source = open_program("import time\nwhile True: print(5, flush=True); time.sleep(0.4)")
    assert source.facts().period_s >= 0.4


def test_only_a_stated_scope_and_accuracy_make_it_measured() -> None:
    accuracy = AccuracyConfig(watts=0.1)
    both = source_of(run="meter -x", scope="drive", accuracy=accuracy).facts()
    assert (both.evidence, both.scope, both.meter) == (Evidence.MEASURED, Scope.DRIVE, "meter -x")
    assert (both.device, both.device_name) == ("SERIAL1", "nvme0")
    without = source_of(run="/opt/meter -x", accuracy=accuracy).facts()
    assert (without.evidence, without.scope, without.meter) == (Evidence.DECLARED, Scope.NODE, "")
    assert without.device == "meter"
    assert source_of(run="meter", scope="gpu", device="gpu-7").facts().device == "gpu-7"


def test_what_is_missing_for_measured_is_named(tmp_path: Path, open_program: Open) -> None:
    run = meter_in(tmp_path)
    assert (
        open_program(run=run)
        .facts()
        .detail.endswith("; declared, without power.command.scope and power.command.accuracy")
    )
    assert (
        "; declared, without power.command.accuracy"
        in open_program(run=run, scope="gpu").facts().detail
    )


def test_window_and_delay_are_as_stated() -> None:
    assert source_of(run="meter", window_s=1.0, lag_s=0.5).facts().sensor == Boxcar(
        window_s=1.0, lag_s=0.5
    )
    assert source_of(run="meter", lag_s=0.5).facts().sensor == Instant(lag_s=0.5)


def test_a_drive_must_be_one_of_the_target() -> None:
    with pytest.raises(ConfigError, match=r"power\.command\.device must be the serial"):
        source_of(run="meter", scope="drive", device="nvme9")


@pytest.mark.parametrize(
    ("path", "advice"),
    [("no-such-meter", "give its full path"), ("/etc/passwd", r"chmod \+x /etc/passwd")],
)
def test_a_program_that_is_not_found_is_named(open_program: Open, path: str, advice: str) -> None:
    with pytest.raises(PowerError, match=f"`{path} -v` is not an executable program"):
        open_program(run=f"'{path} -v'")
    with pytest.raises(PowerError, match=f"`{path}` is not an executable program; {advice}"):
        open_program(run=f"{path} -v")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "print('12 W'); time.sleep(60)",
            r"printed '12 W': each line must be `unix_seconds watts`",
        ),
        ("print('1 2 3'); time.sleep(60)", r"printed '1 2 3': each line must be"),
        ("print('x' * 900); time.sleep(60)", r"printed 'x+'\.\.\. \(900 characters\): each line"),
        ("print(5); print(time.time(), 5); time.sleep(60)", "each line must be .* as the first"),
        ("print('nan'); time.sleep(60)", "printed 'nan': that is no reading"),
        ("print(-3.2); time.sleep(60)", "printed '-3.2': power must not be negative"),
        ("print(8000); time.sleep(60)", "a drive draws 200 W at most; print watts, not milliwatts"),
        ("print('12,5'); time.sleep(60)", "printed '12,5': times must be seconds since 1970"),
        ("print(time.time_ns(), 5); time.sleep(60)", "times must be seconds since 1970"),
        ("print('1764583001 5'); print('1764583000 5'); time.sleep(60)", "must not be before that"),
        ("sys.exit('no meter on USB')", r"exited with status 1 after .* its last words: no meter"),
        ("os.kill(os.getpid(), 9)", "exited with status -9 after"),
        ("os.close(1); time.sleep(60)", "closed its output after"),
    ],
)
def test_a_program_without_readings_is_refused(
    open_program: Open, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    with pytest.raises(PowerError, match=sentence):
        open_program(f"import os, sys, time\n{text}", scope="drive")


def test_a_program_that_prints_nothing_is_told_about_buffers(
    open_program: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattload.power.sources.command.FIRST_S", 1.0)
    with pytest.raises(PowerError, match=r"`sleep` printed nothing in 1 s; .* needs stdbuf -oL"):
        open_program(run="sleep 60")


def test_a_variable_that_is_not_set_is_named(open_program: Open) -> None:
    advice = r"has \$NO_SUCH, which is not set; export NO_SUCH='...', or write \$\$NO_SUCH for"
    with pytest.raises(PowerError, match=advice):
        open_program(run="meter --token $NO_SUCH")


def test_two_dollar_signs_are_one(open_program: Open) -> None:
    script = "while :; do echo 5 7.25 | awk '{print $$NF}'; sleep 0.01; done"
    assert read_until(open_program(run=f'sh -c "{script}"'))[0].value == 7.25


@pytest.mark.parametrize("is_later", [False, True])
def test_a_program_that_prints_without_end_is_named(
    tmp_path: Path, open_program: Open, *, is_later: bool
) -> None:
    flood = "import sys, time\nfrom pathlib import Path\n"
    if is_later:
        flood += "while not Path(sys.argv[1]).exists(): print(5, flush=True); time.sleep(0.01)\n"
    flood += "while True: print('5\\n' * 1000)"
    if not is_later:
        with pytest.raises(PowerError, match="prints more than 1,000 readings per second"):
            open_program(flood)
        return
    source = open_program(flood, tmp_path / "flood")
    source.start()
    (tmp_path / "flood").touch()
    samples, sentence = loss_of(source)
    assert "prints more than 1,000 readings per second" in sentence
    assert len(samples) <= 11_000
    assert not [each for each in source.read() if each.value is not None]


def test_errors_without_a_line_end_are_kept_only_in_part(
    open_program: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No part of a line is logged, as a part of a secret would not be masked."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("METER_TOKEN", SECRET)
    text = "import sys; sys.exit('whole\\n' + sys.argv[1] * 10000 + ' lost')"
    with pytest.raises(PowerError, match=r"\$METER_TOKEN lost$") as raised:
        open_program(run=f"{sys.executable} -c {shlex.quote(text)} $METER_TOKEN")
    assert len(str(raised.value)) < 1000
    assert [each for each in caplog.messages if "whole" in each]
    assert SECRET[2:8] not in str(raised.value) + caplog.text


BURSTS = """
import sys, time
count, pause_s = int(sys.argv[1]), float(sys.argv[2])
while True:
    sys.stdout.write("5\\n" * count)
    sys.stdout.flush()
    time.sleep(pause_s)
    count = int(sys.argv[3])
"""


def test_a_program_that_buffers_its_lines_is_refused(open_program: Open) -> None:
    with pytest.raises(PowerError, match=r"prints its lines in bursts; .* needs stdbuf -oL"):
        open_program(BURSTS, 50, 0.8, 50)


def test_lines_from_before_it_was_opened_are_no_bursts(open_program: Open) -> None:
    source = open_program(BURSTS, 50, 0.8, 1)
    source.start()
    assert {each.value for each in read_until(source, 2)} <= {5.0, None}


def test_a_program_that_begins_to_buffer_loses_readings(tmp_path: Path, open_program: Open) -> None:
    source = open_program(
        "import sys, time\nfrom pathlib import Path\n"
        "while True:\n"
        "    is_late = Path(sys.argv[1]).exists()\n"
        "    print('\\n'.join(['5'] * (50 if is_late else 1)), flush=True)\n"
        "    time.sleep(0.8 if is_late else 0.01)",
        tmp_path / "late",
    )
    source.start()
    (tmp_path / "late").touch()
    assert "prints its lines in bursts" in loss_of(source)[1]


def test_lines_that_a_busy_host_reads_late_are_readings(open_program: Open) -> None:
    """Late lines come at once too, but those after them come in time."""
    source = open_program(
        "import time\n"
        "while True:\n"
        "    for number in range(8):\n"
        "        print(5, flush=True)\n"
        "        time.sleep(0.05)\n"
        "    time.sleep(0.6)\n"
        "    print('\\n'.join(['6'] * 8), flush=True)\n"
    )
    source.start()
    values = [each.value for each in read_until(source, 100)]
    assert values.count(6) >= 4 * 8


def test_a_line_without_a_reading_is_a_sample_without_value(
    tmp_path: Path, open_program: Open, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_program(run=meter_in(tmp_path))
    for line in ("nan", "inf", "no data", "1764583000 5", "-1"):
        (tmp_path / "line").write_text(line)
        until(lambda: any(each.value is None for each in source.read()))
        (tmp_path / "line").write_text("3")
        until(lambda: any(each.value == 3 for each in source.read()))
    assert len([each for each in caplog.messages if "printed" in each]) == 1


TIMED = """
import sys, time
from pathlib import Path
folder, kept = Path(sys.argv[1]), []
while not (folder / "end").exists():
    late_s = float((folder / "late").read_text() or 0)
    at = time.time() - late_s
    kept += [f"{at} 5"] * 2
    if (folder / "faulty").exists():
        kept.append("no data")
    if not (folder / "silent").exists():
        print("\\n".join(kept), flush=True)
        kept = []
    time.sleep(0.01)
"""
"""Prints lines with times, each twice, so many seconds late; a silence holds them back."""


def timed_in(folder: Path, open_program: Open) -> CommandSource:
    (folder / "late").write_text("0.01")
    return open_program(TIMED, folder)


def test_late_and_faulty_lines_leave_the_times_of_readings_in_order(
    tmp_path: Path, open_program: Open, caplog: pytest.LogCaptureFixture
) -> None:
    source = timed_in(tmp_path, open_program)
    source.start()
    samples = read_until(source, 3)
    (tmp_path / "faulty").touch()
    samples += read_until_logged(source, caplog)
    assert "printed 'no data'" in caplog.text
    (tmp_path / "silent").touch()
    begin_s = time.monotonic()
    while time.monotonic() < begin_s + 0.4:  # more than three periods
        samples += source.read()
        time.sleep(0.02)
    (tmp_path / "silent").unlink()
    samples += read_until(source, 60)
    assert {each.value for each in samples} == {5.0}
    times_ns = [each.time_ns for each in samples]
    assert times_ns == sorted(times_ns)
    assert len(set(times_ns)) < len(times_ns)  # equal ones are readings


@pytest.mark.parametrize("late_s", ["3", "-3"])
def test_a_clock_that_steps_gives_no_reading_until_it_is_right_again(
    tmp_path: Path, open_program: Open, caplog: pytest.LogCaptureFixture, late_s: str
) -> None:
    source = timed_in(tmp_path, open_program)
    source.start()
    samples = read_until(source, 3)
    (tmp_path / "late").write_text(late_s)
    samples += read_until_logged(source, caplog)
    assert f"its time is {late_s}" in caplog.text
    for _ in range(20):
        time.sleep(0.01)
        assert not source.read()
    (tmp_path / "late").write_text("0.2")
    after = read_until(source, 5)
    times_ns = [each.time_ns for each in samples + after]
    assert times_ns == sorted(times_ns)
    assert all(each.spread_ns <= 0.5e9 for each in after)


def test_an_exit_is_reported_once_after_the_readings_before_it(open_program: Open) -> None:
    source = open_program(
        "import sys, time\n"
        "for number in range(20): print(number, flush=True); time.sleep(0.05)\n"
        "sys.exit('USB device lost')"
    )
    source.start()
    samples, sentence = loss_of(source)
    assert samples[-1].value == 19
    assert "exited with status 1 after " in sentence
    assert sentence.endswith("; its last words: USB device lost")
    assert not [each for each in source.read() if each.value is not None]


@pytest.mark.parametrize("is_killed", [False, True])
def test_all_that_the_program_has_started_ends(tmp_path: Path, is_killed: bool) -> None:
    pids = tmp_path / "pids"
    started = shlex.join(family(pids))
    script = tmp_path / "meter.sh"
    script.write_text(
        f"#!/bin/sh\ntrap '' TERM\n{started} > /dev/null &\nwhile :; do echo 5; sleep 0.05; done\n"
    )
    script.chmod(0o755)
    text = (
        "import sys\nfrom tests.power.sources.test_command import source_of\n"
        f"source = source_of(run={str(script)!r})\nsource.open()\n"
        "print('open', flush=True)\nsys.stdin.read()\nsource.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        everything = [*started_family(pids), *processes_with(str(script))]
        if is_killed:
            owner.kill()
            owner.wait()
        else:
            owner.communicate("")
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything))
        until(lambda: not processes_with(str(script)))


def test_what_a_killed_launcher_has_left_ends(tmp_path: Path, open_program: Open) -> None:
    (tmp_path / "apart.py").write_text("import time\ntime.sleep(600)")
    apart = [sys.executable, str(tmp_path / "apart.py")]
    source = open_program(
        f"import subprocess, time\nsubprocess.Popen({apart!r}, start_new_session=True)\n"
        "while True: print(5, flush=True); time.sleep(0.01)"
    )
    until(lambda: bool(processes_with(apart[1])))
    (launcher,) = [
        pid for pid in processes_with("wattload.core.launch") if parent_of(pid) == os.getpid()
    ]
    os.kill(launcher, signal.SIGKILL)
    source.close()
    until(lambda: not [pid for pid in processes_with(apart[1]) if parent_of(pid) != os.getpid()])


def parent_of(pid: int) -> int:
    return int(stat_fields(pid)[1])


def test_a_program_that_is_refused_ends(tmp_path: Path, open_program: Open) -> None:
    with pytest.raises(PowerError, match="printed 'x'"):
        open_program("import time\nprint('x')\ntime.sleep(600)", tmp_path)
    assert not processes_with(str(tmp_path))


def test_a_program_has_time_to_release_its_meter(tmp_path: Path, open_program: Open) -> None:
    source = open_program(
        "import signal, sys, time\nfrom pathlib import Path\n"
        "def release(*_):\n"
        "    time.sleep(0.3)\n"
        "    Path(sys.argv[1]).touch()\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, release)\n"
        "while True: print(5, flush=True); time.sleep(0.01)",
        tmp_path / "released",
    )
    source.close()
    assert (tmp_path / "released").exists()


SECRET = "s3cr3t-of-the-test"


@pytest.mark.parametrize("where", ["out", "error", "program"])
def test_the_value_of_a_variable_is_in_no_sentence(
    open_program: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("METER_TOKEN", SECRET)
    text = {
        "out": "import sys; print('user:' + sys.argv[1][8:])",
        "error": "import sys; sys.exit('refused ' + sys.argv[1])",
        "program": "",
    }[where]
    run = f"{sys.executable} -c {shlex.quote(text)} --token=$METER_TOKEN"
    with pytest.raises(PowerError) as raised:
        open_program(run=run if text else "/opt/$METER_TOKEN")
    assert "$METER_TOKEN" in str(raised.value)
    assert SECRET not in str(raised.value) + caplog.text
    assert ("$METER_TOKEN" in caplog.text) == (where == "error")


def test_the_program_gets_the_values_and_not_the_samplers_modules(
    open_program: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METER_WATTS", "7.25")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    text = (
        "import os, sys, time\n"
        "while True:\n"
        "    print(99 if 'PYTHONPATH' in os.environ else sys.argv[1])\n"
        "    time.sleep(0.01)"
    )
    source = open_program(run=f"{sys.executable} -c {shlex.quote(text)} $METER_WATTS")
    assert read_until(source)[0].value == 7.25


@pytest.mark.parametrize(
    "run",
    [
        "meter --token abc",
        "meter --http-password=abc",
        "env API_TOKEN=abc meter",
        "meter -community abc",
        "meter --api-key abc",
        "meter --apikey=abc",
        "meter --pass abc",
        "env METER_PWD=abc meter",
        "sh -c 'meter --password abc | head'",
        "curl https://user:abc@pdu.example/power",
        "curl -H 'Authorization: Bearer abc' pdu.example",
        "sh -c \"curl -H 'authorization: abc' pdu.example\"",
    ],
)
def test_a_secret_that_is_written_out_is_refused_without_it(run: str) -> None:
    with pytest.raises(ConfigError, match="which the record would show") as raised:
        source_of(run=run)
    assert "abc" not in str(raised.value)


@pytest.mark.parametrize(
    "run",
    [
        "meter --token $T",
        "meter --token=$T",
        "meter --password-file f",
        "meter --tokenizer f --passive x --passes 3",
        "meter https://$USER:$T@pdu.example http://pdu.example:80/a@b",
        "meter -H 'Authorization: Bearer $T'",
        "sh -c 'meter --token $T'",
    ],
)
def test_a_secret_by_a_variable_or_a_file_is_accepted(run: str) -> None:
    assert source_of(run=run).facts().device in ("meter", "sh")


@pytest.mark.parametrize(
    ("run", "sentence"),
    [("", "power=command needs a program"), ("meter 'x", "with balanced quotes: No closing")],
)
def test_no_command_is_one_sentence(run: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        source_of(run=run)
