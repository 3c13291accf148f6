"""Names of figures, phases, settings and workloads in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from wattload.core.units import Unit
from wattload.results.figures import Figure
from wattload.results.registry import every_results, results_of

_UNIT_WORDS = re.compile(
    r"_(bytes_per_s_per_w|bytes_per_s|bytes_per_j|j_per_byte|j_per_gb|s_per_gb|s_per_byte"
    r"|per_s|fraction|count|bytes|wh|ns|s|j|w)$"
)
_SPELLINGS = {
    "au": "AU",
    "cpu": "CPU",
    "gpu": "GPU",
    "dlio": "DLIO",
    "io": "I/O",
    "gb": "GB",
    "tsv": "TSV",
}
_LABELS = {
    "cpu_s_per_gb": "CPU time per GB",
    "load_kept_fraction": "share of its work that the load kept",
}
ACTIVITIES: Mapping[str, str] = {"read": "reading", "write": "writing", "train": "training"}
"""What a phase does, by its name."""

_RATE_WORDS = ("rate", "throughput", "ceiling")
_TIME_WORDS = ("time", "latency", "overshoot", "seconds", "delay", "stall")


@lru_cache(maxsize=1024)
def label(name: str, unit: Unit | None = None) -> str:
    """Return a metric's name in words: ``batch_latency_p99_s`` is "batch latency p99"."""
    if (known := _declared().get(name)) or (known := _LABELS.get(name)):
        return known
    words = _UNIT_WORDS.sub("", name).replace("_", " ")
    words = " ".join(_SPELLINGS.get(word, word) for word in words.split())
    words = words.replace("seconds per", "time per")
    if unit is Unit.BYTES_PER_SECOND and not any(word in words for word in _RATE_WORDS):
        words += " rate"
    if unit is Unit.SECONDS and not any(word in words for word in _TIME_WORDS):
        words += " time"
    return words


def workload_title(name: str) -> str:
    """Return a workload's name for a heading: its usual spelling, or capitalised."""
    results = results_of(name)
    if results is not None and results.view.title:
        return results.view.title
    return name[:1].upper() + name[1:].replace("_", " ")


@cache
def _declared() -> Mapping[str, str]:
    """Return what the results of all workloads declare: labels of views and of figures."""
    found: dict[str, str] = {}
    for results in every_results():
        found |= results.view.labels
        found |= {
            figure.name: figure.label
            for figure in results.figures
            if isinstance(figure, Figure) and figure.label
        }
    return found
