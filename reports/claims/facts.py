"""What records hold of the conditions that papers print, and whether the two are alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.claims.model import Condition, Expected, Fact, Pair
from wattload.reports.conditions import link_text
from wattload.reports.load import Run
from wattload.reports.quantity import MISSING, listed, quantity
from wattload.reports.subject import power_state_text

Alike = Literal["alike", "differs", "not so named", "not recorded", "not told"]
Found = str | float
TOLERANCE = 0.10
"""Numbers such as bytes of memory are alike within this: a paper prints 256 GB for 256 GiB too."""


@dataclass(frozen=True, slots=True)
class Held:
    """A condition as the records of one arm hold it, and how that stands to what was printed."""

    text: str
    alike: Alike


def held(runs: Sequence[Run], fact: Fact, expected: Expected) -> Held:
    """Return what the runs of an arm hold of a condition, beside what the paper expects."""
    found = list(dict.fromkeys(each for run in runs for each in _READ[fact](run.record)))
    if not found:
        return Held(MISSING, "not recorded")
    text = listed([_shown(each) for each in found])
    alike = [_alike(each, fact, expected) for each in found]
    return Held(text, alike[0] if len(set(alike)) == 1 else "differs")


def _alike(found: Found, fact: Fact, expected: Expected) -> Alike:
    """Return how one value stands to what was printed; a drive may go by another name."""
    if isinstance(found, str):
        if not expected.found:
            return "not told"
        if any(_stands_in(each, found) for each in expected.found):
            return "alike"
        return "not so named" if fact is Fact.DRIVE else "differs"
    if expected.number is None:
        return "not told"
    near = abs(found - expected.number) <= TOLERANCE * expected.number
    return "alike" if near else "differs"


def _stands_in(name: str, text: str) -> bool:
    """Return whether a name is in a text whatever its case, and not as part of a longer number."""
    return re.search(rf"(?<!\d){re.escape(name)}(?!\d)", text, re.IGNORECASE) is not None


def _shown(found: Found) -> str:
    return found if isinstance(found, str) else quantity(found, Unit.BYTES, 3)


def conditions_of(pair: Pair, common: Sequence[Condition], workload: str) -> list[Condition]:
    """Return the conditions that a paper states for one pair and workload, the drives' first."""
    return [each for each in (*pair.conditions, *common) if each.workload in ("", workload)]


def plays_in_order(pair: Pair, first: Sequence[Run], second: Sequence[Run]) -> bool:
    """Return whether a page's first arm stands where the paper's ``a`` stood, its second for ``b``.

    The first of the pair's conditions that fits one order better decides; where none does, the
    page's own order stands.
    """
    for condition in pair.conditions:
        a, b = condition.a, condition.b
        if b is None:
            continue
        straight = _fits(first, condition.fact, a) + _fits(second, condition.fact, b)
        crossed = _fits(first, condition.fact, b) + _fits(second, condition.fact, a)
        if straight != crossed:
            return straight > crossed
    return True


def _fits(runs: Sequence[Run], fact: Fact, expected: Expected) -> int:
    return held(runs, fact, expected).alike == "alike"


def apart(between: Literal["drives", "paths"], arms: Sequence[Sequence[Run]]) -> bool:
    """Return whether two arms differ in what a claim is between: drives or states, or paths."""
    read = _drives if between == "drives" else _paths
    first, second = ({each for run in runs for each in read(run.record)} for runs in arms)
    return first != second


def _drives(record: RunRecord) -> Iterator[str]:
    yield from (controller.facts.serial for controller in record.controllers)
    yield from _power_states(record)
    if not record.controllers:
        yield from (target.facts.path or target.facts.kind for target in record.targets)


def _paths(record: RunRecord) -> Iterator[str]:
    yield record.workload.loader
    yield from (path.path_effective for path in record.workload.paths)


def _models(record: RunRecord) -> Iterator[str]:
    models = [controller.facts.model for controller in record.controllers]
    yield from (model for model in models if model)
    if not models and any(target.facts.virtual for target in record.targets):
        yield "a virtual disk; what lies behind it is not known"


def _links(record: RunRecord) -> Iterator[str]:
    for controller in record.controllers:
        state = controller.before
        if state is not None and state.link_speed_gt_per_s is not None:
            yield link_text(state.link_speed_gt_per_s, state.link_width)


def _power_states(record: RunRecord) -> Iterator[str]:
    yield from (power_state_text(record, state) for state in record.power.states)


def _accelerators(record: RunRecord) -> Iterator[str]:
    settings = record.config.get("accelerator")
    count = settings.get("count") if isinstance(settings, Mapping) else None
    if count is not None:
        yield f"{count * record.workload.rank_count} x {record.workload.accelerator}"


def _checkpoint_bytes(record: RunRecord) -> Iterator[float]:
    size = record.workload.details.get("checkpoint_bytes")
    if isinstance(size, int | float):
        yield float(size)


_READ: Mapping[Fact, Callable[[RunRecord], Iterator[Found]]] = {
    Fact.DRIVE: _models,
    Fact.LINK: _links,
    Fact.POWER_STATE: _power_states,
    Fact.PROCESSOR: lambda record: (h.facts.cpu_model for h in record.hosts if h.facts.cpu_model),
    Fact.MEMORY: lambda record: (
        float(h.facts.memory_bytes) for h in record.hosts if h.facts.memory_bytes
    ),
    Fact.SYSTEM: lambda record: (h.facts.os for h in record.hosts if h.facts.os),
    Fact.KERNEL: lambda record: (h.facts.kernel for h in record.hosts),
    Fact.ACCELERATOR: _accelerators,
    Fact.CHECKPOINT: _checkpoint_bytes,
}
