"""Runs that are killed or interrupted in each phase, and the same command after that."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, launched, record_of, run_folders, run_here, until
from tests.run.test_interruption import processes_of
from tests.workloads.kv_cache.making import block_files, require_empty
from wattload.core.record.file import read_record
from wattload.loaders.data.data_folder import list_folders
from wattload.results.kv_cache.facts import FILL, RESTORE, STEADY, STORE

WORDS = (
    "workload=kv_cache", "scale=demo", "power=none", "workload.bytes_per_token=4096",
    "workload.block_tokens=64", "workload.capacity_bytes=33554432", "workload.arrivals=open",
    "workload.request_rate=20", "workload.system_prompts=1", "workload.system_prompt_tokens=512",
    "workload.most_input_tokens=2048", "workload.request_bytes=65536", "workload.warm_up_s=1",
    "workload.duration_s=1", "workload.saturation_s=1",
)  # fmt: skip
"""A cache of 128 blocks of 256 KiB, in which the blocks of the prompt that all requests share stay,
however few requests a busy host serves: there is always something to restore alone."""

LAYERED = (
    *WORDS, "workload.layout=layer", "workload.bytes_per_token=null", "workload.model=tiny-1b",
    "workload.most_input_tokens=256", "workload.system_prompt_tokens=128",
)  # fmt: skip
"""Blocks of 2 MiB, of which a request has at most 4 and the cache 16."""


def phases_begun(folder: Path) -> Iterator[str]:
    """Yield the phases that the latest run began, in order."""
    for folder_of_run in run_folders(folder / "runs")[-1:]:
        for journal in folder_of_run.glob("journal-*.jsonl"):
            for line in journal.read_text().splitlines():
                if '"begin"' in line:
                    yield from re.findall('"name":"(.*?)"', line)


@pytest.mark.parametrize(
    ("words", "phases"),
    [(WORDS, (FILL, RESTORE, STORE)), (LAYERED, (STEADY,))],
    ids=["block_file", "layer"],
)
def test_runs_that_were_killed_are_followed_by_the_same_command(
    tmp_path: Path, words: Sequence[str], phases: Sequence[str]
) -> None:
    target, thesis = tmp_path / "target", None
    for number, phase in enumerate(phases):
        with launched(tmp_path, *words) as process:
            until(lambda: len(run_folders(tmp_path / "runs")) > number, process)  # noqa: B023
            until(lambda: phase in phases_begun(tmp_path), process)  # noqa: B023
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=DEADLINE_S)
        until(lambda: not processes_of(tmp_path))
        [folder] = list_folders(target)
        assert folder.foreign() == (("blocks/thesis.kv",) if thesis else ())
        if block_files(target) and thesis is None:
            thesis = folder.path / "blocks" / "thesis.kv"
            thesis.write_text("three years of work")
    finished = run_here(tmp_path, *words)
    assert finished.returncode in (0, 3), finished.stderr
    record = read_record(run_folders(tmp_path / "runs")[-1])
    assert record.status == "complete"
    assert thesis is not None
    assert block_files(target) == [thesis]
    assert thesis.read_text() == "three years of work"


@pytest.mark.parametrize("phase", [STEADY, RESTORE])
def test_ctrl_c_deletes_the_blocks(tmp_path: Path, phase: str) -> None:
    with launched(tmp_path, *WORDS) as process:
        until(lambda: phase in phases_begun(tmp_path), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    assert errors.count("wattload: interrupted\n") == 1
    assert "Traceback" not in errors
    require_empty(tmp_path / "target")
    record = record_of(tmp_path)
    assert (record.status, record.status_reason) == ("aborted", "interrupted")
