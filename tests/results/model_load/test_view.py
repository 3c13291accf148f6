"""How model loading is shown: what limits loads, what can be judged, joules, starts, pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.reports.conftest import render_page
from tests.results.model_load.making import GPU, load_run, session
from wattload.core.power import Scope
from wattload.reports.runs.energy import scope_energy_j
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import different_work
from wattload.reports.stats.subject import make_subject
from wattload.results.model_load.facts import LOAD
from wattload.results.model_load.view import VIEW
from wattload.results.quantity import MISSING
from wattload.results.reading import run_of
from wattload.results.shapes import CeilingBars, Grid, Note, PartBars, Row, Sheet
from wattload.results.view import Arm, Shown, ShownRun

SPACES = {0xA0: " ", 0x202F: " "}


def shown_run(run: Run) -> ShownRun[Any]:
    found = run_of(run.record)
    assert found is not None

    def joules(scope: Scope, phase: str) -> float | None:
        return scope_energy_j(run.record, scope, phase)

    return ShownRun(run.record, found.facts, joules, lambda _: "")


def shown(*runs: Run) -> Shown[Any]:
    arms = [Arm("AB"[place], "A", run.record.label, "", (shown_run(run),))
            for place, run in enumerate(runs)]  # fmt: skip
    return Shown(arms, arms)


def opening(kind: type, *runs: Run) -> Any:
    shapes: list[Any] = [*VIEW.opening(shown(*runs))]
    shapes += [chart for each in shapes if isinstance(each, Row) for chart in each.charts]
    return next((each for each in shapes if isinstance(each, kind)), None)


def facts(*runs: Run) -> dict[str, list[str]]:
    found = opening(Sheet, *runs)
    return {name: [text.translate(SPACES) for text in texts] for name, texts in found.facts}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seconds": 4.0}, "limited by the drive, at 95.6 % of its ceiling"),
        ({"seconds": 9.0}, "limited by the loader, at 42.5 % of the drive's ceiling, 0.222 CPUs"),
        ({"seconds": 1.0, "cpu_s": 500.0}, "limited by the CPU"),
        ({"seconds": 3.0}, "limit unknown: 127 % of a ceiling measured too low"),
        ({"drive_ceiling": None}, "limit unknown: no rate of reads or no ceiling"),
        ({"from_drive": 1.5}, "limit unknown: no rate of reads or no ceiling"),
        ({"seconds": 0.4, "drive_ceiling": 60e9, "copy_ceiling": 42e9, "device": GPU},
         "limited by the copy to the GPU, at 95.6 % of its ceiling"),
        ({"seconds": 0.1}, "limit unknown: too small to be judged, under 256 MB or 0.2 s"),
        ({"temperature": "warm", "loader": "mmap", "from_drive": 0.0},
         "limited by memory: the page cache served"),
    ],
)  # fmt: skip
def test_a_load_says_what_limited_it(changes: dict[str, Any], text: str) -> None:
    assert VIEW.limit is not None
    found = VIEW.limit([shown_run(load_run(**changes))], None)
    assert found is not None
    assert found.text.translate(SPACES).startswith(text)
    assert found.is_drive is ("the drive, at" in text)


def test_runs_on_both_sides_of_the_limit_have_none() -> None:
    assert VIEW.limit is not None
    found = VIEW.limit([shown_run(load_run(seconds=each)) for each in (6.6, 3.86)], None)
    assert found is not None
    text = "limit unknown: runs reached 57.9 % to 99.1 % of the drive's ceiling"
    assert (found.text.translate(SPACES), found.is_drive) == (text, False)


@pytest.mark.parametrize(
    ("seconds", "cpu_s", "texts"),
    [
        ((4.0, 9.0), 6.0, ()),
        ((4.0, 4.1), 6.0, ("by time (each reached 90",)),
        ((4.0, 9.0), 0.1, ("by CPU time",)),
        ((4.0, 4.1), 0.1, ("by time (each reached 90", "or by CPU time")),
        ((2.0, 4.1), 6.0, ("by time (a load was faster than the drive's ceiling",)),
    ],
)
def test_a_page_says_by_what_loaders_cant_be_judged(
    seconds: Sequence[float], cpu_s: float, texts: Sequence[str]
) -> None:
    runs = [load_run(seconds=each, loader=loader, label=loader, cpu_s=cpu_s)
            for each, loader in zip(seconds, ("direct", "runai"), strict=True)]  # fmt: skip
    note = opening(Note, *runs)
    if not texts:
        assert note is None
        return
    (sentence,) = note.sentences
    assert all(text in sentence for text in texts)


def test_needed_read_and_delivered_bytes_are_apart_and_joules_are_by_device() -> None:
    run = load_run(tp=8, ranks=4, access="sliced", from_drive=0.6, seconds=4.0, gpu_watts=100.0,
                   device=GPU, read_whole=("down_proj",))  # fmt: skip
    found = facts(run)
    assert found["needed"] == found["delivered"] == ["8.03 GB"]
    assert found["read"] == ["9.64 GB"]
    assert found["drive J per load, in the window"] == ["32.0 J"]
    assert found["GPU J per load, in the window"] == ["400 J"]
    assert "host J per load, in the window" not in found
    assert found["starts an hour"] == ["900"]
    assert "direct read down_proj whole" in opening(Note, run).sentences[0]


def test_a_day_has_no_more_starts_than_it_has_time_for() -> None:
    (row,) = opening(Grid, load_run(seconds=200.0, watts=9.0)).rows
    assert row[1:] == ("drive", "12.0", "50.0", MISSING)
    assert opening(Grid, load_run(has_power=False)) is None


def test_bars_have_the_first_layer_and_cold_loads_the_ceiling() -> None:
    cold = load_run(seconds=4.0, first_layer_s=0.5)
    warm = load_run(temperature="warm", from_drive=0.0, label="warm", loader="mmap")
    first, other = opening(PartBars, cold, warm).bars[0].parts
    assert (first.value, other.value) == (0.5, 3.5)
    ((_, bars),) = opening(CeilingBars, cold, warm).panels
    assert [bar.label for bar in bars] == ["direct"]
    assert bars[0].ceiling == 4.2e9


def work(**changes: Any) -> str:
    runs = [load_run(name="a"), load_run(name="b", label="B", repeat=1, **changes)]
    (group,) = make_subject(runs, "label").groups
    return different_work(group)


def test_loaders_are_compared_with_the_same_model_and_temperature_only() -> None:
    assert not work(loader="torch")
    assert not work(tp=1, access="sliced")
    assert work(digest="ab" * 32) == "models differ"
    assert "temperature" in work(temperature="warm", from_drive=0.0)
    assert "destination" in work(device=GPU)


def test_a_page_has_seconds_and_joules_of_a_load_cold_beside_warm() -> None:
    warm = {"temperature": "warm", "from_drive": 0.0, "seconds": 2.0}
    loaders = ("torch", "mmap")
    runs = [*session(loaders, 2), *session(loaders, 2, **warm)]
    text = render_page(runs).translate(SPACES)
    for words in ("s per load", "J per load", "loads of a cold model", "temperature warm",
                  "llama3.1-8b, 16.1 GB in 291 tensors, to host memory"):  # fmt: skip
        assert words in text
    assert "not comparable" not in text


def test_the_terminal_has_bytes_memory_and_the_limit() -> None:
    run = shown_run(load_run(resident_after=1.0))
    lines = {name: text.translate(SPACES) for name, text in VIEW.lines(run).items()}
    assert lines["load"] == "first layer after 0.500 s, last tensor after 4.00 s; 3 loads"
    assert lines["a load"] == "16.1 GB needed, 16.1 GB read, 16.1 GB delivered"
    assert lines["memory"] == "16.5 GB taken; 100 % of files cached"
    assert run.joules(Scope.DRIVE, LOAD) == 96.0
