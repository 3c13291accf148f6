"""The first line of ``wattload doctor``: what can run in a directory, and its drive's energy."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from wattload.cli.findings import NEEDED_FOR, Finding, no, yes
from wattload.core.errors import WattloadError
from wattload.results.quantity import counted

LONGEST_REASON = 70
"""Characters of the first line that say why nothing measures the drive's energy."""


def headline(refusals: Mapping[str, str], energy: Finding) -> str:
    """Return which part of the workloads can run here, and whether the drive's energy is measured.

    ``refusals`` are those of ``workload_refusals``.
    """
    ready = sum(not refusal for refusal in refusals.values())
    why = {"yes": "", "partly": " (it ranks nothing)", "no": f" ({_short(energy.detail)})"}[
        energy.verdict
    ]
    return (
        f"ready for {ready} of {counted(len(refusals), 'workload')}; "
        f"drive energy: {energy.verdict}{why}"
    )


def _short(reason: str) -> str:
    """Return the first clause of why nothing measures a drive: ``vda: not an NVMe drive, ...``."""
    first = reason.removeprefix("found ").partition("; ")[0]
    first = re.sub(r"^no source for (\S+) \((.*?)\)?$", r"\1: \2", first)
    return textwrap.shorten(first, LONGEST_REASON, placeholder=" ...")


def workload_refusals(directory: Path) -> dict[str, str]:
    """Return why each workload can't run in a directory at the smallest scale; empty if it can.

    Each workload plans a run with its default loader. Workloads that move no bytes are left out.
    """
    from wattload.cli.outcome import Printer
    from wattload.cli.plan import require_possible
    from wattload.run.config import override_of
    from wattload.run.config_groups import options
    from wattload.session.loop import plan_run

    refusals = {}
    target = override_of("target.path", str(directory.absolute()))
    for name in options("workload"):
        overrides = [f"workload={name}", "scale=demo", "power=none", "ranks=1", target]
        try:
            preview = plan_run(overrides, Printer())
            assert preview is not None  # this is the only rank
            plan = preview.plan
            if not (plan.data_bytes or plan.run_bytes):
                continue
            refusals[name] = plan.refusal
            require_possible(preview)
        except (WattloadError, ImportError, OSError) as error:
            refusals[name] = refusals.get(name) or str(error)
    return refusals


def workload_findings(refusals: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which workloads can run, and for each reason those that can't."""
    ready = [name for name, refusal in refusals.items() if not refusal]
    if ready:
        yield Finding.of("workloads", yes(", ".join(ready)))
    reasons: dict[str, list[str]] = {}
    for name, refusal in refusals.items():
        reasons.setdefault(refusal, []).append(f"workload={name}")
    for refusal, names in reasons.items():
        if refusal:
            yield Finding(", ".join(names), NEEDED_FOR["workloads"], *no(refusal))
