"""``wattload settings`` and the list of workloads."""

from __future__ import annotations

import json

import pytest

from wattload.cli import settings as cli_settings
from wattload.cli.main import dispatch
from wattload.cli.settings import LISTED_GROUPS, general_settings, option_settings, options_of
from wattload.core.errors import ConfigError
from wattload.core.settings import settings_of
from wattload.run.compose import compose
from wattload.run.config_errors import OF_FIO
from wattload.run.config_groups import option_schemas, options

COMMANDS = ("run", "datagen")


def test_every_setting_has_a_meaning_and_every_option_a_summary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Defaults are not what is looked at, and are composed for each option.
    monkeypatch.setattr(cli_settings, "_default", lambda *_: "")
    rows = list(general_settings())
    for group in ("workload", "loader", "load"):
        for option in options(group):
            rows += option_settings(group, option)
    assert len(rows) > 90
    assert [row.name for row in rows if not row.meaning] == []
    for group in LISTED_GROUPS:
        assert all(option.summary for option in options_of(group))


def test_every_setting_of_a_composed_run_is_documented() -> None:
    _, values = compose(["target.path=/mnt", "workload=dlrm", "power=quarch", *QUARCH])
    documented = {row.name for row in general_settings()}
    documented |= {row.name for row in option_settings("workload", "dlrm")}
    documented |= {row.name for row in option_settings("loader", "direct")}
    documented |= {row.name for row in option_settings("load", "none")}
    internal = {"workload._target_", "loader._target_", "workload.scales", "power.profile"}
    assert set(_leaves(values, "")) - documented - internal - {"power.replay"} <= {
        key for key in _leaves(values, "") if key.startswith("scale.")
    }


QUARCH = ("power.quarch.module=tcp::qtl1999-02-020",)


def _leaves(node: object, prefix: str) -> list[str]:
    stop = ("workload.scales", "accelerator.step_s")
    if not isinstance(node, dict) or prefix in stop:
        return [prefix]
    names = (f"{prefix}.{key}" if prefix else str(key) for key in node)
    return [
        leaf
        for name, value in zip(names, node.values(), strict=True)
        for leaf in _leaves(value, name)
    ]


def test_one_workload_and_loader_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["settings", "dlrm", "direct", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["workload.row_count"]["default"] == "2400000 (demo 20000, full 4373472329)"
    assert rows["loader.block_bytes"]["allowed"] == "a multiple of 4096, 4096 to 1073741824 bytes"


def test_an_option_is_described_whole_where_its_settings_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dispatch(["settings", "gpu_read"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    summary = next(each.summary for each in options_of("workload") if each.name == "gpu_read")
    assert said.startswith(f"workload=gpu_read: {summary} workload.")


def test_a_power_source_can_be_listed_with_its_own_settings_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dispatch(["settings", "quarch", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names[0] == "power.quarch.module"
    assert "power.state" in names
    assert not any(name.startswith(("power.replay.", "power.source")) for name in names)


def test_an_experiment_is_listed_with_what_it_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["settings", "power_states", "workers"]) == 0
    printed = capsys.readouterr().out
    assert "experiment=power_states: A drive in power state 0" in printed
    for setting in ("workload=unet3d", "interleave=abba", "repeat=8", "power.state=0,1"):
        assert f"\n  {setting}\n" in printed
    assert printed.endswith("\n  workload.workers=1,2,4,8,16,24\n")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("repeat", ["repeat"]),
        ("power.idle_s", ["power.idle_s"]),
        ("power.replay", ["power.replay.path"]),
        ("workload.queue_depth", ["workload.queue_depth"]),
        ("sweep", []),
        ("workload", []),
    ],
)
def test_a_setting_or_a_group_can_be_listed(
    name: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch(["settings", name, "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names[: len(shown)] == shown
    assert all(each.startswith(name) for each in names)


def test_a_group_is_listed_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["settings", "power"]) == 0
    said = capsys.readouterr().out
    assert "\n  replay " in said
    assert "\n  power.idle_s=null\n" in said


def test_an_unknown_name_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"'unet'; did you mean unet3d\?; names are workload=.*"):
        dispatch(["settings", "unet"])


def test_a_name_unlike_all_others_has_no_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"^unknown name 'nope'; names are workload="):
        dispatch(["settings", "nope"])


def test_a_setting_of_a_workload_without_any_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting workload\.batchsize; the selected wor"):
        compose(["workload=null", "target.path=/mnt", "workload.batchsize=3"])


def test_a_workload_without_its_key_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="did you mean workload=unet3d instead of unet3d"):
        dispatch(["run", "unet3d"])


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_workload_the_workloads_are_listed(command: str) -> None:
    with pytest.raises(ConfigError, match="no workload given") as caught:
        dispatch([command, "target.path=/nowhere"])
    listed = caught.value.__notes__
    for name in options("workload"):
        assert any(line.startswith(f"  {name} ") for line in listed)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("loader.block_bytes=1000", "loader.block_bytes must be a multiple of 4096, .* got 1000"),
        ("seed=-1", "seed must be 0 or more, got -1"),
        ("workload=dlrm workload.row_count=0", "workload.row_count must be 1 or more, got 0"),
        ("accelerator.count=0", "accelerator.count must be 1 to 1024, got 0"),
        ("power.period_s=1e308", "power.period_s must be 0.01 to 60 s, got 1e.308"),
        (
            "interleave=" + "x" * 1000,
            "interleave must be one of none, abba, aa, got 'x{60}'\\.\\.",
        ),
    ],
)
def test_every_setting_is_checked_whatever_uses_it(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        compose(["workload=null", "target.path=/mnt", *override.split()])


@pytest.mark.parametrize(
    ("workload", "word", "instead"),
    [
        ("unet3d", "bs=4k", "loader.block_bytes"),
        ("unet3d", "rw=randread", "workload="),
        ("unet3d", "direct=1", "loader=direct"),
        ("gpu_read", "numjobs=4", "workload.threads"),
        ("random_write", "size=1G", "workload.range_bytes"),
        ("random_write", "runtime=60", "workload.duration_s is a setting of workload=gpu_random_r"),
    ],
)
def test_an_option_of_fio_is_answered_with_the_setting_for_it(
    workload: str, word: str, instead: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^unknown setting \w+; .*{instead}"):
        compose([f"workload={workload}", "target.path=/mnt", word])


def test_the_settings_for_options_of_fio_exist() -> None:
    names = {row.name for row in general_settings()} | {"workload"}
    for group in ("workload", "loader"):
        for schema in option_schemas(group).values():
            names |= {named.name for named in settings_of(schema, group)}
    meant = {each for settings in OF_FIO.values() for each in settings if "=" not in each}
    assert meant - names == set()


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("unet3d", "epochs"),
        ("dlrm", "rounds"),
        ("checkpoint", "checkpoint_count"),
        ("checkpoint", "keep"),
    ],
)
def test_repetitions_whose_results_are_kept_in_memory_are_bounded(workload: str, name: str) -> None:
    overrides = [f"workload={workload}", f"workload.{name}={2**62}", "target.path=/mnt"]
    with pytest.raises(ConfigError, match=rf"^workload.{name} must be 1 to \d+, got {2**62}$"):
        compose(overrides)
