"""Pages of made-up runs: comparisons, single runs, bounds, hostile names, and indexes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.records import Scenario, WorkloadName, write_run
from tests.reports.conftest import LIMITS, arm, render_page
from tests.reports.published import published, training
from wattload.core.mlperf.published import PublishedSet
from wattload.core.mlperf.store import write_sets
from wattload.core.record.results import Check
from wattload.reports.render.index import render_index
from wattload.reports.render.output import make_report
from wattload.reports.runs.load import load_runs

SCRIPT = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"
OVERRIDE = "\u202egnp.exe\u2066\u200f left \u061c and never popped"
CONTROLS = "bell\x07 escape\x1b[31m delete\x7f next\x85 bom\ufeff"
ARABIC = "قرص سريع 42"
EMOJI = "🚀👩‍💻🏳️‍🌈"
LONG = "x" * 10_000
HOSTILE = (SCRIPT, OVERRIDE, CONTROLS, ARABIC, EMOJI, LONG)


def _arms() -> Iterable[Scenario]:
    for index in range(5):
        yield arm("A", index)
        yield arm("B", index, rate=0.6e9)


def _workloads() -> Iterable[Scenario]:
    kinds: tuple[WorkloadName, ...] = ("unet3d", "checkpoint", "dlrm")
    for kind in kinds:
        for index in range(5):
            yield arm("A", index, run_id=f"run-{kind}-a-{index}", workload=kind)
            yield arm("B", index, run_id=f"run-{kind}-b-{index}", workload=kind, rate=0.6e9)


def _six_arms() -> Iterable[Scenario]:
    kinds: tuple[WorkloadName, ...] = ("unet3d", "checkpoint", "dlrm")
    for kind in kinds:
        for place, name in enumerate(("Gen5 PS0", "Gen5 PS1", "Gen4", "Old", "Older", "Oldest")):
            for index in range(2):
                yield arm(
                    name,
                    index,
                    run_id=f"run-{kind}-{place}-{index}",
                    workload=kind,
                    rate=(1.5 - 0.15 * place) * 1e9,
                    serial=f"SERIAL{place}",
                )


def _many_arms() -> Iterable[Scenario]:
    for place in range(8):
        name = f"Micron 9550 of 7.68 TB, firmware E3MQ000, PS{place}"
        yield arm(name, 0, run_id=f"run-{place}", rate=(1.5 - 0.1 * place) * 1e9)


def _singles() -> Iterable[Scenario]:
    kinds: tuple[WorkloadName, ...] = ("unet3d", "checkpoint", "dlrm")
    for kind in kinds:
        yield Scenario(run_id=f"run-{kind}", workload=kind, seconds=4.0, limits=LIMITS)


def _bounds() -> Iterable[Scenario]:
    for index in range(2):
        yield arm("PS0", index, power="bounds")
        yield arm("PS1", index, power="upper", rate=0.9e9)
        yield arm("PS2", index, power="declared", rate=0.5e9)


def _hostile() -> Iterable[Scenario]:
    for index, text in enumerate(HOSTILE):
        yield Scenario(
            run_id=f"run-hostile-{index}",
            label=text,
            host=text,
            path=f"/mnt/{text}",
            serial=f"{index}{text}",
            model=text,
            seconds=1.0,
            virtual=False,
            power="measured",
            limits=(text,),
            remarks=(text,),
            checks=(Check(name=text, verdict="warn", sentence=text, figures={text: 1}),),
        )


def _hostile_pair() -> Iterable[Scenario]:
    for index in range(5):
        yield arm(f"{OVERRIDE}{SCRIPT}", index, run_id=f"run-a-{index}")
        yield arm(f"{ARABIC}{LONG}", index, run_id=f"run-b-{index}", rate=0.6e9)


def _published() -> Iterable[PublishedSet]:
    for count in range(30):
        name = f"F9000X_{count}x7000GiB_nvme_2xNDR400_{count}_clients"
        model = ("unet3d", "resnet50", "cosmoflow")[count % 3]
        yield published(name, training(35.0 + count % 4, model=model, ranks=2, listed=count < 9))


REPORTS: Mapping[str, Callable[[], Iterable[Scenario]]] = {
    "arms": _arms,
    "bounds": _bounds,
    "hostile": _hostile,
    "hostile-pair": _hostile_pair,
    "many-arms": _many_arms,
    "published": _singles,
    "singles": _singles,
    "six-arms": _six_arms,
    "workloads": _workloads,
}
INDEXES: Mapping[str, Callable[[], Iterable[Scenario]]] = {
    "index": _arms,
    "index-hostile": _hostile,
}
SAMPLES: Mapping[str, Callable[[], Iterable[Scenario]]] = {**REPORTS, **INDEXES}
"""Name of a page to the runs that it is of."""


def write_sample(name: str, folder: Path, file: Path) -> None:
    """Write the runs of a page into ``folder``, and the page into ``file``."""
    scenarios = [*SAMPLES[name]()]
    for scenario in scenarios:
        write_run(folder, scenario)
    if name == "published":
        write_sets(_published(), folder / "published")
        page = make_report([folder]).text
    elif name in INDEXES:
        page = render_index(folder, output=file)
    else:
        page = render_page(load_runs([folder]))
    file.write_text(page, encoding="utf-8")
