"""Reads into GPU memory against programs written after gdsio's documented transfer types 2 and 0.

The peers are in ``gpu_peers``: C programs that use nothing of wattload. All read the same files, on
one GPU, with one read in flight per thread. Where cuFile, KvikIO or a GPU is missing, the rows say
so. On a machine without GPUDirect Storage cuFile takes its path through host memory on both sides.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.files import stamped_files
from benchmarks.measure import NotMeasuredError, Result, rounds
from benchmarks.taken import Taken, children_cpu_s
from wattload.core.errors import WattloadError
from wattload.core.host.gpus import Gpu, find_gpu
from wattload.core.io import Stamps
from wattload.core.units import KIB, MIB
from wattload.loaders.bounce.config import Config as Bounce
from wattload.loaders.cufile.config import CONFIGURATION
from wattload.loaders.cufile.config import Config as CuFile
from wattload.loaders.gpu.probe import probe
from wattload.loaders.gpu_reads import GpuFile, GpuReadLoaderConfig, GpuReadPlan
from wattload.loaders.kvikio.config import Config as Kvikio

SOURCES = Path(__file__).parent / "gpu_peers"
MEMORY = Path("/dev/shm")
FILE_COUNT, FILE_BYTES = 2, 2048 * MIB
MEMORY_BYTES = 512 * MIB
BLOCKS = {"4 KiB": 4 * KIB, "128 KiB": 128 * KIB, "1 MiB": MIB}
THREADS = (8, 64, 512)
KVIKIO_THREADS = RING_THREADS = 64
SECONDS = 1.0
SETUP_S = 1.6
"""The seconds that a process takes besides, on average: 5 where cuFile registers 512 buffers."""
PEER_GOAL, PROOF_GOAL, RING_GOAL = 0.98, 0.99, 2.0
KVIKIO_GOALS = {"4 KiB": 1.5, "128 KiB": 1.0, "1 MiB": 1.0}
_TIMEOUT_S = 300.0

Take = Callable[[], Taken]


@dataclass(frozen=True, slots=True)
class Place:
    """The files that are read, the GPU whose memory they go to, and its node."""

    files: Sequence[tuple[Path, Stamps]]
    size_bytes: int
    gpu: str
    node: int | None

    def plan(self, block_bytes: int, threads: int) -> GpuReadPlan:
        files = tuple(
            GpuFile(
                path=path,
                size_bytes=self.size_bytes,
                gpu=self.gpu,
                node=self.node,
                stamps=stamps,
            )
            for path, stamps in self.files
        )
        return GpuReadPlan(
            files=files, block_bytes=block_bytes, threads=threads, duration_s=SECONDS, seed=1
        )


def seconds(pairs: int) -> float:
    """Return about how long the group takes on a machine with a GPU."""
    comparisons = 2 * len(BLOCKS) * len(THREADS) + len(KVIKIO_GOALS) + 2
    return 30 + comparisons * 3 * pairs * (SECONDS + SETUP_S)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield the ratios to the peers, to KvikIO, of the ring to threads, and the cost of proof."""
    found, reason = gpus()
    if not found:
        yield Result(name="reads into GPU memory", unit="", goal=PEER_GOAL, missing=reason)
        return
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattload-")))
            programs = build_peers(folder)
            files = stack.enter_context(stamped_files(target, FILE_COUNT, FILE_BYTES))
        except (NotMeasuredError, WattloadError, OSError) as error:
            yield Result(name="reads into GPU memory", unit="", goal=PEER_GOAL, missing=str(error))
            return
        place = Place(files, FILE_BYTES, found[0].address, found[0].node)
        for (size, block_bytes), threads in itertools.product(BLOCKS.items(), THREADS):
            name = f"{size} x {threads} threads"
            plan = place.plan(block_bytes, threads)
            bounce, peer = partial(ours, Bounce(), plan), partial(peers, programs["bounce"], plan)
            yield from compare(f"bounce ÷ peer, {name}", bounce, peer, pairs)
            cufile, peer = (
                partial(ours, CuFile(mode="auto"), plan),
                partial(cufile_peer, programs["cufile"], plan, 3),
            )
            yield from compare(f"cufile ÷ peer, {name}", cufile, peer, pairs)
        for size, goal in KVIKIO_GOALS.items():
            plan = place.plan(BLOCKS[size], KVIKIO_THREADS)
            bounce, kvikio = partial(ours, Bounce(), plan), partial(ours, Kvikio(), plan)
            name = f"bounce ÷ kvikio, {size} x {KVIKIO_THREADS} threads"
            yield from compare(name, bounce, kvikio, pairs, goal=goal)
        yield proof(programs["cufile"], place.plan(BLOCKS["4 KiB"], RING_THREADS), pairs)
        yield from ring(place, pairs)


def compare(
    name: str, upper: Take, lower: Take, pairs: int, *, goal: float = PEER_GOAL
) -> list[Result]:
    """Return the ratios of rates and of CPU time per GB."""
    upper_name, lower_name = name.partition(",")[0].split(" ÷ ")
    again = f"{lower_name} again"
    speed_name, cost_name = name, f"{name}, CPU per GB"
    try:
        taken = rounds({upper_name: upper, lower_name: lower, again: lower}, pairs)
        ratios = {
            (of, way): taken.ratios(of, way, lower_name)
            for of in (Taken.gb_per_s, Taken.cpu_s_per_gb)
            for way in (upper_name, again)
        }
    except NotMeasuredError as error:
        return [
            Result(name=speed_name, unit="", goal=goal, missing=str(error)),
            Result(name=cost_name, unit="", goal=1.0, sense="at_most", missing=str(error)),
        ]
    return [
        Result(
            name=speed_name,
            unit="GB/s",
            goal=goal,
            values=ratios[Taken.gb_per_s, upper_name],
            noise=ratios[Taken.gb_per_s, again],
            figures=taken.values(Taken.gb_per_s),
            order=taken.order,
            raw=taken.as_json(Taken.as_json),
        ),
        Result(
            name=cost_name,
            unit="CPU s per GB",
            goal=1.0,
            sense="at_most",
            values=ratios[Taken.cpu_s_per_gb, upper_name],
            noise=ratios[Taken.cpu_s_per_gb, again],
            figures=taken.values(Taken.cpu_s_per_gb),
            order=taken.order,
        ),
    ]


def ring(place: Place, pairs: int) -> Iterator[Result]:
    """Yield the reads per core of a ring against threads, where storage is memory."""
    name = f"ring ÷ bounce per core, 4 KiB x {RING_THREADS} from memory"
    try:
        with _memory_files() as files:
            plan = Place(files, MEMORY_BYTES, place.gpu, place.node).plan(4 * KIB, RING_THREADS)
            ways = {
                "ring": partial(ours, Bounce(submit="ring"), plan),
                "bounce": partial(ours, Bounce(), plan),
                "bounce again": partial(ours, Bounce(), plan),
            }
            taken = rounds(ways, pairs)
            of = Taken.million_per_cpu_s
            yield Result(
                name=name,
                unit="M/s per core",
                goal=RING_GOAL,
                values=taken.ratios(of, "ring", "bounce"),
                noise=taken.ratios(of, "bounce again", "bounce"),
                figures=taken.values(of),
                order=taken.order,
                raw=taken.as_json(Taken.as_json),
            )
    except (NotMeasuredError, OSError) as error:
        yield Result(name=name, unit="", goal=RING_GOAL, missing=str(error))


def proof(program: Path, plan: GpuReadPlan, pairs: int) -> Result:
    """Return what cuFile's statistics, the only counters that are not free, leave of its rate."""
    name = "cuFileRead with statistics ÷ without"
    ways = {
        "with": partial(cufile_peer, program, plan, 3),
        "without": partial(cufile_peer, program, plan, 0),
        "without again": partial(cufile_peer, program, plan, 0),
    }
    try:
        taken = rounds(ways, pairs)
    except NotMeasuredError as error:
        return Result(name=name, unit="", goal=PROOF_GOAL, missing=str(error))
    return Result(
        name=name,
        unit="M/s",
        goal=PROOF_GOAL,
        values=taken.ratios(Taken.million_per_s, "with", "without"),
        noise=taken.ratios(Taken.million_per_s, "without again", "without"),
        figures=taken.values(Taken.million_per_s),
        order=taken.order,
        raw=taken.as_json(Taken.as_json),
    )


def ours(config: GpuReadLoaderConfig, plan: GpuReadPlan) -> Taken:
    """Read by one of our loaders.

    Raises:
        NotMeasuredError: it can't read here, or some of its reads failed or were wrong.
    """
    before_s = children_cpu_s()
    with tempfile.TemporaryDirectory(prefix="wattload-") as folder:
        try:
            config.check_gpu_reads(plan, [])
            reader = config.gpu_reader(plan, Path(folder))
            try:
                result = reader.run(Unwatched())
            finally:
                reader.close()
        except (WattloadError, OSError) as error:
            raise NotMeasuredError(str(error)) from error
    if result.failures or result.bad_blocks or not result.operations:
        raise NotMeasuredError(
            f"loader={config.name}: of {result.operations} reads {result.bad_blocks} blocks were "
            f"wrong, and these reads failed: {dict(result.failures)}"
        )
    return Taken(
        moved_bytes=result.moved_bytes,
        operation_count=result.operations,
        seconds=result.seconds,
        cpu_s=result.cpu_s,
        process_cpu_s=children_cpu_s() - before_s,
    )


def cufile_peer(program: Path, plan: GpuReadPlan, statistics: int) -> Taken:
    """Read by bare cuFileRead, configured as our loader is."""
    with tempfile.TemporaryDirectory(prefix="wattload-") as folder:
        path = Path(folder) / CONFIGURATION
        path.write_text(json.dumps(CuFile(mode="auto").configuration(plan, Path(folder))))
        return peers(
            program,
            plan,
            {"CUFILE_ENV_PATH_JSON": str(path), "PEER_STATISTICS": str(statistics)},
        )


def peers(program: Path, plan: GpuReadPlan, variables: Mapping[str, str] | None = None) -> Taken:
    """Read by a program of ``gpu_peers``, on the CPUs of the GPU's node.

    Raises:
        NotMeasuredError: it can't read here, or some of its reads failed.
    """
    command = [
        *(str(program), plan.files[0].gpu, str(plan.block_bytes), str(plan.threads)),
        *(str(plan.duration_s), str(plan.seed), *(str(file.path) for file in plan.files)),
    ]
    node = plan.files[0].node
    if node is not None and shutil.which("numactl"):
        command = ["numactl", f"--cpunodebind={node}", *command]
    before_s = children_cpu_s()
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **(variables or {})},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasuredError(f"{program.name}: {error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise NotMeasuredError(f"the peer {program.name}: {lines[-1]}")
    said = json.loads(done.stdout.splitlines()[-1])
    if said["failed"] or not said["reads"]:
        raise NotMeasuredError(
            f"the peer {program.name}: {said['failed']} reads failed, {said['reads']} did not"
        )
    return Taken(
        moved_bytes=said["bytes"],
        operation_count=said["reads"],
        seconds=said["seconds"],
        cpu_s=said["cpu_s"],
        process_cpu_s=children_cpu_s() - before_s,
    )


def build_peers(folder: Path) -> dict[str, Path]:
    """Compile the peers into a folder and return their programs by name.

    Raises:
        NotMeasuredError: there is no C compiler, or it fails.
    """
    programs = {}
    for name in ("bounce", "cufile", "copy"):
        programs[name] = folder / name
        build = ["cc", "-O2", "-std=gnu11", "-pthread", "-o", str(programs[name])]
        source = str(SOURCES / f"{name}.c")
        try:
            subprocess.run([*build, source, "-ldl"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotMeasuredError(f"cc can't build {name}.c: {error}") from error
    return programs


class Unwatched:
    """Reads that nobody follows; a ``ReadsWatch``."""

    def begin(self) -> None:
        """Do nothing."""

    def moved(self, reads: int, read_bytes: int) -> None:
        """Do nothing."""

    def end(self, start_ns: int, end_ns: int) -> None:
        """Do nothing."""


def gpus() -> tuple[list[Gpu], str]:
    """Return the GPUs that CUDA shows; if there are none, also why."""
    try:
        return [find_gpu(gpu.address) for gpu in probe(with_cufile=False).gpus], ""
    except WattloadError as error:
        return [], str(error).partition(": install")[0]


@contextmanager
def _memory_files() -> Iterator[Sequence[tuple[Path, Stamps]]]:
    with (
        tempfile.TemporaryDirectory(prefix="wattload-", dir=MEMORY) as folder,
        stamped_files(Path(folder), 1, MEMORY_BYTES) as files,
    ):
        yield files
