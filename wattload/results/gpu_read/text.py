"""What the views of reads by threads and by requesters share: software, GPUs, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wattload.results.gpu_read.facts import ReadFacts, Run
from wattload.results.quantity import MISSING, counted, listed, whole
from wattload.results.shapes import Fact, Grid, Group, Note, Shape, Word, sheet, unique
from wattload.results.view import Arm, Shown, ShownRun

ReadArm = Arm[ReadFacts]
Value = Callable[[ShownRun[ReadFacts]], float | None]

_SOFTWARE: Mapping[str, str] = {
    "cuda": "CUDA",
    "nvidia_driver": "NVIDIA driver",
    "cufile": "cuFile",
    "kvikio": "KvikIO",
    "nvidia_fs": "nvidia-fs",
}


def valid_arms(shown: Shown[ReadFacts]) -> Sequence[Sequence[ShownRun[ReadFacts]]]:
    """Return the runs of each arm that are compared, over all points; all of an arm without any."""
    of_arm: dict[str, list[ShownRun[ReadFacts]]] = {}
    for arm in shown.arms:
        of_arm.setdefault(arm.title, []).extend(arm.runs)
    return [of_arm.get(arm.title) or arm.runs for arm in shown.every]


def failures(shown: Shown[ReadFacts]) -> Iterator[Note]:
    """Yield how many reads failed in each arm, by reason."""
    texts = []
    for arm in shown.every:
        reasons: dict[str, int] = {}
        for failure in (each for run in arm.runs for each in run.facts.failures):
            reason = failure.reason.rstrip(".")
            reasons[reason] = reasons.get(reason, 0) + failure.count
        of = f"{arm.name}: " if len(shown.every) > 1 else ""
        texts += [
            f"{of}{counted(count, 'read')} failed: {reason}." for reason, count in reasons.items()
        ]
    if texts:
        yield Note(
            title="Failed reads: their points are in no comparison", sentences=texts, tone="warn"
        )


def gpus(run: Run) -> Iterator[tuple[int, str]]:
    """Yield the GPUs that blocks ended in, by rank and PCI address."""
    for rank in run.facts.ranks:
        if rank.gpu is not None:
            yield rank.rank, rank.gpu.address
        yield from ((rank.rank, each.gpu) for each in run.facts.connections)


def node_text(node: int | None) -> str:
    return "NUMA node unknown" if node is None else f"NUMA node {node}"


def machine(shown: Shown[ReadFacts]) -> Iterator[Shape]:
    """Yield which GPU each target is read into, and the versions that the reader saw."""
    runs = list(shown.runs)
    links = {
        (each.path, each.gpu, each.link): each for run in runs for each in run.facts.connections
    }
    shapes: list[Shape] = []
    if links:
        shapes.append(
            Grid(
                columns=("target", "drive", "GPU", "link"),
                rows=[
                    (
                        each.path,
                        node_text(each.drive_node),
                        Word(each.gpu_name or "GPU", "", f"{each.gpu}, {node_text(each.gpu_node)}"),
                        each.link,
                    )
                    for each in links.values()
                ],
                caption="Which GPU each target is read into",
            )
        )
    names = unique(name for run in runs for name in (*_SOFTWARE, *sorted(run.facts.software)))

    def version(name: str) -> Callable[[ReadArm], str]:
        return lambda arm: (
            listed(unique(run.facts.software.get(name, "") for run in arm.runs)) or MISSING
        )

    facts: list[Fact[ReadArm]] = [("GPUs", _gpu_names)]
    facts += [(_SOFTWARE.get(name, name), version(name)) for name in names]
    found = sheet("What the reader saw", shown.every, [arm.title for arm in shown.every], facts)
    if found.facts:
        shapes.append(found)
    if shapes:
        yield Group(title="GPUs and software", shapes=shapes)


def _gpu_names(arm: ReadArm) -> str:
    names = {each.gpu: each.gpu_name for run in arm.runs for each in run.facts.connections}
    names |= {
        rank.gpu.address: rank.gpu.name for run in arm.runs for rank in run.facts.ranks if rank.gpu
    }
    known = [name or "GPU" for name in names.values()]
    return listed([f"{whole(known.count(name))} x {name}" for name in unique(known)]) or MISSING
