"""What every workload states about itself."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.context import context_at
from wattload.core.errors import WattloadError
from wattload.core.workload import OverHosts
from wattload.run.compose import build_workload, compose, workload_class
from wattload.run.config_groups import options
from wattload.run.ranks import LocalCommunicator

DOCS = Path(__file__).resolve().parents[2] / "docs" / "workloads.md"


def class_of(name: str) -> Any:
    return workload_class(compose([f"workload={name}", "target.path=/tmp"])[0])


@pytest.mark.parametrize("name", options("workload"))
def test_a_workload_states_what_it_does_over_several_hosts(name: str) -> None:
    workload = class_of(name)
    assert workload.over_hosts in get_args(OverHosts)
    declaring = next(each for each in workload.__mro__ if "over_hosts" in vars(each))
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(declaring))).body
    assert isinstance(defined, ast.ClassDef)
    targets = [each.target if isinstance(each, ast.AnnAssign) else None for each in defined.body]
    (place,) = (
        index
        for index, each in enumerate(targets)
        if isinstance(each, ast.Name) and each.id == "over_hosts"
    )
    explained = defined.body[place + 1]
    assert isinstance(explained, ast.Expr), "a docstring has to say what that means for it"
    assert isinstance(explained.value, ast.Constant)


def test_the_manual_has_what_each_workload_does_over_several_hosts() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## Several hosts")[2]
    rows = re.findall(r"^\| (`.*?) \| (divide|replicate|one) \|", section, re.MULTILINE)
    listed = {name: does for names, does in rows for name in re.findall(r"`(\w+)`", names)}
    presets = {name: class_of(name).over_hosts for name in options("workload")}
    assert {name: presets[name] for name in listed} == listed
    assert {class_of(name) for name in listed} == {class_of(name) for name in presets}


class Alone(LocalCommunicator):
    """A rank whose host is the only one that plans: whatever waits for others waits for ever."""

    def wait_for_ever(self, value: object = None) -> Any:
        pytest.fail("planning waits for other ranks")

    barrier = gather = all_gather = broadcast = wait_for_ever


def test_planning_waits_for_no_other_rank(tmp_path: Path) -> None:
    for name in options("workload"):
        config = compose([f"workload={name}", f"target.path={tmp_path}"])[0]
        if workload_class(config).over_hosts == "one":
            continue
        with suppress(WattloadError):  # it needs a GPU, or its source
            build_workload(config).plan(context_at(tmp_path, communicator=Alone()))
