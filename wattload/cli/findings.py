"""A finding of ``wattload doctor``: one capability of this host, and how it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from wattload.cli.terminal import NARROWEST

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"yes": "green", "partly": "yellow", "no": "red"}

NEEDED_FOR = {
    "I/O engine": "loader=direct at the speed of the drive, at little CPU",
    "locked memory": "buffers that the kernel looks up once instead of for each operation",
    "GPU reads": "workload=gpu_read",
    "cuFile": "loader=cufile: GPUDirect Storage, or cuFile's path through host memory",
    "GPU queue": "small random reads and rows of graphs that a GPU asks for: loader=gpu_queue",
    "VFIO": "nothing here: drives of user-space drivers, which wattload does not have",
    "CPU quota": "what the host's CPUs can do for a run: the quota may be measured, not the drive",
    "memory traffic": "the memory traffic of all programs under load=busy",
    "memory limit": "workload=gnn with the memory of a larger graph's share",
    "block trace": "request sizes, depth and latency at the drive in gnn",
    "NVML": "the GPUs' power and energy (power=nvml), not the drive's",
    "hwmon": "the drive's power if power.hwmon.rails names its rails, else the node's "
    "(power=hwmon)",
    "RAPL": "the processors' energy (power=rapl), not the drive's",
    "IPMI": "the whole node's power (power=ipmi), not the drive's",
    "meter calibrated": "exact energies of short phases: how late the drive's meter is",
    "power settings restored": "runs in a drive's own power state after one was killed together "
    "with its sampler",
    "power restore at boot": "drives that a killed run left in another power state: a restart "
    "restores them",
    "MPI": "several processes: mpirun -n N wattload run ...",
    "fio": "make bench: compares our engine with fio's",
    "container engine": "runs in a container: docker compose -f docker/compose.yaml run --rm "
    "wattload run ...",
    "target directory": "the directory that a run reads and writes",
    "O_DIRECT": "loader=direct, and reads that do not come from the page cache",
    "device counters": "proof that bytes reached the device, and its queue depth",
    "target": "figures for the drive alone",
    "drive energy": "joules of the drive that are measured; bounds rank no drives",
    "workloads": "its runs with default settings",
    "NVMe controllers": "a drive's power states, health and own power figures",
}
"""What each capability is needed for, by its name."""


class Verdict(StrEnum):
    """Whether a capability is available."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


Answer = tuple[Verdict, str, str]
"""What a probe found, and a command that makes the capability available, if one can."""


def yes(detail: str, fix: str = "") -> Answer:
    return Verdict.YES, detail, fix


def partly(detail: str, fix: str = "") -> Answer:
    return Verdict.PARTLY, detail, fix


def no(detail: str, fix: str = "") -> Answer:
    return Verdict.NO, detail, fix


@dataclass(frozen=True, slots=True)
class Finding:
    """One capability of this host, and what it is needed for."""

    name: str
    needed_for: str
    verdict: Verdict
    detail: str
    fix: str = ""

    @classmethod
    def of(cls, name: str, answer: Answer) -> Finding:
        return cls(name, NEEDED_FOR[name], *answer)


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print each finding: verdict, observation, purpose, fix; wrapped on a terminal only."""
    from rich.text import Text

    width = max(len(finding.verdict) for finding in findings)
    indent = width + 2
    for finding in findings:
        start = Text(f"{finding.verdict:<{width}}  ", style=_COLOURS[finding.verdict])
        texts = [Text.assemble((finding.name, "bold"), f": {finding.detail}")]
        if finding.verdict != "yes":
            purpose = "needed for" if finding.verdict == "no" else "limits"
            texts.append(Text(f"{purpose} {finding.needed_for}", style="dim"))
        if not console.is_terminal:
            rows = texts
        else:
            columns = max(NARROWEST, console.width - indent)
            rows = [row for text in texts for row in text.wrap(console, columns)]
        console.print(Text.assemble(start, rows[0]), soft_wrap=True)
        for row in rows[1:]:
            console.print(Text.assemble(" " * indent, row), soft_wrap=True)
        if finding.fix:
            # A command is on one line, however narrow the terminal: it must survive copying.
            console.print(f"{'':{indent}}$ {finding.fix}", soft_wrap=True, markup=False)
