"""Runs of model loading, in memory: by loader, cold or warm, of some ranks, to host or GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.records import Scenario, make_run
from tests.reports.sessions import EMPTY, metered, placed, timed_span
from wattload.core.power import Scope
from wattload.core.record.phase import IoCounter
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.results.model_load.facts import LOAD
from wattload.results.reading import metrics_of

MODEL_BYTES = 16_060_522_496
"""Those of all tensors of an 8b model in two bytes a weight."""
GPU = "NVIDIA H200"


@dataclass(kw_only=True)
class Loads:
    """What a made-up run was: its loader, seconds of a load, watts, and bytes of the drive."""

    name: str = "run-1"
    label: str = "direct"
    loader: str = "direct"
    seconds: float = 4.0
    first_layer_s: float = 0.5
    loads: int = 3
    watts: float = 8.0
    gpu_watts: float | None = None
    temperature: str = "cold"
    tp: int = 1
    ranks: int = 1
    access: str = "whole"
    from_drive: float | None = 1.0
    """Bytes that the drive read in a load ÷ those of the model; ``None``: not counted."""
    cpu_s: float = 6.0
    """Of all loads."""
    drive_ceiling: float | None = 4.2e9
    copy_ceiling: float | None = None
    device: str | None = None
    peak_memory_bytes: int | None = 16_500_000_000
    resident_after: float | None = 0.0
    """Share of the files that is in the page cache after a load."""
    read_whole: Sequence[str] = ()
    digest: str = "0d" * 32
    has_power: bool = True
    repeat: int = 0
    serial: str = "SERIAL1"
    checks: Sequence[Any] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Other facts than those that follow from the above."""


def load_run(**changes: Any) -> Run:
    """Return a run whose facts agree with its spans."""
    made = Loads(**changes)
    scenario = Scenario(
        run_id=made.name, label=made.label, workload="checkpoint", power="measured",
        virtual=False, model="MICRON_9550", serial=made.serial,
    )  # fmt: skip
    base, _ = make_run(scenario)
    return Run(record=_record(made, base), traces=EMPTY)


def load_record(**changes: Any) -> RunRecord:
    return load_run(**changes).record


def _times(made: Loads, base: RunRecord) -> list[tuple[int, int]]:
    """Return the start and end of each load, a second apart."""
    start_ns, apart_ns = int(base.windows[0].start_ns), round((made.seconds + 1) * NS_PER_S)
    return [
        (begin, begin + round(made.seconds * NS_PER_S))
        for begin in range(start_ns, start_ns + made.loads * apart_ns, apart_ns)
    ]


def _facts(made: Loads, times: Sequence[tuple[int, int]]) -> dict[str, Any]:
    needed = [MODEL_BYTES // made.tp] * made.ranks
    peak = made.peak_memory_bytes
    ranks = [
        [
            {
                # The last rank starts and ends last.
                "start_ns": start_ns + 1000 * rank,
                "first_layer_ns": start_ns + round(made.first_layer_s * NS_PER_S),
                "end_ns": end_ns - 1000 * (made.ranks - 1 - rank),
                "delivered_bytes": own,
                "peak_memory_bytes": None if peak is None else peak // made.ranks,
                "compared_bytes": own,
                "wrong_bytes": 0,
                "first_wrong": None,
            }
            for rank, own in enumerate(needed)
        ]
        for start_ns, end_ns in times
    ]
    file_bytes = MODEL_BYTES + 40_000
    after = None if made.resident_after is None else round(made.resident_after * file_bytes)
    return {
        "model": {
            "name": "llama3.1-8b", "layers": 32, "tensors": 291, "tensor_bytes": MODEL_BYTES,
            "file_bytes": file_bytes, "digest": made.digest,
        },
        "needed_bytes": needed,
        "distinct_bytes": sum(needed),
        "loads": [{"ranks": own, "resident_bytes": after} for own in ranks],
        "device": made.device,
        "gpus": [[rank, f"00000000:{rank + 1:02X}:00.0"] for rank in range(made.ranks)]
        if made.device else [],
        "bypasses_cache": made.loader == "direct",
        "read_whole": list(made.read_whole),
        "drive_ceiling_bytes_per_s": made.drive_ceiling,
        "copy_ceiling_bytes_per_s": made.copy_ceiling,
        **made.facts,
    }  # fmt: skip


def _record(made: Loads, base: RunRecord) -> RunRecord:
    times = _times(made, base)
    facts = _facts(made, times)
    needed = facts["needed_bytes"]
    spans = [
        timed_span(
            LOAD, start_ns, made.seconds, rank=rank, read_bytes=needed[rank], operations=1000,
            cpu_s=made.cpu_s / made.loads / made.ranks,
        )
        for start_ns, _ in times for rank in range(made.ranks)
    ]  # fmt: skip
    total_s = made.seconds * made.loads
    counters = [
        IoCounter(
            host="box", device="nvme0n1", phase=LOAD,
            read_bytes=round(made.from_drive * MODEL_BYTES * made.loads), written_bytes=0,
            read_operations=10_000, write_operations=0, busy_s=0.9 * total_s,
            weighted_s=20 * total_s,
        )
    ] if made.from_drive is not None else []  # fmt: skip
    record = base.model_copy(
        update={
            **placed(made.repeat, made.label),
            "command": ("wattload", "run", "workload=model_load", f"loader={made.loader}"),
            "config": {
                **base.config,
                "workload": {
                    "model": "llama3.1-8b", "source": None, "tp": made.tp, "access": made.access,
                    "temperature": made.temperature, "destination": "auto", "loads": made.loads,
                },
                "loader": {"name": made.loader},
            },
            "workload": base.workload.model_copy(
                update={
                    "name": "model_load", "facts": facts, "data": None, "loader": made.loader,
                    "rank_count": made.ranks,
                }
            ),
            "spans": tuple(spans),
            "power": _power(made, base, total_s),
            "metrics": (),
            "counters": tuple(counters),
            "latencies": (),
            "halves": (),
            "checks": tuple(made.checks),
        }
    )  # fmt: skip
    return record.model_copy(update={"metrics": metrics_of(record)})


def _power(made: Loads, base: RunRecord, seconds: float) -> Any:
    if not made.has_power:
        return base.power.model_copy(update={"energy": (), "requested": "none", "sources": ()})
    (first, *_) = base.power.energy
    drive = metered(first, LOAD, seconds, made.watts, device=made.serial,
                    net_j=(made.watts - 5.0) * seconds)  # fmt: skip
    others = []
    if made.gpu_watts is not None:
        others = [
            metered(first, LOAD, seconds, made.gpu_watts, device="GPU-0", source="nvml",
                    scope=Scope.GPU, net_j=None)
        ]  # fmt: skip
    return base.power.model_copy(update={"energy": (drive, *others)})


LOADERS: Mapping[str, Mapping[str, Any]] = {
    "direct": {"seconds": 4.0, "cpu_s": 6.0},
    "torch": {"seconds": 9.0, "cpu_s": 24.0, "resident_after": 1.0, "watts": 7.0},
    "mmap": {"seconds": 11.0, "cpu_s": 26.0, "resident_after": 1.0, "watts": 6.5},
    "runai": {"seconds": 4.4, "cpu_s": 15.0, "resident_after": 1.0, "watts": 8.5},
}


def session(loaders: Sequence[str] = tuple(LOADERS), repeats: int = 3, **changes: Any) -> list[Run]:
    """Return runs of loaders that took turns; each is a little slower than the one before."""
    return [
        load_run(
            **{
                "name": f"run-{loader}-{changes.get('temperature', 'cold')}-{turn}",
                "label": loader, "loader": loader, "repeat": turn * len(loaders) + place,
                **LOADERS[loader],
                "seconds": LOADERS[loader]["seconds"] * (1 + 0.01 * turn),
                **changes,
            }
        )
        for turn in range(repeats) for place, loader in enumerate(loaders)
    ]  # fmt: skip
