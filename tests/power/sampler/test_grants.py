"""Who may use root's sampler, and for what: users, groups, settings, drives, sockets."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model_host.drive import Model
from tests.power.nobody import (
    NOBODY,
    folder_for_all,
    give,
    need_nobody,
    needs_root,
    run_of_nobody,
    told_by_nobody,
)
from tests.power.nobody import as_nobody as start_as_nobody
from tests.power.sampler.hostile import as_nobody, connect, hello, raw
from tests.power.sampler_bench import ROOT, RUN_ID, Bench
from wattload.core.errors import ConfigError, PowerError, PowerPermissionError, PowerStateError
from wattload.power.config import PowerConfig
from wattload.power.sampler.access import CLIENT_FIELDS, Access, Peer, SamplerHost, power_config
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import encode


@pytest.fixture
def bench() -> Iterator[Bench]:
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench
        bench.clean()


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
    reported = told_by_nobody(
        "import socket, sys\nprint(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))",
        str(path),
    )
    assert int(reported) == 13  # EACCES


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


@pytest.mark.parametrize(
    "field",
    [
        {"replay": {"path": "/etc/shadow", "align": "start", "device": ""}},
        {"replay": {"path": "../another/replay-a.csv"}},
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
    assert f"a run may not set power.{next(iter(field))} here" in answer["error"]


@pytest.mark.parametrize("field", ["state", "dssd_watts", "period_s", "tail_max_s"])
def test_a_number_beyond_every_float_is_a_configuration_error(tmp_path: Path, field: str) -> None:
    host = SamplerHost(runs=tmp_path, is_service=True)
    with pytest.raises(ConfigError, match=f"power.{field}"):
        power_config({field: 10**400}, [], host)


def test_every_setting_of_power_is_a_run_s_to_choose_or_is_not() -> None:
    """A new setting belongs to the service until somebody adds it to the client's here."""
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
        with pytest.raises(PowerPermissionError, match="nvme0 is not served by this sampler"):
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


def refused_at(bench: Bench, path: Path) -> str:
    command = [*bench.program, "--socket", str(path), "--runs", str(bench.runs)]
    reported = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert reported.returncode == 1
    return reported.stderr


def test_folder_in_which_others_could_replace_the_socket_is_refused(bench: Bench) -> None:
    folder = bench.folder / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert "others could replace the socket" in refused_at(bench, folder / "s")
    assert list(folder.iterdir()) == []


def test_what_is_not_a_socket_is_not_removed(bench: Bench) -> None:
    file, link = bench.folder / "file", bench.folder / "link"
    file.write_text("kept")
    link.symlink_to(file)
    for path in (file, link):
        assert "can't be created" in refused_at(bench, path)
    assert file.read_text() == "kept"
    assert link.is_symlink()


def test_path_too_long_for_a_socket_is_one_sentence(bench: Bench) -> None:
    assert "at most 107 bytes" in refused_at(bench, bench.folder / ("x" * 120))


@needs_root
def test_impostor_is_not_trusted(bench: Bench) -> None:
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
