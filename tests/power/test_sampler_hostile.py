"""A sampler that runs as root against users who would like to be: what they try, and what becomes
of it. The sampler lives on, serves the next one, and neither reads nor writes what they could not.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.power.model_drive import Model, load, store
from tests.power.nobody import (
    NOBODY,
    folder_for_all,
    give,
    lines_of,
    need_nobody,
    needs_root,
    run_of_nobody,
    told_by_nobody,
)
from tests.power.nobody import as_nobody as start_as_nobody
from tests.power.sampler_bench import ROOT, RUN_ID, Bench, wait_for
from wattload.core.errors import ConfigError, PowerError, PowerPermissionError, PowerStateError
from wattload.core.record.run import RECORD_FILE
from wattload.power.client import SamplerClient
from wattload.power.config import PowerConfig
from wattload.power.sampler.access import Access
from wattload.power.sampler.options import OneLineFormatter
from wattload.power.sampler.peer import Peer
from wattload.power.sampler.protocol import PROTOCOL_VERSION, encode
from wattload.power.sampler.request import CLIENT_FIELDS

SAY = """
import json, socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
answers = stream.makefile()
for message in sys.argv[2:]:
    stream.sendall(message.encode() + b"\\n")
    sys.stdout.write(answers.readline())
"""

ACT = """
import os, sys
from pathlib import Path
from wattload.power.sampler.peer import Peer, acting_as
os.setgroups([0, 6])
with acting_as(Peer(1, 65534, 65534, (65533,))):
    print(os.getgroups(), os.geteuid())
    Path(sys.argv[1], "made").touch()
    try:
        Path(sys.argv[2]).read_text()
    except PermissionError:
        print("closed")
print(os.getgroups(), Path(sys.argv[2]).read_text())
"""


def hello(run_id: str = RUN_ID) -> dict[str, object]:
    return {"command": "hello", "protocol": PROTOCOL_VERSION, "run_id": run_id}


@pytest.fixture
def bench() -> Iterator[Bench]:
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench
        bench.clean()


def connect(bench: Bench, path: Path) -> SamplerClient:
    client = SamplerClient.connect(path)
    bench.clients.append(client)
    return client


def as_nobody(path: Path, *messages: dict[str, object]) -> list[dict[str, object]]:
    need_nobody()
    told = told_by_nobody(SAY, str(path), *(json.dumps(each) for each in messages))
    return [json.loads(line) for line in told.splitlines()]


def is_served(bench: Bench, path: Path) -> None:
    """Go through a whole run, as the next user would."""
    run_id = f"after-{time.monotonic_ns()}"
    bench.add_run(run_id)
    client = connect(bench, path)
    client.hello(run_id)
    client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    client.start()
    assert client.finish().states[0].restored == 0
    client.close()


@needs_root
def test_root_s_groups_are_left_behind_with_its_name() -> None:
    with folder_for_all() as folder:
        give(folder)
        secret = folder / "secret"
        secret.write_text("of root's group")
        secret.chmod(0o640)
        told = subprocess.run(
            [sys.executable, "-c", ACT, str(folder), str(secret)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stdout.splitlines()
        assert told == ["[65533] 0", "closed", "[0, 6] of root's group"]
        made = (folder / "made").stat()
        assert (made.st_uid, made.st_gid) == (NOBODY, NOBODY)


def pipe_as_draft(run: Path) -> None:
    (run / "draft.json").unlink()
    os.mkfifo(run / "draft.json")


def pipe_as_record(run: Path) -> None:
    os.mkfifo(run / (RECORD_FILE + ".tmp"))


def link_as_record(run: Path) -> None:
    (run / (RECORD_FILE + ".tmp")).symlink_to("/etc/motd")


def endless_draft(run: Path) -> None:
    (run / "draft.json").unlink()
    (run / "draft.json").symlink_to("/dev/zero")


def huge_draft(run: Path) -> None:
    os.truncate(run / "draft.json", 1 << 40)


def deep_draft(run: Path) -> None:
    (run / "draft.json").write_text('{"a":' * 100_000)


def draft_of_half_letters(run: Path) -> None:
    draft = json.loads((run / "draft.json").read_text())
    draft["comparison"]["arm"] = "\ud800"
    (run / "draft.json").write_text(json.dumps(draft))


def pipe_as_journal(run: Path) -> None:
    os.mkfifo(run / "journal-0.jsonl")


def endless_journal(run: Path) -> None:
    (run / "journal-0.jsonl").symlink_to("/dev/zero")


def huge_journal(run: Path) -> None:
    (run / "journal-0.jsonl").touch()
    os.truncate(run / "journal-0.jsonl", 1 << 40)


def deep_journal(run: Path) -> None:
    (run / "journal-0.jsonl").write_text("[" * 100_000 + "\n" + '{"event":' * 100_000 + "\n")


def failure_of_half_letters(run: Path) -> None:
    event = {"event": "failed", "status": "failed", "reason": "\ud800"}
    (run / "journal-0.jsonl").write_text(json.dumps(event) + "\n")


def journal_of_many_beginnings(run: Path) -> None:
    events = [{"event": "begin", "name": f"phase {number}"} for number in range(20_000)]
    (run / "journal-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))


PLANTED = [
    pipe_as_draft, pipe_as_record, link_as_record, endless_draft, huge_draft, deep_draft,
    draft_of_half_letters, pipe_as_journal, endless_journal, huge_journal, deep_journal,
    failure_of_half_letters, journal_of_many_beginnings,
]  # fmt: skip


@pytest.fixture(scope="module")
def trapped() -> Iterator[tuple[Bench, Path]]:
    """A service that meets one trap after the other, and must be there for the last one."""
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench, bench.service("--user", str(NOBODY))
        bench.clean()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_no_file_in_a_run_s_folder_stops_the_sampler(
    trapped: tuple[Bench, Path], plant: Callable[[Path], None]
) -> None:
    bench, path = trapped
    run = bench.add_run(f"run-{plant.__name__}")
    plant(run)
    if os.geteuid() == 0:
        give(run, *run.iterdir())
        as_nobody(path, hello(run.name), {"command": "abort", "status": "failed", "reason": "r"})
    else:
        client = connect(bench, path)
        client.hello(run.name)
        client.abort("failed", "r")
    is_served(bench, path)
    record = run / RECORD_FILE
    if record.exists():
        assert stat.S_ISREG(record.lstat().st_mode)
        assert record.stat().st_size < 16 << 20


@needs_root
def test_link_to_root_s_file_is_neither_read_nor_written(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    secret = bench.add_run("of-root")
    (secret / "draft.json").chmod(0o600)
    run = run_of_nobody(bench, "mine")
    (run / "draft.json").unlink()
    os.link(secret / "draft.json", run / "draft.json")
    victim = bench.folder / "victim"
    victim.write_text("root's")
    (run / "samples-host-1.jsonl").symlink_to(victim)
    opened: dict[str, object] = {
        "command": "open", "request": {"source": "none"}, "devices": [], "block_devices": [],
    }  # fmt: skip
    answers = as_nobody(path, hello("mine"), opened, {"command": "start"})
    assert [answer["ok"] for answer in answers] == [True, True, False]
    wait_for(lambda: any("has no record" in line for line in lines_of(bench)))
    assert not (run / RECORD_FILE).exists()
    assert victim.read_text() == "root's"


@needs_root
def test_run_folder_that_its_user_may_not_enter_is_a_refusal(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    run_of_nobody(bench, "mine")
    bench.runs.chmod(0o700)
    (answer,) = as_nobody(path, hello("mine"))
    assert "there is no run folder" in str(answer["error"])
    is_served(bench, path)


@needs_root
def test_group_opens_the_socket_to_its_members_alone(bench: Bench) -> None:
    path = bench.service("--group", str(NOBODY))
    found = path.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o660, 0, NOBODY)
    run_of_nobody(bench, "mine")
    assert as_nobody(path, hello("mine"))[0]["ok"] is True


@needs_root
def test_another_group_is_kept_out_by_the_socket_itself(bench: Bench) -> None:
    need_nobody()
    path = bench.service("--group", "1")
    told = told_by_nobody(
        "import socket, sys\nprint(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))",
        str(path),
    )
    assert int(told) == 13  # EACCES


def test_supplementary_group_counts() -> None:
    access = Access(gids=frozenset({7}))
    assert access.admits(Peer(1, 4242, 4242, (5, 7)))
    assert not access.admits(Peer(1, 4242, 4242, (5,)))
    assert access.admits(Peer(1, 0, 0))


def test_two_groups_and_users_open_the_socket_to_the_kernel_s_word() -> None:
    assert Access().socket_mode == 0o600
    assert Access(gids=frozenset({7})).socket_mode == 0o660
    assert Access(gids=frozenset({7, 8})).socket_mode == 0o666
    assert Access(uids=frozenset({4242}), gids=frozenset({7})).socket_gid is None


@pytest.mark.parametrize(("users", "groups"), [(["no such user"], []), ([], ["no such group"])])
def test_unknown_user_or_group_is_a_configuration_error(
    users: list[str], groups: list[str]
) -> None:
    with pytest.raises(ConfigError, match="no such"):
        Access.named(users, groups)


TRACE = "# evidence: measured\ntime_s,power_w\n0,10\n3600,10\n"


@needs_root
def test_replayed_trace_is_read_with_the_rights_of_the_run_s_user(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    run = run_of_nobody(bench, "mine")
    secret, own = run / "secret", run / "own"
    for each in (secret, own):
        each.write_text(TRACE)
        each.chmod(0o600)
    give(own)
    opened: dict[str, object] = {
        "command": "open",
        "request": {"source": "replay", "replay": {"path": "replay.csv"}},
        "devices": ["nvme0"],
        "block_devices": [],
    }
    secret.rename(run / "replay.csv")
    _, answer = as_nobody(path, hello("mine"), opened)
    assert "can't be replayed: Permission denied" in str(answer["error"])
    (run / "record.json").unlink(missing_ok=True)
    own.rename(run / "replay.csv")
    wait_for(lambda: as_nobody(path, hello("mine"), opened)[1]["ok"] is True)


def raw(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(30)
    stream.connect(str(path))
    return stream


def sampled(bench: Bench, path: Path) -> SamplerClient:
    client = connect(bench, path)
    client.hello(RUN_ID)
    client.open(PowerConfig(period_s=0.02), devices=["nvme0"], block_devices=[])
    client.start()
    return client


def goes_on(client: SamplerClient) -> None:
    """Return when the run has been sampled some more, and with no deadline missed for long."""
    before = client.status().tick_count
    wait_for(lambda: client.status().tick_count > before + 20)


def test_client_that_reads_no_answer_is_sampled_on_and_holds_nobody_up(bench: Bench) -> None:
    path = bench.service()
    opening = {"request": {"period_s": 0.02}, "devices": ["nvme0"], "block_devices": []}
    with raw(path) as deaf:
        for message in (hello(), {"command": "open", **opening}, {"command": "start"}):
            deaf.sendall(encode(message))
        samples = bench.run / "samples-host-1.jsonl"
        wait_for(samples.exists)
        deaf.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                deaf.send(encode({"command": "status"}) * 100)
        size_bytes = samples.stat().st_size
        wait_for(lambda: samples.stat().st_size > size_bytes + 10_000)
        with pytest.raises(PowerError, match="busy with run run-1"):
            connect(bench, path).hello(RUN_ID)
    wait_for((bench.run / RECORD_FILE).exists)
    is_served(bench, path)


def test_client_that_stalls_amid_a_line_holds_up_itself_alone(bench: Bench) -> None:
    path = bench.service()
    with raw(path) as stalled:
        stalled.sendall(b'{"command": "hel')
        client = sampled(bench, path)
        goes_on(client)
        client.finish()
        stalled.sendall(b'lo"}\n')
        assert json.loads(stalled.makefile().readline())["ok"] is False


def test_client_that_is_refused_for_ever_is_given_up(bench: Bench) -> None:
    path = bench.service()
    with raw(path) as stream:
        with suppress(BrokenPipeError):
            for _ in range(200):
                stream.sendall(b"{}\n")
        with suppress(ConnectionResetError):
            answers = stream.makefile().read().splitlines()
            assert len(answers) == 100
    is_served(bench, path)


def test_child_of_a_dead_run_can_not_keep_the_sampler(bench: Bench) -> None:
    """Its parent is gone and it talks on: without a bound its flood would be heard for ever."""
    path = bench.service()
    talker = """
import os, socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
stream.sendall(b'%s\\n')
stream.recv(4096)
if os.fork() == 0:
    try:
        while True:
            stream.sendall(b'{"command":"status"}\\n' * 500)
            stream.setblocking(False)
            try:
                stream.recv(1 << 20)
            except BlockingIOError:
                pass
            stream.setblocking(True)
    except OSError:
        os._exit(0)
os._exit(0)
"""
    message = json.dumps(hello())
    subprocess.run(
        [sys.executable, "-c", talker.replace("%s", message), str(path)],
        check=True,
    )
    wait_for((bench.run / RECORD_FILE).exists)
    is_served(bench, path)


@pytest.mark.parametrize(
    "field",
    [
        {"replay": {"path": "/etc/shadow", "align": "start", "device": ""}},
        {"replay": {"path": "../another/replay.csv"}},
        {"quarch": {"module": "tcp::qtl1999-02-020", "host": "10.0.0.1"}},
        {"sampler_socket": "/run/other.sock"},
    ],
    ids=["replay", "replay-in-another-folder", "quarch", "sampler_socket"],
)
def test_no_run_chooses_what_the_sampler_reads_or_reaches(
    bench: Bench, field: dict[str, object]
) -> None:
    path = bench.service()
    with raw(path) as stream:
        answers = stream.makefile()
        for message in (
            hello(),
            {"command": "open", "request": field, "devices": [], "block_devices": []},
        ):
            stream.sendall(encode(message))
            answer = json.loads(answers.readline())
    assert answer["kind"] == "PowerPermissionError"
    assert f"power.{next(iter(field))} is not for a run to choose here" in answer["error"]


def test_every_setting_of_power_is_a_run_s_to_choose_or_is_not() -> None:
    """A new one is the service's own until somebody has thought about it here."""
    names = {field.name for field in dataclasses.fields(PowerConfig)}
    assert names - CLIENT_FIELDS == {"quarch", "replay", "redfish", "sampler_socket"}
    assert names >= CLIENT_FIELDS


def test_controller_that_is_not_served_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.set_up(nvme0=Model(), nvme1=Model(serial="TWO"))
    try:
        path = bench.service("--device", "nvme1")
        client = connect(bench, path)
        client.hello(RUN_ID)
        with pytest.raises(PowerPermissionError, match="nvme0 is none of the controllers"):
            client.open(PowerConfig(state=1), devices=["nvme0", "vda"], block_devices=[])
        client.abort("failed", "r")
        client.hello(RUN_ID)
        client.open(PowerConfig(state=1), devices=["nvme1", "vda"], block_devices=[])
        assert (bench.state("nvme0"), bench.state("nvme1")) == (0, 1)
    finally:
        bench.clean()


def test_system_drive_is_the_administrator_s_to_grant(bench: Bench) -> None:
    (bench.models / "nvme0.system").touch()
    wish = PowerConfig(state=1, allow_system_drive=True)
    client = connect(bench, bench.service())
    client.hello(RUN_ID)
    with pytest.raises(PowerPermissionError, match="without --allow-system-drive"):
        client.open(wish, devices=["nvme0"], block_devices=[])
    client.abort("failed", "r")
    client.hello(RUN_ID)
    with pytest.raises(PowerStateError, match="holds root or swap"):
        client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    client.close()
    bench.processes[-1].terminate()
    bench.processes[-1].wait()
    bench.add_run("run-2")
    granted = connect(bench, bench.service("--allow-system-drive"))
    granted.hello("run-2")
    granted.open(wish, devices=["nvme0"], block_devices=[])
    assert bench.state() == 1


@pytest.mark.parametrize("when", ["open", "sampling"])
def test_bug_that_one_run_meets_ends_that_run_alone(bench: Bench, when: str) -> None:
    path = bench.service()
    client = connect(bench, path)
    client.hello(RUN_ID)
    healthy = load(bench.models / "nvme0.json")
    broken = dataclasses.replace(healthy, crashes=(0x02,))
    if when == "sampling":
        client.open(PowerConfig(state=1, period_s=0.02), devices=["nvme0"], block_devices=[])
        client.start()
        store(bench.models / "nvme0.json", dataclasses.replace(broken, state=1))
    else:
        store(bench.models / "nvme0.json", broken)
        with pytest.raises(PowerError, match="the sampler failed at this; its log says why"):
            client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    wait_for((bench.run / RECORD_FILE).exists)
    assert bench.state() == 0
    store(bench.models / "nvme0.json", healthy)
    assert any("| ZeroDivisionError: a bug" in line for line in lines_of(bench))
    is_served(bench, path)


def test_log_keeps_to_one_line_of_letters() -> None:
    record = logging.LogRecord(
        "x",
        logging.ERROR,
        "f",
        1,
        "run %s: %s",
        ("r", "a\nERROR b\x1b[2J\u202e" + "x" * 9000),
        None,
    )
    line = OneLineFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("ERROR run r: a\\nERROR b\\x1b[2J\\u202exxx")
    assert line.isprintable()
    assert len(line) < 2100


def refused_at(bench: Bench, path: Path) -> str:
    command = [*bench.program, "--socket", str(path), "--runs", str(bench.runs)]
    told = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert told.returncode == 1
    return told.stderr


def test_folder_in_which_others_could_replace_the_socket_is_refused(bench: Bench) -> None:
    folder = bench.folder / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert "others could replace the socket" in refused_at(bench, folder / "s")
    assert list(folder.iterdir()) == []


def test_what_is_no_socket_is_not_removed(bench: Bench) -> None:
    file, link = bench.folder / "file", bench.folder / "link"
    file.write_text("kept")
    link.symlink_to(file)
    for path in (file, link):
        assert "can't be made" in refused_at(bench, path)
    assert file.read_text() == "kept"
    assert link.is_symlink()


def test_path_too_long_for_a_socket_is_one_sentence(bench: Bench) -> None:
    assert "at most 107 bytes" in refused_at(bench, bench.folder / ("x" * 120))


@needs_root
def test_impostor_is_not_believed(bench: Bench) -> None:
    need_nobody()
    folder = bench.folder / "squatted"
    folder.mkdir()
    give(folder)
    path = folder / "s"
    process = start_as_nobody(
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\n"
        "s.listen()\nprint('ready', flush=True)\ns.accept()",
        str(path),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    with pytest.raises(PowerError, match=f"served by user {NOBODY}, who is neither root nor you"):
        SamplerClient.connect(path)
    process.wait(10)
    process.stdout.close()
    process.stderr.close()


def test_second_run_on_one_drive_is_refused_whoever_samples_it(bench: Bench) -> None:
    """Two services, two sockets: what they share is the drive, and the journal's folder."""
    client = connect(bench, bench.service())
    client.hello(RUN_ID)
    client.open(PowerConfig(), devices=["nvme0"], block_devices=[])
    bench.add_run("run-2")
    second = bench.spawn()
    second.hello("run-2")
    with pytest.raises(PowerError, match="in use by another run"):
        second.open(PowerConfig(), devices=["nvme0"], block_devices=[])
    client.start()
    assert client.finish().states


def test_two_controllers_of_one_drive_are_one_run_s(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.set_up(nvme0=Model(serial="TWIN"), nvme1=Model(serial="TWIN"))
    try:
        client = bench.spawn()
        client.hello(RUN_ID)
        client.open(PowerConfig(), devices=["nvme0", "nvme1"], block_devices=[])
    finally:
        bench.clean()
