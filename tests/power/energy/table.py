"""The errors of simulated runs by kind: ``python -m tests.power.energy.table --seeds 200``.

Each row has the mean error (bias), its root mean square and the mean U (k = 2) in percent of the
energy, the share of seeds in which U holds, and the share without a figure.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from tests.power.energy.simulated_runs import DOUBTFUL, KINDS, Kind, outcome

BIAS_MAX, HELD_MIN = 0.005, 0.93
U_RMS, U_LEAST = 5.0, 0.001
"""U is at most so many times the root mean square error, plus this share of the energy."""
WITHIN = 1e-6
"""Energies that differ by this share are equal."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Errors and uncertainties as shares of the true energy, and the share of figures known."""

    name: str
    bias: float
    rms: float
    u: float
    held: float
    share_known: float

    @property
    def fault(self) -> str:
        """What exceeds a limit, empty if nothing does."""
        faults = {
            "bias": abs(self.bias) > BIAS_MAX,
            "held": self.held < HELD_MIN,
            "U": self.u > U_RMS * self.rms + U_LEAST,
            "missing": self.share_known < 1,
        }
        return ", ".join(name for name, is_over in faults.items() if is_over)


Error = tuple[float, float]
"""Error and U as shares of the true energy, NaN if there is no figure."""


def errors(
    kind: Kind, seed: int, *, is_calibrated: bool = True, has_rest: bool = True
) -> dict[str, list[Error]]:
    """Return the errors in the window, of the tail and for the work, and all of their U."""
    found = outcome(kind, seed, is_calibrated=is_calibrated, has_rest=has_rest)
    rows: dict[str, list[Error]] = {"window": [], "tail": [], "work": []}
    for record in found.records:
        true_j = found.true_j[record.phase]
        rows["window"].append(_error(record.energy_j, record.uncertainty_j, true_j, true_j))
    if has_rest:
        last, true_j = found.records[-1], found.true_j[found.records[-1].phase]
        work_j = true_j + found.true_tail_j
        rows["tail"].append(_error(last.tail_j, last.tail_uncertainty_j, found.true_tail_j, work_j))
        rows["work"].append(_error(last.work_j, last.work_uncertainty_j, work_j, work_j))
    return rows


def _error(found_j: float | None, u_j: float | None, true_j: float, scale_j: float) -> Error:
    if found_j is None or u_j is None:
        return math.nan, math.nan
    return (found_j - true_j) / scale_j, u_j / scale_j


def row(name: str, found: Iterable[Error]) -> Row:
    all_errors = np.array(list(found)).reshape(-1, 2)
    known = all_errors[~np.isnan(all_errors[:, 0])]
    if not known.size:
        return Row(name=name, bias=0.0, rms=0.0, u=0.0, held=1.0, share_known=0.0)
    error, u = known.T
    return Row(
        name=name,
        bias=float(error.mean()),
        rms=float(np.sqrt((error**2).mean())),
        u=float(u.mean()),
        held=float((np.abs(error) <= u + WITHIN).mean()),
        share_known=len(known) / len(all_errors),
    )


def rows(name: str, seeds: Sequence[int], **options: bool) -> list[Row]:
    """Return a row for each measurand of a kind."""
    (kind,) = [each for each in (*KINDS, *DOUBTFUL) if each.name == name]
    found = [errors(kind, seed, **options) for seed in seeds]
    return [
        row(f"{name} / {measurand}", (error for each in found for error in each[measurand]))
        for measurand in found[0]
        if found[0][measurand]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    parser.add_argument("--declared", action="store_true", help="without calibration")
    parser.add_argument("--no-rest", action="store_true", help="work follows at once")
    chosen = parser.parse_args()
    kinds = [kind.name for kind in (*KINDS, *DOUBTFUL) if chosen.only in kind.name]
    of_kind = partial(
        rows,
        seeds=range(chosen.seeds),
        is_calibrated=not chosen.declared,
        has_rest=not chosen.no_rest,
    )
    print(f"{'%':56} {'bias':>8} {'rms':>8} {'U':>8} {'held':>6} {'known':>6}")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(of_kind, kinds):
            for each in found:
                figures = f"{100 * each.bias:8.3f} {100 * each.rms:8.3f} {100 * each.u:8.3f}"
                shares = f"{100 * each.held:6.1f} {100 * each.share_known:6.1f}"
                print(f"{each.name:56} {figures} {shares}  {each.fault}")


if __name__ == "__main__":
    main()
