"""dlio-benchmark run on our files: its folder, its configuration, its command, its result."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import wattload
from wattload.core.errors import RunError
from wattload.core.harness import HarnessWatch
from wattload.core.io import DataPath
from wattload.core.mlperf import UNET3D
from wattload.loaders.dlio import Config, mpirun
from wattload.loaders.dlio.conductor import Conductor
from wattload.loaders.dlio.errand import Errand
from wattload.loaders.dlio.links import LinkFolder, copies_in_memory
from wattload.loaders.dlio.program import STDERR, Program
from wattload.loaders.dlio.result import result_of
from wattload.loaders.sampleharness import Training, TrainingResult

OUTPUT = "output"
JOURNAL = "reads.jsonl"
COMMAND = "command.txt"
_WORKLOAD = "wattload"
_ALONE = {"OMPI_MCA_ess_singleton_isolated": "1"}
"""Open MPI 4 starts a daemon for a process without launcher, and fails where there is no ssh."""

_LAUNCHER_VARIABLES = ("PMI_", "PMIX_", "OMPI_", "HYDI_", "HYDRA_", "MPI_LOCAL", "PALS_")
_NUMBER_OF_A_SIGNAL = 128


class DlioHarness:
    """One DLIO process per accelerator, all epochs in one call of the program."""

    def __init__(self, config: Config, training: Training) -> None:
        config.check()
        self._config = config
        self._training = training

    def command(self) -> Sequence[str]:
        """Return the command line; it runs in the folder of its output, paths are relative to it.

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
            OSError: the folder can't be made or takes no links.
            RunError: the program failed, or its output can't be read.
        """
        folder.mkdir()
        self._write_configuration(folder)
        with ExitStack() as held:
            paths: Sequence[Path] = self._training.samples.paths
            if self._training.samples.in_memory:
                suffix = self._training.samples.record_format
                paths = held.enter_context(copies_in_memory(paths, suffix))
            links = LinkFolder(folder, self._training, paths)
            held.callback(links.remove)
            nook = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="wattload-dlio-")))
            conductor = Conductor(nook / "line", self._training, watch, links.point)
            held.callback(conductor.close)
            self._conduct(folder, nook / "line", conductor)
        plugged = self._config.reader == "wattload"
        return result_of(
            self._training,
            folder / OUTPUT,
            conductor.witnesses,
            path=self.path(),
            command=self.command(),
            journal=folder / JOURNAL if plugged else None,
        )

    def _conduct(self, folder: Path, address: Path, conductor: Conductor) -> None:
        program = Program(self.command(), folder, self._environment(folder, address))
        try:
            conductor.conduct(program)
            status = program.status()
        finally:
            program.end()
        if status:
            raise RunError(
                f"dlio-benchmark {_ending(status)}: {program.last_words() or 'it said nothing'}; "
                f"all that it said is in {folder / STDERR}"
            )

    def _write_configuration(self, folder: Path) -> None:
        """Write the workload for Hydra, as JSON, which is YAML too, and the command beside it."""
        place = folder / "config" / "workload"
        place.mkdir(parents=True)
        document = json.dumps(self.settings(), indent=2) + "\n"
        (place / f"{_WORKLOAD}.yaml").write_text(document, "utf-8")
        (folder / COMMAND).write_text(shlex.join(self.command()) + "\n", "utf-8")

    def settings(self) -> dict[str, Any]:
        """Return the program's configuration of the job, by its own names."""
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
        """Return our environment without what a launcher of ours left there, and the errand."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_LAUNCHER_VARIABLES)
        }
        package = str(Path(wattload.__file__).absolute().parents[1])
        known = kept.get("PYTHONPATH")
        errand = Errand(
            socket=str(address),
            journal=str((folder / JOURNAL).absolute()),
            largest_bytes=max(self._training.samples.file_bytes),
            record_format=self._training.samples.record_format,
            block_bytes=self._config.reader_block_bytes,
            queue_depth=self._config.reader_queue_depth,
            check_crc=self._training.samples.check_crc,
        )
        path = f"{package}{os.pathsep}{known}" if known else package
        return {**kept, **_ALONE, "PYTHONPATH": path, **errand.environment()}

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
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
    if status < 0 or status > _NUMBER_OF_A_SIGNAL:
        return f"was ended by signal {-status if status < 0 else status - _NUMBER_OF_A_SIGNAL}"
    return f"failed with status {status}"
