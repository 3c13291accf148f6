"""The results of a run without I/O: it delivers nothing that only it could count or check."""

from __future__ import annotations

from wattload.results.facts import Facts
from wattload.results.registry import Results

RESULTS = Results(name="null", facts=Facts)
