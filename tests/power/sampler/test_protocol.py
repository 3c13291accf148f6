from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import ConfigError, PowerError
from wattload.power.sampler.access import SamplerHost, power_config
from wattload.power.sampler.polling import Schedule
from wattload.power.sampler.protocol import (
    MAX_LINE_BYTES,
    PROTOCOL_VERSION,
    Abort,
    Hello,
    LineBuffer,
    Open,
    encode,
    parse,
)

OPEN = {
    "command": "open", "request": {}, "devices": ["nvme0"], "block_devices": ["vda"],
}  # fmt: skip

PRIVATE = SamplerHost(runs=Path("runs"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
COMMANDS = st.sampled_from(["hello", "open", "start", "quiet", "status", "finish", "abort"])
FIELDS = st.sampled_from(
    ["protocol", "run_id", "request", "devices", "block_devices", "status", "reason", "on"]
)


def line(**message: object) -> bytes:
    return json.dumps(message).encode()


def test_commands_come_back() -> None:
    assert parse(line(command="hello", protocol=PROTOCOL_VERSION, run_id="a.B-1_2")) == Hello(
        "a.B-1_2"
    )
    assert parse(encode(OPEN)) == Open({}, ("nvme0",), ("vda",))
    assert parse(line(command="abort", status="failed", reason="x")) == Abort("failed", "x")


@pytest.mark.parametrize(
    "run_id",
    ["", "..", ".", ".hidden", "a/b", "a\n", "a" * 121, "ä", "a b", 5, None, ["a"], "a\0"],
)
def test_run_that_could_be_another_folder_is_refused(run_id: object) -> None:
    with pytest.raises(PowerError, match="run_id must match"):
        parse(line(command="hello", protocol=PROTOCOL_VERSION, run_id=run_id))


@pytest.mark.parametrize(
    "name", ["", "..", "../nvme0", "nvme0/x", "/dev/nvme0", "nvme0\n", 7, "٣/"]
)
def test_devices_are_names_and_never_paths(name: object) -> None:
    for field in ("devices", "block_devices"):
        with pytest.raises(PowerError, match=f"{field} must match"):
            parse(encode({**OPEN, field: [name]}))


def test_devices_are_named_once_and_at_most_64() -> None:
    command = parse(encode({**OPEN, "devices": ["nvme0", "nvme0", "nvme1"]}))
    assert isinstance(command, Open)
    assert command.devices == ("nvme0", "nvme1")
    with pytest.raises(PowerError, match="at most 64 names"):
        parse(encode({**OPEN, "devices": [f"nvme{number}" for number in range(65)]}))


@pytest.mark.parametrize("period_s", [0, 0.009, 61, -1, None, "1", True, 10**400, float("nan")])
def test_period_has_limits(period_s: object) -> None:
    with pytest.raises(ConfigError, match=r"power\.period_s"):
        power_config({"period_s": period_s}, [], PRIVATE)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 256, "not valid JSON"),
        (b"[" * 257, "more than 256 brackets"),
        (b'{"a":' * 257, "more than 256 brackets"),
        (line(command="abort", status="failed", reason="\ud800"), "not valid JSON"),
        (b'{"command": "status", "x": ' + b"9" * 5000 + b"}", "not valid JSON"),
        ('{"command": "status"}'.encode("utf-16"), "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (line(), "command must be one of hello, open"),
        (line(command=["hello"]), "command must be one of"),
        (line(command="format"), "got 'format'"),
        (line(command="hello", protocol=1, run_id="r"), "speaks protocol 3, the run 1: start both"),
        (line(command="start", path="/etc"), "start has no field 'path'"),
        (line(command="open", opcode=9, **{k: v for k, v in OPEN.items() if k != "command"}),
         "no field 'opcode'"),
        (encode({**OPEN, "request": []}), "request must be an object"),
        (line(command="abort", status="complete", reason=""), "failed or aborted"),
        (line(command="abort", status="failed", reason=None), "reason must be text"),
        (line(command="x" * 500), r"\.\.\."),
    ],
)  # fmt: skip
def test_what_is_not_a_command_is_refused_with_one_sentence(message: bytes, why: str) -> None:
    with pytest.raises(PowerError, match=why):
        parse(message)


@settings(deadline=None)
@given(st.binary())
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    with pytest.raises(PowerError):
        parse(data)


@settings(deadline=None)
@given(COMMANDS, st.dictionaries(FIELDS | st.text(), JSON))
def test_no_fields_do_more_than_be_refused(command: str, fields: dict[str, object]) -> None:
    with suppress(PowerError):
        parse(json.dumps({**fields, "command": command}).encode())


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["source", "state", "period_s", "profile", "x"]), JSON))
def test_no_request_does_more_than_be_refused(request: dict[str, object]) -> None:
    with suppress(ConfigError):
        config = power_config(request, [], PRIVATE)
        assert config.state is None or 0 <= config.state <= 31


def test_request_names_the_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="unknown power setting 'stat'"):
        power_config({"stat": 1}, [], PRIVATE)
    with pytest.raises(ConfigError, match=r"power\.state: .*got '1'"):
        power_config({"state": "1"}, [], PRIVATE)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50).filter(lambda data: b"\n" not in data)), st.integers(1, 9))
def test_lines_come_whole_however_they_are_cut(lines: list[bytes], size: int) -> None:
    stream = b"".join(each + b"\n" for each in lines)
    buffer = LineBuffer()
    got = [
        each
        for start in range(0, len(stream), size)
        for each in buffer.feed(stream[start : start + size])
    ]
    assert got == lines


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_endless_line_is_refused(end: bytes) -> None:
    buffer = LineBuffer()
    with pytest.raises(PowerError, match=f"longer than {MAX_LINE_BYTES}"):
        buffer.feed(b"x" * (MAX_LINE_BYTES + 1) + end)


def test_deadlines_are_counted_from_the_start() -> None:
    schedule = Schedule(0.1, 1_000_000_000)
    assert schedule.due_ns == 1_000_000_000
    schedule.advance(1_070_000_000)
    assert schedule.due_ns == 1_100_000_000
    schedule.advance(1_199_999_999)
    assert schedule.due_ns == 1_200_000_000
    assert (schedule.tick_count, schedule.missed_count) == (2, 0)


def test_missed_deadlines_are_counted_and_not_made_up_for() -> None:
    schedule = Schedule(0.1, 0)
    schedule.advance(350_000_000)
    assert (schedule.due_ns, schedule.missed_count) == (400_000_000, 3)
    schedule.advance(500_000_000)
    assert (schedule.due_ns, schedule.missed_count) == (600_000_000, 4)
