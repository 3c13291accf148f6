"""Which loaders a workload runs with follows from what their configurations implement."""

from __future__ import annotations

import pytest

from wattload.core.errors import ConfigError
from wattload.run.compose import build_workload, compose
from wattload.run.config_groups import options

TARGET = ("target.path=/tmp", "power=none")


@pytest.mark.parametrize(
    ("workload", "loader", "allowed"),
    [
        ("unet3d", "dcp", "dali, direct, dlio, torch"),
        ("checkpoint", "dali", "dcp, direct, torch"),
        ("checkpoint", "dlio", "dcp, direct, torch"),
        ("dlrm", "direct", "arrow, native"),
        ("unet3d", "native", "dali, direct, dlio, torch"),
    ],
)
def test_a_loader_that_lacks_what_the_workload_needs_is_refused_with_those_that_have_it(
    workload: str, loader: str, allowed: str
) -> None:
    config, _ = compose([f"workload={workload}", f"loader={loader}", *TARGET])
    with pytest.raises(ConfigError) as refused:
        build_workload(config)
    assert str(refused.value) == (
        f"loader={loader} does not support workload={workload}; use loader={allowed}"
    )


@pytest.mark.parametrize("loader", options("loader"))
def test_a_workload_that_needs_nothing_runs_with_every_loader(loader: str) -> None:
    config, _ = compose(["workload=null", f"loader={loader}", *TARGET])
    assert build_workload(config).name == "null"


@pytest.mark.parametrize(("workload", "loader"), [("unet3d", "direct"), ("dlrm", "arrow")])
def test_a_workload_has_a_loader_of_its_own_unless_another_is_chosen(
    workload: str, loader: str
) -> None:
    assert compose([f"workload={workload}", *TARGET])[0].loader.name == loader
    assert compose([f"workload={workload}", "loader=native", *TARGET])[0].loader.name == "native"
