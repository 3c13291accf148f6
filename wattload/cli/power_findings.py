"""What the doctor finds of power beside the drives: GPUs, and the processor's own meter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from wattload.cli.finding import Finding, Verdict
from wattload.core.sysfs import LIVE, Roots, explain, read_int

_GPU_ADDS = "power and energy of GPUs (power=nvml), of scope gpu: never a drive's figure"
_RAPL_ADDS = "the processor's energy, of scope node: this version does not record it"


def power_findings(
    roots: Roots = LIVE, load: Callable[[str], Any] = import_module
) -> Iterator[Finding]:
    """Yield which power meters there are beside the drives' own."""
    yield _nvml(load)
    yield _rapl(roots)


def _nvml(load: Callable[[str], Any]) -> Finding:
    finding = partial(Finding, name="NVML", adds=_GPU_ADDS)
    try:
        pynvml = load("pynvml")
    except ImportError:
        return finding(
            verdict=Verdict.NO,
            says="the module pynvml is not installed",
            mend="pip install 'wattload[gpu]'",
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return finding(
            verdict=Verdict.NO,
            says=f"pynvml is installed, and no driver answers: {error}",
            mend="nvidia-smi",
        )
    try:
        count = pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()
    return finding(
        verdict=Verdict.YES if count else Verdict.NO,
        says=f"{count} GPU{'' if count == 1 else 's'}",
        mend="" if count else "nvidia-smi",
    )


def _rapl(roots: Roots) -> Finding:
    finding = partial(Finding, name="RAPL", adds=_RAPL_ADDS)
    domains = sorted(roots.sys.glob("class/powercap/intel-rapl:*"))
    if not domains:
        return finding(
            verdict=Verdict.NO,
            says="the kernel shows no domain, as in most virtual machines",
            mend="sudo modprobe intel_rapl_msr",
        )
    counter = domains[0] / "energy_uj"
    try:
        read_int(counter)
    except (OSError, ValueError) as error:
        return finding(
            verdict=Verdict.NO,
            says=f"{explain(error)} for user {os.geteuid()}",
            mend=f"sudo chmod a+r {counter}",
        )
    names = ", ".join(domain.name for domain in domains)
    return finding(verdict=Verdict.YES, says=names)
