"""What MLPerf Storage's rules make of training runs."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.mlperf.edition import LAST_EDITION, training_model
from wattload.core.units import Unit
from wattload.results.mlperf import submission_text
from wattload.results.quantity import quantity
from wattload.results.training.facts import Run
from wattload.results.training.figures import au_dlio, au_nominal

UTILISATIONS = frozenset({"au_dlio", "au_nominal", "dlio_reported_au"})
"""The figures of which the outcome has the one that counts."""

WORDS = {
    "sound_run": "an invalid run",
    "data_set_size": "{got:,} of {asked:,} files",
    "steps": "{got:,} of {asked:,} steps in an epoch",
    "job": "{differences}",
    "record_size": "another spread of records",
    "hosts_alike": "different numbers of accelerators on the hosts",
    "cold_cache": "a warm cache",
    "five_runs": "runs too far apart, or of one seed",
}
"""What a run is that misses a rule: see ``submission_text``."""


def outcome(runs: Sequence[Run]) -> str:
    """Return the utilisation that counts, against its threshold, and what a submission lacks.

    MLPerf's rule takes the smaller of the two forms; of several runs, the lowest counts.
    """
    workload = runs[0].record.workload
    edition, job = training_model(workload.name, workload.accelerator) or (LAST_EDITION, None)
    least = job.au if job else 1.0
    rules = f"MLPerf Storage {edition}"
    known = [
        value for run in runs for value in (au_dlio(run), au_nominal(run)) if value is not None
    ]
    rest = submission_text([run.record for run in runs], WORDS, but="accelerator_utilisation")
    if not known:
        reason = "in epochs of one step" if runs[0].facts.step_s else "without an accelerator"
        return f"{rules}: no AU {reason}; {rest}"
    verb = "reaches" if min(known) >= least else "misses"
    threshold = quantity(least, Unit.FRACTION, 2)
    return f"{rules}: AU {quantity(min(known), Unit.FRACTION)} {verb} {threshold}; {rest}"
