"""The results of random reads of blocks, by threads."""

from __future__ import annotations

from wattload.results.gpu_read.checks import CHECKS, OBSERVED
from wattload.results.gpu_read.facts import BY_THREADS, ReadFacts
from wattload.results.gpu_read.figures import figures
from wattload.results.gpu_read.threads import VIEW
from wattload.results.registry import Results

RESULTS = Results(
    name=BY_THREADS,
    facts=ReadFacts,
    figures=(figures,),
    checks=CHECKS,
    observed=OBSERVED,
    view=VIEW,
)
