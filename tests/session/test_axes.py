from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.core.errors import ConfigError
from wattload.run.compose import compose
from wattload.session.axes import LONGEST_NAME, Axis, axis_names, labelled, read_axes


def runs_of(*overrides: str) -> list[tuple[str, ...]]:
    return list(labelled(read_axes(overrides, multirun=True)))


@pytest.mark.parametrize(
    ("swept", "labels"),
    [
        (["power.state=0,1,2"], ["PS0", "PS1", "PS2"]),
        (["power.state=null,1"], ["state-as-found", "PS1"]),
        (["power.limit_w=10,12.5"], ["limit10W", "limit12.5W"]),
        (["power.dssd_watts=16,25"], ["OCP16W", "OCP25W"]),
        (["power.apst=true,false"], ["apst-True", "apst-False"]),
        (["loader=direct,torch"], ["direct", "torch"]),
        (["power.state=1", "loader=direct,torch"], ["direct", "torch"]),
        (["loader.engine=io_uring,pread"], ["engine-io_uring", "engine-pread"]),
        (
            ["power.state=0,1", "loader=direct,torch"],
            ["PS0-direct", "PS0-torch", "PS1-direct", "PS1-torch"],
        ),
        (["power.state=0,1", "seed=1,2"], ["PS0", "PS0", "PS1", "PS1"]),
        (["seed=1,2", "loader=direct,torch"], ["direct", "torch", "direct", "torch"]),
    ],
)
def test_arm_of_a_sweep_is_called_by_what_is_compared(swept: list[str], labels: list[str]) -> None:
    for overrides, label in zip(runs_of("workload=null", *swept), labels, strict=True):
        assert overrides[-1] == f"label={label}"
        config, _ = compose([*overrides, "target.path=/"])
        assert config.label == label


def test_swept_labels_name_the_arms_in_order() -> None:
    assert runs_of("target.path=/mnt/a,/mnt/b", "label=old,new", "workload.workers=1,2") == [
        ("target.path=/mnt/a", "workload.workers=1", "label=old"),
        ("target.path=/mnt/a", "workload.workers=2", "label=old"),
        ("target.path=/mnt/b", "workload.workers=1", "label=new"),
        ("target.path=/mnt/b", "workload.workers=2", "label=new"),
    ]


@pytest.mark.parametrize(
    ("swept", "words"),
    [
        (["loader=direct,torch"], "label has 3 values but loader has 2"),
        (["loader=direct,torch", "power.state=0,1"], "the combinations of loader and power.state"),
    ],
)
def test_labels_that_do_not_match_the_arms_are_refused(swept: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        runs_of(*swept, "label=a,b,c")


def test_label_that_was_given_stays() -> None:
    assert runs_of("power.state=0,1", "label=mine") == [
        ("power.state=0", "label=mine"),
        ("power.state=1", "label=mine"),
    ]
    assert runs_of("power.state=0", "label=A,B") == [
        ("power.state=0", "label=A"),
        ("power.state=0", "label=B"),
    ]


def test_points_of_a_curve_are_one_arm() -> None:
    assert runs_of("workload=unet3d", "workload.computation_s=1,2") == [
        ("workload=unet3d", "workload.computation_s=1"),
        ("workload=unet3d", "workload.computation_s=2"),
    ]


def test_a_setting_of_some_swept_options_is_left_out_for_the_others() -> None:
    runs = runs_of(
        "load=none,busy", "load.cpu_share=0.7", "loader=cufile,bounce", "loader.mode=auto"
    )
    assert [each[:-1] for each in runs] == [
        ("load=none", "loader=cufile", "loader.mode=auto"),
        ("load=none", "loader=bounce"),
        ("load=busy", "load.cpu_share=0.7", "loader=cufile", "loader.mode=auto"),
        ("load=busy", "load.cpu_share=0.7", "loader=bounce"),
    ]


@pytest.mark.parametrize("group", [["load=none,stressapptest"], ["load=none"], []])
def test_a_setting_of_no_swept_option_is_left_to_be_refused(group: list[str]) -> None:
    for overrides in runs_of(*group, "load.cpu_share=0.7"):
        with pytest.raises(ConfigError, match=r"load\.cpu_share is a setting of load=busy, not of"):
            compose([*overrides, "workload=null", "target.path=/"])


def test_values_of_a_setting_that_only_some_swept_options_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"load\.cpu_share is swept, but load=none does not have"):
        runs_of("load=none,busy", "load.cpu_share=0.5,0.7")
    assert len(runs_of("load=busy,stressapptest", "load.alone_s=10,20")) == 4


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ("/mnt/a,/mnt/b", ("a", "b")),
        ("/mnt/a/data,/mnt/b/data", ("a", "b")),
        ("/mnt/a/x,/mnt/b/y", ("a_x", "b_y")),
        ("/mnt,/mnt/b", ("mnt", "b")),
        ("'/mnt/old drive','/mnt/new drive'", ("old_drive", "new_drive")),
        ("[/mnt/a,/mnt/b],[/mnt/c,/mnt/d]", ("mnt_a_mnt_b", "mnt_c_mnt_d")),
        ("/d/d,/d/d/d", ("d-1", "d-2")),
    ],
)
def test_directories_are_named_by_what_differs(paths: str, names: tuple[str, ...]) -> None:
    (axis,) = read_axes([f"target.path={paths}"], multirun=True)
    assert axis_names([axis]) == [names]


def test_settings_of_a_single_run_sweep_nothing() -> None:
    (axis,) = read_axes(["target.path=/a,/b"], multirun=False)
    assert (axis.texts, axis.is_swept) == (("target.path=/a,/b",), False)


@given(st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=4, unique=True))
def test_every_name_is_a_label_of_its_own(values: list[str]) -> None:
    axes = [
        Axis(key=key, texts=tuple(f"{key}={value}" for value in values), is_swept=True)
        for key in ("target.path", "power.state", "loader")
    ]
    names = axis_names(axes)
    labels = {"-".join(parts) for parts in zip(*names, strict=True)}
    assert len(labels) == len(values)
    for label in labels:
        assert 1 <= len(label) <= LONGEST_NAME
        assert all(letter.isalnum() or letter in "._-" for letter in label)


def test_values_of_a_sweep_are_any_text_and_their_arms_are_named_by_it() -> None:
    assert [compose([*each, "target.path=/"])[0].label for each in runs_of("label=ü,ö é")] == [
        "ü",
        "ö é",
    ]
    arms = runs_of("target.path=/mnt/ü,/mnt/ö")
    assert [compose(each)[0].label for each in arms] == ["ü", "ö"]


def test_a_sweep_of_too_many_runs_is_refused_before_they_are_listed() -> None:
    with pytest.raises(ConfigError, match="at most 10000 runs; the values of seed make more"):
        runs_of("seed=range(1,1000000000)")
