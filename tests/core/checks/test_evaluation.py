"""All checks are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import getmembers, isfunction
from pkgutil import iter_modules
from typing import Any

import pytest

from wattload.core import checks
from wattload.core.checks.evaluation import ALL

OF_A_RECORD = {"record": "RunRecord", "return": "Sequence[Check]"}


def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of all modules of checks that check a record and nothing else."""
    modules = [import_module(f"{checks.__name__}.{m.name}") for m in iter_modules(checks.__path__)]
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": function
        for module in modules
        for name, function in getmembers(module, isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and function.__annotations__ == OF_A_RECORD
    }


FUNCTIONS = functions()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_check_of_a_record_is_evaluated(function: Callable[..., Any]) -> None:
    assert function in ALL


def test_all_checks_are_found_by_their_signature() -> None:
    assert len(FUNCTIONS) == len(ALL) == len(set(ALL))
