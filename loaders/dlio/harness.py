"""dlio-benchmark run on our files: its configuration, its command, its result.

DLIO lists ``<data folder>/train``, sorts the names and, unshuffled, reads them in that order, each
accelerator its own contiguous part. Numbered links therefore make it read any files in any order,
the same one in every epoch. It does not wait between epochs, so a page cache that is emptied before
each needs a call of the program for each. Its own log says when its timed blocks begin and end.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import wattload
from wattload.core.errors import RunError
from wattload.core.files import open_folder
from wattload.core.io import DataPath, VerifiedSamples
from wattload.core.mlperf.edition import published_job
from wattload.core.units import NS_PER_S
from wattload.core.workload import Phase
from wattload.loaders.dlio.config import Config, mpirun
from wattload.loaders.dlio.output import read_output
from wattload.loaders.dlio.program import STDERR, Program
from wattload.loaders.dlio.record_files import ReaderSettings, ReaderSummary, read_summary
from wattload.loaders.samples import (
    ProcessCounts,
    TimedWindow,
    TrainedEpoch,
    Training,
    TrainingResult,
)

MEMORY = Path("/dev/shm")

OUTPUT = "output"
JOURNAL = "reads.jsonl"
COMMAND = "command.txt"
COUNTED = "WATTLOAD_DLIO_COUNTED"
"""The variable with a file that gets one byte when DLIO's first block may begin, and one when the
counts of a block have been read. It is locked as long as we live; see ``held``."""
_SETTINGS = {
    # Without a launcher Open MPI 4 starts a daemon, and fails on hosts without ssh.
    "OMPI_MCA_ess_singleton_isolated": "1",
    # By default Hydra shortens the program's own error to its last line.
    "HYDRA_FULL_ERROR": "1",
    # DLIO initializes MPI itself, in ranks; workers that import it must not.
    "MPI4PY_RC_INITIALIZE": "0",
    "TZ": "UTC",
}
_LAUNCHER_VARIABLES = ("PMI_", "PMIX_", "OMPI_", "HYDI_", "HYDRA_", "MPI_LOCAL", "PALS_")
_SIGNAL_STATUS = 128

_LINE = re.compile(
    r"\[INFO\] (\S+) "
    r"(?:(Running DLIO|Max steps|Starting block|Ending block)|Rank (\d+) step (\d+) processed) "
)
"""Lines of rank 0, and those of each rank's steps.

Between "Max steps" and the first block DLIO makes its DataLoader, which reads nothing. A block is
what DLIO times of an epoch.
"""


@dataclass(frozen=True, slots=True)
class _Block:
    """What DLIO timed of an epoch, on CLOCK_MONOTONIC, and the kernel's counts in it.

    They are taken while the program is held: before its first block, and after the end of each.
    """

    start_ns: int
    end_ns: int
    counts: ProcessCounts


def train(
    config: Config, training: Training, folder: Path, window: TimedWindow | None
) -> TrainingResult:
    """Run one DLIO process per accelerator; their raw output stays in ``folder``.

    There are ``command.txt``, ``config/``, ``stdout.log``, ``stderr.log``, ``output/`` with the
    files of DLIO and Hydra, as MLPerf Storage publishes them, and, with our reader,
    ``reads.jsonl``.

    Raises:
        OSError: the folder can't be created, or its file system has no symbolic links.
        RunError: the program failed, or its output can't be read.
    """
    # As in MLPerf's results, the job's name says the accelerator. DLIO itself has a unet3d_h100.
    job = re.sub("[^A-Za-z0-9]+", "_", f"wattload_{training.model}_{training.accelerator}")
    command = command_line(job, training.accelerators)
    with ExitStack() as held:
        run = held.enter_context(open_folder(folder.parent))
        own = held.enter_context(run.make(folder.name))
        data = held.enter_context(data_folder(folder, training))
        with own.make("config") as outer, outer.make("workload") as inner:
            settings = workload_settings(config, training, data)
            inner.write(f"{job}.yaml", json.dumps(settings, indent=2) + "\n")
        own.write(COMMAND, shlex.join(command) + "\n")
        counted = held.enter_context((data / "counted").open("wb", buffering=0))
        fcntl.flock(counted, fcntl.LOCK_EX)
        environment = {**_environment(config, training, folder), COUNTED: counted.name}
        program = Program(command, folder, environment)
        held.callback(program.end)
        blocks = _follow(program, training, window, lambda: counted.write(b"."))
        if status := program.status():
            raise RunError(
                f"dlio-benchmark {_ending(status)}: {program.last_error_line() or 'no output'}; "
                f"its full error output is in {folder / STDERR}"
            )
    if len(blocks) != training.epochs:
        raise RunError(
            f"dlio-benchmark logged {len(blocks)} of {training.epochs} blocks, see "
            f"{folder / STDERR}; dlio-benchmark 2.0.0 is the supported version"
        )
    noted = None
    if config.reader == "wattload":
        noted = read_summary(folder / JOURNAL, [block.start_ns for block in blocks])
    return TrainingResult(
        epochs=[
            TrainedEpoch(
                ranks=ranks,
                window_s=(block.end_ns - block.start_ns) / NS_PER_S,
                counts=block.counts,
                reported=reported,
                plugged_bytes=noted.read_bytes[number] if noted is not None else None,
            )
            for number, (block, (ranks, reported)) in enumerate(
                zip(blocks, read_output(folder / OUTPUT, training), strict=True)
            )
        ],
        path=_path(config, training, noted),
        version=version("dlio-benchmark"),
        command=tuple(command),
        verified=_verified(training, noted)
        if noted is not None and training.samples.nonce is not None
        else None,
    )


def _follow(
    program: Program,
    training: Training,
    window: TimedWindow | None,
    go_on: Callable[[], object],
) -> list[_Block]:
    """Follow the program's log to its end; return its blocks, each a phase of ``window``.

    ``go_on`` is called when the count of the first block has begun, and when that of each has ended
    and the next one's has begun.

    A phase's bytes are those of the files of its batches, counted when a rank logs a batch as
    processed. What the last lines of other ranks have is added at the end of the block, where rank
    0 has waited for them; the program's output confirms all steps afterwards.
    """
    blocks: list[_Block] = []
    start_ns = 0
    phase: Phase | None = None
    left: dict[tuple[int, int], int] = {}
    with ExitStack() as held:
        for line in filter(None, map(_LINE.match, program.lines())):
            time_ns, event = _monotonic_ns(line[1]), line[2]
            if event == "Running DLIO":
                program.unlink_shared_memory()
            elif event == "Max steps":
                phase = held.enter_context(window()) if window else None
                program.mark()
                left = _batches(training)
                go_on()
            elif event == "Starting block":
                start_ns = time_ns
            elif event == "Ending block":
                blocks.append(_Block(start_ns, time_ns, program.counts()))
                if phase is not None:
                    phase.moved(read_bytes=sum(left.values()))
                    phase.set_edges(start_ns, time_ns)
                    held.close()
                phase, left = None, _batches(training)
                if window is not None and len(blocks) < training.epochs:
                    phase = held.enter_context(window())
                go_on()
            elif phase is not None:
                # A last line of an epoch that comes in the next one stands for that one's last.
                batch = (int(line[3]), int(line[4]) - 1)
                phase.moved(read_bytes=left.pop(batch, 0))
    return blocks


def _batches(training: Training) -> dict[tuple[int, int], int]:
    """Return the bytes of each batch of an epoch, by rank and step."""
    return {
        (rank, step): training.batch_bytes_read(rank, step)
        for rank in range(training.accelerators)
        for step in range(training.steps)
    }


def _monotonic_ns(stamp: str) -> int:
    """Return the CLOCK_MONOTONIC time of a line that has just come, by its time of day (UTC)."""
    written_s = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
    return time.monotonic_ns() - round((time.time() - written_s) * NS_PER_S)


def command_line(job: str, accelerators: int) -> list[str]:
    """Return DLIO's command line for the configuration of that name.

    It runs in the folder of its output, with relative paths. ``-P`` keeps that folder out of the
    module path. mpi4py ends all ranks when one has failed.
    """
    launcher = [mpirun(), "-n", str(accelerators)] if accelerators > 1 else []
    return [
        *launcher,
        sys.executable,
        "-P",
        *("-m", "mpi4py"),
        *("-m", "wattload.loaders.dlio.held"),
        "--config-dir=config",
        f"workload={job}",
        f"hydra.run.dir={OUTPUT}",
    ]


@contextmanager
def data_folder(parent: Path, training: Training) -> Iterator[Path]:
    """Yield a folder with numbered links to the samples of all accelerators; removed at the end.

    From memory they are links to copies of the files, in a folder in memory.

    Raises:
        RunError: there is not enough memory for them.
        OSError: the folder can't be created, or its file system has no symbolic links.
    """
    samples = training.samples
    with ExitStack() as held:

        def make(place: Path) -> Path:
            made = tempfile.TemporaryDirectory(prefix="wattload-", dir=place)
            return Path(held.enter_context(made))

        paths: Sequence[Path] = [path.absolute() for path in samples.paths]
        if samples.in_memory:
            try:
                memory = make(MEMORY)
                paths = [shutil.copyfile(path, memory / path.name) for path in paths]
            except OSError as error:
                raise RunError(f"{MEMORY} can't hold the files: {error.strerror}") from error
        data = make(parent)
        for name in ("train", "valid"):  # DLIO lists both
            (data / name).mkdir()
        order = [index for shard in training.orders for index in shard]
        for number, index in enumerate(order):
            (data / "train" / f"{number:08d}.{samples.record_format}").symlink_to(paths[index])
        yield data


def workload_settings(config: Config, training: Training, data: Path) -> dict[str, Any]:
    """Return DLIO's configuration of the job, under its own names."""
    samples = training.samples
    reader = {
        "data_loader": "pytorch",
        "batch_size": samples.batch_samples,
        "read_threads": config.workers,
        "prefetch_size": config.workers * config.prefetch_factor,
        "multiprocessing_context": config.start_method,
        "file_shuffle": "off",
        "sample_shuffle": "off",
    }
    if config.reader == "wattload":
        reader["reader_classname"] = "wattload.loaders.dlio.plugin.DirectRecordReader"
    return {
        "model": training.model,
        "framework": "pytorch",
        "workflow": {"generate_data": False, "train": True, "checkpoint": False},
        "dataset": {
            "data_folder": data.name,
            "format": samples.record_format,
            "num_files_train": training.accelerators * len(training.orders[0]),
            "num_samples_per_file": 1,
            "record_length": round(training.record_mean_bytes),
            "record_length_stdev": round(training.record_stdev_bytes),
            "record_length_resize": samples.resize_bytes,
            "keep_files": True,
        },
        "reader": reader,
        "train": {"epochs": training.epochs, "computation_time": training.step_s},
        # Tensors of these sizes are made at start-up, though no checkpoint is.
        "checkpoint": {
            "checkpoint_folder": "checkpoints",
            "model_size": 0,
            "layer_parameters": [],
        },
        "output": {"folder": OUTPUT},
        "metric": {"au": published_job(training.model).au},
    }


def _environment(config: Config, training: Training, folder: Path) -> dict[str, str]:
    """Return our environment without a launcher's variables, with our reader and stand-ins."""
    samples = training.samples
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_LAUNCHER_VARIABLES)
    }
    reader = ReaderSettings(
        journal=str((folder / JOURNAL).absolute()),
        largest_bytes=max(samples.file_bytes),
        record_format=samples.record_format,
        block_bytes=config.reader_block_bytes,
        queue_depth=config.reader_queue_depth,
        check_crc=samples.check_crc,
        nonce=samples.nonce,
    )
    ours = [
        str(Path(__file__).absolute().with_name("stand_ins")),
        str(Path(wattload.__file__).absolute().parents[1]),
        *filter(None, [kept.get("PYTHONPATH")]),
    ]
    return {
        **kept,
        **_SETTINGS,
        **reader.environment(),
        "PYTHONPATH": os.pathsep.join(ours),
    }


def _ending(status: int) -> str:
    if status < 0 or status > _SIGNAL_STATUS:
        return f"was ended by signal {-status if status < 0 else status - _SIGNAL_STATUS}"
    return f"failed with status {status}"


def _path(config: Config, training: Training, noted: ReaderSummary | None) -> DataPath:
    if training.samples.in_memory:
        return DataPath(data_path="memory", path_requested="memory")
    if noted is None:
        return DataPath(
            data_path="np.load in the workers of dlio-benchmark", path_requested="page_cache"
        )
    return DataPath(
        data_path="o_direct in the workers of dlio-benchmark",
        path_requested="o_direct",
        engine=", ".join(noted.engines),
        remarks=noted.remarks,
    )


def _verified(training: Training, noted: ReaderSummary) -> VerifiedSamples:
    numbers = {path.name: index for index, path in enumerate(training.samples.paths)}
    return VerifiedSamples(
        verified_bytes=noted.verified_bytes,
        bad_blocks={numbers[name]: count for name, count in noted.bad_blocks.items()},
    )
