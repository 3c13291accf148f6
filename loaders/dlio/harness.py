"""dlio-benchmark run on our files: its folder, its configuration, its command, its result.

DLIO lists ``<data folder>/train``, sorts the names and, unshuffled, reads them in that order, each
accelerator its own contiguous part. Numbered links therefore make it read any files in any order,
and changing the links between two epochs changes the order of the next.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import wattload
from wattload.core.errors import RunError
from wattload.core.files import Folder, open_folder
from wattload.core.io import DataPath, HarnessWatch, IOResult, VerifiedSamples
from wattload.core.mlperf.dlio_output import Output, read_output
from wattload.core.mlperf.published import UNET3D
from wattload.core.units import NS_PER_S, format_bytes
from wattload.loaders.dlio.config import ChildSettings, Config, mpirun
from wattload.loaders.dlio.epoch_server import STDERR, EpochReports, EpochServer, Program
from wattload.loaders.dlio.record_files import ReaderSummary, read_summary
from wattload.loaders.samples import TrainedEpoch, Training, TrainingResult

MEMORY = Path("/dev/shm")
_DIGITS = 8


OUTPUT = "output"
JOURNAL = "reads.jsonl"
COMMAND = "command.txt"
_WORKLOAD = "wattload"
_ALONE = {"OMPI_MCA_ess_singleton_isolated": "1"}
"""Without a launcher Open MPI 4 starts a daemon, and fails on hosts without ssh."""

_LAUNCHER_VARIABLES = ("PMI_", "PMIX_", "OMPI_", "HYDI_", "HYDRA_", "MPI_LOCAL", "PALS_")
_SIGNAL_STATUS = 128


class LinkFolder:
    """``data/train`` with its links and an empty ``data/valid``; DLIO lists both."""

    def __init__(self, folder: Path, training: Training, paths: Sequence[Path]) -> None:
        """Create the folder under ``folder``, which exists, over the files at ``paths``."""
        self.path = folder / "data"
        self._training = training
        self._paths = paths
        self._names: list[str] = []
        for name in ("train", "valid"):
            (self.path / name).mkdir(parents=True)
        self.point(0)

    def point(self, epoch: int) -> None:
        """Point the links at the files of one epoch, in the order of its samples."""
        order = [index for shard in self._training.orders[epoch] for index in shard]
        suffix = self._training.samples.record_format
        train = self.path / "train"
        self._names = [f"{number:0{_DIGITS}d}.{suffix}" for number in range(len(order))]
        for name, index in zip(self._names, order, strict=True):
            temporary = self.path / name
            temporary.symlink_to(self._paths[index].absolute())
            temporary.replace(train / name)

    def remove(self) -> None:
        """Remove the links and the two folders; files of others stay, and keep their folder."""
        for name in self._names:
            (self.path / "train" / name).unlink(missing_ok=True)
        for folder in (self.path / "train", self.path / "valid", self.path):
            folder.rmdir()


@contextmanager
def copies_in_memory(paths: Sequence[Path], suffix: str) -> Iterator[list[Path]]:
    """Yield copies of the files on a file system in memory, removed at the end.

    Raises:
        RunError: there is not enough space for them.
    """
    needed_bytes = sum(path.stat().st_size for path in paths)
    try:
        status = os.statvfs(MEMORY)
    except OSError as error:
        raise RunError(f"{MEMORY} can't hold files in memory: {error.strerror}") from error
    if status.f_bavail * status.f_frsize < needed_bytes:
        raise RunError(f"{MEMORY} is too small for {format_bytes(needed_bytes)} of files")
    with tempfile.TemporaryDirectory(prefix="wattload-", dir=MEMORY) as folder:
        copies = [Path(folder) / f"{number}.{suffix}" for number in range(len(paths))]
        for path, copy in zip(paths, copies, strict=True):
            shutil.copyfile(path, copy)
        yield copies


def make_harness(config: Config, training: Training) -> DlioHarness:
    """Return the program, ready to run the job."""
    return DlioHarness(config, training)


class DlioHarness:
    """One DLIO process per accelerator, all epochs in one call of the program."""

    def __init__(self, config: Config, training: Training) -> None:
        config.check()
        self._config = config
        self._training = training

    def command(self) -> Sequence[str]:
        """Return the command line; it runs in the folder of its output, with relative paths.

        ``-P`` keeps that folder out of the module path.
        """
        count = self._training.accelerators
        launcher = [mpirun(), "-n", str(count)] if count > 1 else []
        return (
            *launcher,
            sys.executable,
            "-P",
            "-m",
            "wattload.loaders.dlio.launch",
            "--config-dir=config",
            f"workload={_WORKLOAD}",
            "hydra.run.dir=hydra",
        )

    def run(self, folder: Path, watch: HarnessWatch) -> TrainingResult:
        """Run the program; its raw output stays in ``folder``, which must not exist yet.

        There are ``command.txt``, ``config/``, ``stdout.log``, ``stderr.log``, Hydra's own files,
        ``output/`` with DLIO's and, with our reader, ``reads.jsonl``.

        Raises:
            OSError: the folder can't be created, or its file system has no symbolic links.
            RunError: the program failed, or its output can't be read.
        """
        with ExitStack() as held:
            run = held.enter_context(open_folder(folder.parent))
            own = held.enter_context(run.make(folder.name))
            self._write_configuration(own)
            paths: Sequence[Path] = self._training.samples.paths
            if self._training.samples.in_memory:
                suffix = self._training.samples.record_format
                paths = held.enter_context(copies_in_memory(paths, suffix))
            links = LinkFolder(own.path, self._training, paths)
            held.callback(links.remove)
            scratch = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="wattload-dlio-")))
            server = EpochServer(scratch / "line", self._training, watch, links.point)
            held.callback(server.close)
            self._run_program(own, scratch / "line", server)
        plugged = self._config.reader == "wattload"
        return result_of(
            self._training,
            folder / OUTPUT,
            server.reports,
            path=self.path(),
            command=self.command(),
            journal=folder / JOURNAL if plugged else None,
        )

    def _run_program(self, folder: Folder, address: Path, server: EpochServer) -> None:
        program = Program(self.command(), folder.path, self._environment(folder.path, address))
        try:
            server.serve(program)
            status = program.status()
        finally:
            program.end()
        if status:
            raise RunError(
                f"dlio-benchmark {_ending(status)}: {program.last_error_line() or 'no output'}; "
                f"its full error output is in {folder.path / STDERR}"
            )

    def _write_configuration(self, folder: Folder) -> None:
        """Write the workload for Hydra, as JSON, which is YAML too, and the command."""
        with folder.make("config") as config, config.make("workload") as place:
            place.write(f"{_WORKLOAD}.yaml", json.dumps(self.settings(), indent=2) + "\n")
        folder.write(COMMAND, shlex.join(self.command()) + "\n")

    def settings(self) -> dict[str, Any]:
        """Return the program's configuration of the job, under its own names."""
        training = self._training
        return {
            "model": "unet3d",
            "framework": "pytorch",
            "workflow": {"generate_data": False, "train": True, "checkpoint": False},
            "dataset": {
                "data_folder": "data",
                "format": training.samples.record_format,
                "num_files_train": training.accelerators * len(training.orders[0][0]),
                "num_samples_per_file": 1,
                "record_length": round(training.record_mean_bytes),
                "record_length_stdev": round(training.record_stdev_bytes),
                "record_length_resize": training.samples.resize_bytes,
                "keep_files": True,
            },
            "reader": self._reader_settings(),
            "train": {"epochs": training.epochs, "computation_time": training.step_s},
            # Tensors of these sizes are made at start-up, though no checkpoint is.
            "checkpoint": {
                "checkpoint_folder": "checkpoints",
                "model_size": 0,
                "layer_parameters": [],
            },
            "output": {"folder": OUTPUT},
            "metric": {"au": UNET3D.au_threshold},
        }

    def _reader_settings(self) -> dict[str, Any]:
        config = self._config
        settings = {
            "data_loader": "pytorch",
            "batch_size": self._training.samples.batch_samples,
            "read_threads": config.workers,
            "prefetch_size": config.workers * config.prefetch_factor,
            "multiprocessing_context": config.start_method,
            "file_shuffle": "off",
            "sample_shuffle": "off",
        }
        if config.reader == "wattload":
            settings["reader_classname"] = "wattload.loaders.dlio.plugin.DirectRecordReader"
        return settings

    def _environment(self, folder: Path, address: Path) -> dict[str, str]:
        """Return our environment without a launcher's variables, with the child settings."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_LAUNCHER_VARIABLES)
        }
        package = str(Path(wattload.__file__).absolute().parents[1])
        known = kept.get("PYTHONPATH")
        settings = ChildSettings(
            socket=str(address),
            journal=str((folder / JOURNAL).absolute()),
            largest_bytes=max(self._training.samples.file_bytes),
            record_format=self._training.samples.record_format,
            block_bytes=self._config.reader_block_bytes,
            queue_depth=self._config.reader_queue_depth,
            check_crc=self._training.samples.check_crc,
            # Copies in memory have names of their own, so they can't be verified.
            nonce=None if self._training.samples.in_memory else self._training.samples.nonce,
        )
        path = f"{package}{os.pathsep}{known}" if known else package
        return {**kept, **_ALONE, "PYTHONPATH": path, **settings.environment()}

    def path(self) -> DataPath:
        if self._training.samples.in_memory:
            return DataPath(data_path="memory", path_requested="memory")
        if self._config.reader == "wattload":
            return DataPath(
                data_path="o_direct in the workers of dlio-benchmark", path_requested="o_direct"
            )
        return DataPath(
            data_path="np.load in the workers of dlio-benchmark", path_requested="page_cache"
        )


def _ending(status: int) -> str:
    if status < 0 or status > _SIGNAL_STATUS:
        return f"was ended by signal {-status if status < 0 else status - _SIGNAL_STATUS}"
    return f"failed with status {status}"


def result_of(
    training: Training,
    output: Path,
    reports: Sequence[EpochReports],
    *,
    path: DataPath,
    command: Sequence[str],
    journal: Path | None,
) -> TrainingResult:
    """Return the result of a successful run; ``output`` is DLIO's own folder.

    Raises:
        RunError: a file of DLIO's is missing or malformed, or a process did not report an epoch.
    """
    batch_samples = training.samples.batch_samples
    read = read_output(
        output,
        ranks=training.accelerators,
        epochs=training.epochs,
        steps=training.steps,
        batch_samples=batch_samples,
    )
    _require_all(reports, training)
    epochs = [
        [_trained(read, training, report, (epoch, rank)) for rank in range(training.accelerators)]
        for epoch, report in enumerate(reports)
    ]
    noted = read_summary(journal) if journal is not None else None
    if noted is not None:
        found = {"engine": ", ".join(noted.engines), "remarks": noted.remarks}
        path = path.model_copy(update=found)
    return TrainingResult(
        io=_totals(epochs, training, path),
        reported=read.metric,
        recomputed={
            "train_au_percentage": read.au_percentage(),
            "train_throughput_samples_per_second": read.samples_per_s(),
        },
        version=version("dlio-benchmark"),
        command=tuple(command),
        epochs=epochs,
        plugged_bytes=noted.read_bytes if noted is not None else None,
        verified=_verified(training, noted) if noted is not None else None,
    )


def _verified(training: Training, noted: ReaderSummary) -> VerifiedSamples:
    numbers = {path.name: index for index, path in enumerate(training.samples.paths)}
    return VerifiedSamples(
        verified_bytes=noted.verified_bytes,
        bad_blocks={numbers[name]: count for name, count in noted.bad_blocks.items()},
    )


def _require_all(reports: Sequence[EpochReports], training: Training) -> None:
    for epoch, report in enumerate(reports, 1):
        batches = [report.batches[rank] for rank in range(training.accelerators)]
        if len(report.spent) != training.accelerators or set(batches) != {training.steps}:
            raise RunError(
                f"dlio-benchmark reported {batches} batches per process in epoch {epoch}; expected "
                f"{training.steps} from each of {training.accelerators} processes; "
                "dlio-benchmark 2.0.0 is the supported version"
            )


def _trained(
    output: Output, training: Training, report: EpochReports, place: tuple[int, int]
) -> TrainedEpoch:
    """Return one epoch on one rank; ``place`` is (epoch, rank)."""
    epoch, rank = place
    times, spent, done = output.ranks[rank][epoch], report.spent[rank], report.done[rank]
    steps = zip(times.processed_s, times.load_s, strict=True)
    return TrainedEpoch(
        duration_s=(done["end_ns"] - done["begin_ns"]) / NS_PER_S,
        load_s=times.load_s,
        compute_s=tuple(processed_s - load_s for processed_s, load_s in steps),
        processed_s=times.processed_s,
        read_bytes=training.epoch_bytes_read(epoch, rank),
        cpu_s=spent["cpu_s"],
        called_bytes=spent["called_bytes"],
        storage_bytes=spent["storage_bytes"],
        peak_bytes=spent["peak_bytes"],
    )


def _totals(
    epochs: Sequence[Sequence[TrainedEpoch]], training: Training, path: DataPath
) -> IOResult:
    each = [trained for epoch in epochs for trained in epoch]
    return IOResult(
        moved_bytes=sum(trained.read_bytes for trained in each),
        operation_count=len(each) * training.steps * training.samples.batch_samples,
        seconds=sum(max(trained.duration_s for trained in epoch) for epoch in epochs),
        cpu_s=sum(trained.cpu_s for trained in each),
        path=path,
    )
