"""Configuration: everything there is composes, and what is wrong fails while composing."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from wattload.core.errors import ConfigError
from wattload.run.compose import compose, groups, options
from wattload.run.config import RunConfig

TARGET = "target.path=/mnt/nvme"
ROOT = Path(__file__).parents[2]


def _options() -> list[tuple[str, str]]:
    return [
        (group, option)
        for group in groups()
        for option in options(group)
        if (group, option) != ("power", "declared")
    ]


NEEDS = {
    ("power", "quarch"): "power.quarch.module=usb::qtl1847-01-016",
    ("power", "redfish"): "power.redfish.url=https://bmc.example",
    ("power", "replay"): "power.replay.path=trace.csv",
}
"""Options that stand for nothing without a setting of the user's."""


@pytest.mark.parametrize(("group", "option"), _options())
def test_every_yaml_file_composes(group: str, option: str) -> None:
    needed = [NEEDS[group, option]] if (group, option) in NEEDS else []
    config, config_values = compose([TARGET, f"{group}={option}", *needed])
    assert isinstance(config, RunConfig)
    assert config_values["target"]["path"] == "/mnt/nvme"


@pytest.mark.parametrize("option", options("loader"))
def test_a_loaders_target_makes_the_configuration_that_a_run_gets(option: str) -> None:
    """Which is what makes loaders and stores: whoever instantiates by Hydra gets the same."""
    from hydra.utils import instantiate

    config, config_values = compose([TARGET, f"loader={option}"])
    made = instantiate(config_values["loader"])
    assert made == config.loader


def test_no_yaml_file_is_left_out() -> None:
    files = {
        path.relative_to(ROOT / "configs").as_posix() for path in (ROOT / "configs").rglob("*.yaml")
    }
    composed = {f"{group}/{option}.yaml" for group in groups() for option in options(group)}
    nested = {name for name in files if name.count("/") > 1}
    assert files - nested == composed | {"main.yaml"}


@pytest.mark.parametrize("scale", ["demo", "quick", "full"])
@pytest.mark.parametrize("workload", options("workload"))
def test_every_workload_has_its_counts_at_every_scale(workload: str, scale: str) -> None:
    config, _ = compose([TARGET, f"workload={workload}", f"scale={scale}"])
    assert config.scale.name == scale


@pytest.mark.parametrize(
    "profile",
    sorted(
        path.stem
        for path in (ROOT / "configs/power/profile").glob("*.yaml")
        if path.stem != "custom"
    ),
)
def test_every_declared_profile_composes(profile: str) -> None:
    config, _ = compose([TARGET, "power=declared", f"power/profile={profile}"])
    assert config.power.profile.citation


def test_a_custom_profile_takes_its_watts_from_the_command_line() -> None:
    declared = [TARGET, "power=declared", "power/profile=custom"]
    config, _ = compose([*declared, "power.profile.max_w=25"])
    assert config.power.profile.max_w == 25.0
    with pytest.raises(ConfigError, match="neither max_w nor typical_w"):
        compose(declared)


def test_scale_changes_counts_and_nothing_else() -> None:
    """Below ``demo``, no record size, batch, step time or block size may depend on the scale."""
    counts = ("count", "epochs", "rounds", "rows", "slice_bytes", "steps")
    for workload, loader in product(options("workload"), options("loader")):
        quick, full = (
            compose([TARGET, f"workload={workload}", f"loader={loader}", f"scale={scale}"])[1]
            for scale in ("quick", "full")
        )
        assert quick["loader"] == full["loader"]
        differing = {
            key for key in quick["workload"] if quick["workload"][key] != full["workload"][key]
        }
        assert all(any(count in key for count in counts) for key in differing), differing


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "workload.batch_sample=7",
            ["workload.batch_sample", "did you mean workload.batch_samples"],
        ),
        ("workload.batch_samples=seven", ["batch_samples must be an integer, got 'seven'"]),
        ("workload.batchsize=7", ["did you mean workload.batch_samples"]),
        ("power=declared", ["power/profile has no value", "custom"]),
        ("seed", ["malformed override", "write it as KEY=VALUE"]),
        ("workload=unet4d", ["unet4d", "did you mean unet3d", "checkpoint"]),
        ("lable=B", ["lable", "did you mean label"]),
        ("seed=x", ["seed", "x"]),
        ("scale=huge", ["huge", "demo, full, quick"]),
        ("label=../../etc", ["label", "letters"]),
        ("repeat=0", ["repeat", "1 or more"]),
        ("target.path=[]", ["target.path"]),
        ("target.path=7", ["target.path"]),
        ("power.state=40", ["power.state", "31"]),
        ("power.source=psu", ["psu", "nvme"]),
        ("workload.[=", ["override"]),
        ("+workload.extra=1", ["extra"]),
        ("scale.name=quick", ["scale.name", "demo, full, quick"]),
        ("scale.allows_root=true", ["scale.allows_root", "each scale has its own guards"]),
        ("sweep=acc", ["acc", "accelerators, none"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(override: str, words: list[str]) -> None:
    given = [override] if override.startswith("target.") else [TARGET, override]
    with pytest.raises(ConfigError) as caught:
        compose(given)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_a_missing_target_reports_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match=r"target\.path has no value; e\.g\. target\.path=/mnt"):
        compose([])
