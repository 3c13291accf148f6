"""What the details of graph training say twice: each figure must be that of another part.

Figures that stand nowhere else can't be compared, such as ceilings, losses and what the GPU's clock
says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wattload.core.checks.figures import apart, unlike_buckets
from wattload.core.record.results import amount
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.loaders.graph.shapes import SHAPES
from wattload.workloads.gnn.metrics import PHASE
from wattload.workloads.gnn.results import COUNTS, STAGES

_SETTINGS = (
    "batch_seeds",
    "layers",
    "hidden",
    "learning_rate",
    "steps",
    "warmup_steps",
    "overlap",
    "outstanding",
    "compare_every",
    "source",
    "fanouts",
)
_PATHS = {
    "direct": ("o_direct", "o_direct"),
    "mmap": ("page_cache", "page_cache"),
    "dgl": ("page_cache", "page_cache"),
}
"""The path that a loader without a queue requests, and its ``data_path``."""
_OTHER_CPU = 1.05
_COARSE_CPU_S = 0.5
"""CPU time of processes is counted in ticks, when a phase is opened and closed."""


def contradictions(record: RunRecord) -> Iterator[str]:
    """Yield in words each figure of the details that is not that of another part of the record.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the details lack a figure, or it is not
            of its kind.
    """
    for rule in _RULES:
        yield from rule(record)


def _settings(record: RunRecord) -> Iterator[str]:
    details, configured = record.workload.details, record.config["workload"]
    yield from apart(details, {name: configured[name] for name in _SETTINGS}, "by the settings")
    yield from apart(details["memory"], {"share": configured["memory_share"]}, "by the settings")
    if configured["source"] is None:
        shape = SHAPES[configured["graph"]]
        expected: dict[str, Any] = {
            "graph": shape.name,
            "nodes": {each.name: each.count for each in shape.node_types},
            "edges": {shape.title(each): each.edge_count for each in shape.relations},
        }
        yield from apart(details, expected, "by the graph's shape")
    if (details["sampler"] == "dgl") != (record.workload.loader == "dgl"):
        yield f"the sampler is {details['sampler']} with loader={record.workload.loader}"
    if (details["sampler"] == "torch") != (details["sampler_device"] == "gpu"):
        yield f"{details['sampler']} sampled on the {details['sampler_device']}"
    expected = {
        "rows_total": sum(details["nodes"].values()),
        "edges_total": sum(details["edges"].values()),
        "feature_bytes": sum(details["nodes"].values()) * details["row_bytes"],
        "is_whole_epoch": details["steps"] >= details["steps_per_epoch"],
        "steps_per_epoch": details["training_seeds"] // details["batch_seeds"],
    }
    yield from apart(details, expected, "by its other figures")


def _rows(record: RunRecord) -> Iterator[str]:
    details = record.workload.details
    yield from apart(
        details, {"row_payload_bytes": details["rows"] * details["row_bytes"]}, "by its rows"
    )
    counts = [details[name] for name in COUNTS]
    if None in counts:
        if any(count is not None for count in counts):
            yield "only some places of rows are counted"
        read_rows, operations = details["rows"], details["rows"]
        yield from apart(details, {"read_bytes": None}, "through the page cache")
    else:
        if sum(counts) != details["rows"]:
            yield f"the places of {details['rows']} rows have {sum(counts)}"
        read_rows, operations = details["storage_rows"], details["operations"]
        if operations and operations * details["read_bytes"] != details["storage_bytes"]:
            yield f"{operations} reads of {details['read_bytes']} bytes are not those of storage"
    whole = read_rows * details["row_bytes"]
    yield from apart(
        details,
        {"amplification": details["storage_bytes"] / whole if whole else None},
        "by its bytes",
    )
    counted = sum(window.operations for window in record.windows if window.name == PHASE)
    if counted != details["operations"] or counted != operations:
        yield f"{details['operations']} reads in the details and {counted} in the phase"
    moved = record.moved_bytes(PHASE, "read")
    if moved != details["storage_bytes"]:
        yield f"storage gave {details['storage_bytes']} bytes by the details, {moved} in the phase"


def _memory(record: RunRecord) -> Iterator[str]:
    details, memory = record.workload.details, record.workload.details["memory"]
    expected = {
        "budget_bytes": int(memory["share"] * details["feature_bytes"]),
        "topology_bytes": details["topology_bytes"],
    }
    yield from apart(memory, expected, "by its other figures", of="the memory")
    limits = (memory["limit_bytes"], memory["own_bytes"], memory["page_cache_bytes"])
    is_limited = memory["method"] != "drop_cache"
    if is_limited != (None not in limits):
        yield f"the memory has limits {limits} by {memory['method']}"
    elif is_limited:
        limit, own, cache = (amount(memory, name) for name in
                             ("limit_bytes", "own_bytes", "page_cache_bytes"))  # fmt: skip
        peak = limit if memory["peak_bytes"] is None else amount(memory, "peak_bytes")
        if own + cache != limit or own > peak:
            yield f"{own} bytes of the process and {cache} of page cache are not within {limit}"
    if is_limited and details["eviction_s"]:
        yield "caches were dropped for some time, and memory was limited"
    if details["host_rows"] and not memory["host_rows_bytes"]:
        yield f"{details['host_rows']} rows came from host memory, which held none"
    rows = details["rows"] / details["steps"]
    room = memory["batch_bytes"] or memory["gpu_batch_bytes"]
    if rows * details["row_bytes"] > room:
        yield f"batches of {rows:.0f} rows do not fit their memory of {room} bytes"


def _profile(record: RunRecord) -> Iterator[str]:
    found = record.workload.details["io_profile"]
    if found is None or found["sizes"] is None:
        return
    counts = [(row["bytes"], row["count"]) for row in found["sizes"]]
    expected = {
        "reads": sum(count for _, count in counts),
        "read_bytes": sum(size * count for size, count in counts),
    }
    yield from apart(found, expected, "by its sizes", of="the I/O profile")
    if found["reads"]:
        mean = {"mean_read_bytes": found["read_bytes"] / found["reads"]}
        yield from apart(found, mean, "by its bytes", of="the I/O profile")


def _times(record: RunRecord) -> Iterator[str]:
    details = record.workload.details
    [window] = [window for window in record.windows if window.name == PHASE]
    evicted_s = details["eviction_s"] if details["overlap"] == "serial" else 0.0
    steps_s = (window.end_ns - window.start_ns) / NS_PER_S - evicted_s
    yield from apart(details, {"wall_s": steps_s}, "in the phase")
    if details["overlap"] == "serial":
        total_s = sum(details["stages"][name] or 0.0 for name in STAGES)
        if total_s > details["wall_s"] * (1 + 1e-6):
            yield f"serial stages of {total_s} s are longer than the steps"
    if not 0 <= details["cpu_s"] <= window.cpu_s * _OTHER_CPU + _COARSE_CPU_S:
        yield f"cpu_s is {details['cpu_s']:.6g} in the details and {window.cpu_s:.6g} in the phase"


def _training(record: RunRecord) -> Iterator[str]:
    details = record.workload.details
    losses = details["losses"]
    is_trained = details["training"] == "torch"
    if len(losses) != (details["steps"] if is_trained else 0):
        yield f"there are {len(losses)} losses of {details['steps']} steps"
    ends = {"first_loss": losses[0], "last_loss": losses[-1]} if losses else {}
    yield from apart(details, ends or dict.fromkeys(("first_loss", "last_loss")), "by the losses")
    if (details["trainer"] == "emulated") == is_trained:
        yield f"the trainer is {details['trainer']} with training={details['training']}"
    by_gpu = details["trainer"] == "gpu"
    if by_gpu and (details["gpu"] is None or details["training_gpu_s"] is None):
        yield "a GPU trained, and there is none in the details, or no time by its clock"
    if not by_gpu and details["training_gpu_s"] is not None:
        yield f"there is training by a GPU's clock, and the trainer is {details['trainer']}"


def _path(record: RunRecord) -> Iterator[str]:
    details, [path] = record.workload.details, record.workload.paths
    expected = _PATHS.get(record.workload.loader)
    if expected is not None and (path.path_requested, path.data_path) != expected:
        yield f"the path is {path.path_requested} ({path.data_path}) and not {expected[0]}"
    if path.counts is not None and path.counts.reads != details["operations"]:
        yield f"the path has {path.counts.reads} reads and the details {details['operations']}"


def _checks(record: RunRecord) -> Iterator[str]:
    details = record.workload.details
    stages = details["stages"]
    known = {name: stages[name] for name in STAGES if stages[name] is not None}
    longest = max(known, key=lambda name: known[name])
    figures: Mapping[str, Mapping[str, Any]] = {
        "compared_rows": {
            name: details[name] for name in ("compared_rows", "wrong_rows", "compare_every")
        },
        "row_counts": {name: details[name] for name in ("rows", "storage_bytes", *COUNTS)},
        "stage_times": {
            "stages_s": sum(known.values()),
            "wall_s": details["wall_s"],
            **{name: stages[name] for name in ("transfer_s", "training_s")},
            **{name: details[name] for name in ("transfer_gpu_s", "training_gpu_s")},
        },
        "overlapped_times": {
            "longest_stage": longest,
            "longest_stage_s": known[longest],
            "wall_s": details["wall_s"],
        },
    }
    for check in record.checks:
        yield from apart(
            check.figures, figures.get(check.name, {}), "in the details", of=check.name
        )


def _latencies(record: RunRecord) -> Iterator[str]:
    details = record.workload.details
    for row in record.latencies:
        if row.phase != PHASE:
            continue
        if row.buckets:
            yield from unlike_buckets(row)
        expected = (details["operations"], details["read_bytes"])
        if row.kind == "read" and (row.count, row.operation_bytes) != expected:
            yield f"there are {row.count} latencies of {amount(details, 'operations')} reads"


_RULES: Sequence[Callable[[RunRecord], Iterator[str]]] = (
    _settings,
    _rows,
    _memory,
    _profile,
    _times,
    _training,
    _path,
    _checks,
    _latencies,
)
