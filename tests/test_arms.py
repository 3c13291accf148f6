from __future__ import annotations

import pytest

from wattload.arms import labelled
from wattload.compose import compose
from wattload.sweep import expand


@pytest.mark.parametrize(
    ("swept", "labels"),
    [
        (["power.state=0,1,2"], ["PS0", "PS1", "PS2"]),
        (["power.state=null,1"], ["state-as-found", "PS1"]),
        (["power.limit_w=10,12.5"], ["limit10W", "limit12.5W"]),
        (["power.dssd_watts=16,25"], ["OCP16W", "OCP25W"]),
        (
            ["power.state=0,1", "loader=direct,torch"],
            ["PS0-direct", "PS0-torch", "PS1-direct", "PS1-torch"],
        ),
        (["power.state=0,1", "seed=1,2"], ["PS0", "PS0", "PS1", "PS1"]),
    ],
)
def test_arm_of_a_sweep_is_called_by_its_knob(swept: list[str], labels: list[str]) -> None:
    for overrides, label in zip(expand(["workload=null", *swept]), labels, strict=True):
        assert overrides[-1] == f"label={label}"
        config, _ = compose([*overrides, "target.path=/"])
        assert config.label == label


def test_label_that_was_given_stays() -> None:
    assert list(expand(["power.state=0,1", "label=mine"])) == [
        ("power.state=0", "label=mine"),
        ("power.state=1", "label=mine"),
    ]
    assert list(expand(["power.state=0", "label=A,B"])) == [
        ("power.state=0", "label=A"),
        ("power.state=0", "label=B"),
    ]


def test_sweep_without_a_knob_is_left_alone() -> None:
    assert list(expand(["loader=direct,torch"])) == [("loader=direct",), ("loader=torch",)]
    assert list(expand(["power.state=1", "loader=direct,torch"])) == [
        ("power.state=1", "loader=direct"),
        ("power.state=1", "loader=torch"),
    ]


def test_label_is_one_that_a_run_takes() -> None:
    (*_, label) = labelled(
        ("power.state=1", "target.path=/mnt/a very/long path/that/goes/on/and/on"),
        {"power.state", "target.path"},
    )
    assert label == "label=PS1-_mnt_a_very_long_path_that_goes_on_a"
