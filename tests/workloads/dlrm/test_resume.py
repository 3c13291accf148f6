"""Conversions that are killed: what they had finished is kept, and never counted as measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.context import context_at
from tests.workloads.dlrm.facts import facts_of
from wattload.core.record.results import Check
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import Converted, ConverterConfig, Packed
from wattload.loaders.data.criteo_day_files import pack_row, parse_line
from wattload.loaders.data.criteo_synthetic import SyntheticDay
from wattload.loaders.data.target_folder import clean, foreign_paths
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm.config import Config, Dense, Pack
from wattload.workloads.dlrm.conversion import Outputs
from wattload.workloads.dlrm.workload import Dlrm

each_loader = pytest.mark.parametrize(
    "loader", [ArrowConfig(), NativeConfig()], ids=["arrow", "native"]
)
PARTS = 8
SETTINGS: dict[str, Any] = {
    "row_count": 20_000,
    "day_count": 2,
    "rounds": 1,
    "workers": 1,
    "block_bytes": 1 << 16,
    "part_bytes": 700_000,
    "keep_output": True,
}

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.context import context_at
from wattload.core.workload import Accelerator
from {module} import Config as Loader
from wattload.workloads.dlrm.config import Config, Dense, Pack
from wattload.workloads.dlrm import workload as module
from wattload.workloads.dlrm.conversion import Outputs

finished = []
finish = Outputs.finish

def finish_or_die(self, path, made):
    if len(finished) == {after}:
        os.kill(os.getpid(), signal.SIGKILL)
    finish(self, path, made)
    finished.append(path)

if __name__ == "__main__":
    Outputs.finish = finish_or_die
    module.CEILING_NS = 1
    workload = module.Dlrm(Config({settings}), Loader(), Accelerator())
    context = context_at(Path({target!r}))
    workload.prepare(context)
    workload.run(context)
"""


def kill(target: Path, loader: ConverterConfig, after: int, **changed: Any) -> None:
    """Start a conversion that is killed when it has finished some files."""
    target.mkdir(exist_ok=True)
    script = target.parent / "child.py"
    root = str(Path(__file__).parents[3])
    settings = ", ".join(
        f"{name}={value if isinstance(value, Enum) else repr(value)}"
        for name, value in {**SETTINGS, **changed}.items()
    )
    script.write_text(
        KILLED.format(
            root=root,
            module=type(loader).__module__,
            after=after,
            settings=settings,
            target=str(target),
        )
    )
    child = subprocess.run([sys.executable, str(script)], cwd=root, check=False, timeout=120)
    assert child.returncode == -signal.SIGKILL


def interrupt(target: Path, loader: ConverterConfig, after: int, **changed: Any) -> str:
    """Interrupt a conversion when it has finished some parts, and return what it says."""
    target.mkdir()
    finished: list[Path] = []
    finish = Outputs.finish

    def finish_and_stop(outputs: Outputs, path: Path, made: Converted | Packed) -> None:
        finish(outputs, path, made)
        finished.append(path)
        if len(finished) == after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outputs, "finish", finish_and_stop)
        with pytest.raises(KeyboardInterrupt) as error:
            start(target, loader, **changed)
    (note,) = error.value.__notes__
    return str(note)


def start(
    target: Path, loader: ConverterConfig, **changed: Any
) -> tuple[Outcome, dict[str, Check]]:
    workload = Dlrm(Config(**{**SETTINGS, **changed}), loader, Accelerator())
    context = context_at(target)
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    moved = {phase.name: phase for phase in context.phases if phase.timed}
    for name, phase in moved.items():
        if name.startswith("tsv"):
            is_whole = phase.read_bytes >= facts_of(outcome).tsv_bytes
            assert is_whole == (kept(outcome)[name] == 0)
    checks = [*outcome.checks, *workload.verify(context)]
    return outcome, {check.name: check for check in checks}


def kept(outcome: Outcome) -> dict[str, int]:
    return {name: work.kept_count for name, work in facts_of(outcome).phases.items()}


def rows(target: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(target.rglob("*.bin")))


def reference(target: Path) -> bytes:
    days = sorted(target.rglob("day_[01]"))
    return b"".join(
        pack_row(parse_line(line)) for day in days for line in day.read_bytes().splitlines()
    )


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.verdict == "fail"}


@each_loader
def test_parts_finished_before_a_kill_are_kept_and_counted_apart(
    loader: ConverterConfig, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    kill(target, loader, after=3)
    before = {path: path.stat() for path in target.rglob("*.parquet")}
    outcome, checks = start(target, loader)
    assert kept(outcome) == {"tsv_to_parquet": 3, "parquet_to_binary": 0}
    same = [path for path, was in before.items() if path.stat().st_mtime_ns == was.st_mtime_ns]
    assert len(same) == 3
    assert rows(target) == reference(target)
    assert failed(checks) == {"dlrm_tsv_bytes"}
    assert checks["dlrm_tsv_bytes"].sentence.endswith(
        f"An earlier start had converted 3 of {PARTS} parts: the output is complete, but the run "
        "measured only the rest; run again to measure all."
    )
    assert {work.part_count for work in facts_of(outcome).phases.values()} == {PARTS}
    assert foreign_paths(target) == ()


def test_a_kill_in_the_second_step_keeps_the_first(tmp_path: Path) -> None:
    target = tmp_path / "target"
    kill(target, ArrowConfig(), after=PARTS + 2)
    outcome, checks = start(target, ArrowConfig())
    assert kept(outcome) == {"tsv_to_parquet": PARTS, "parquet_to_binary": 2}
    assert rows(target) == reference(target)
    assert failed(checks) == {"dlrm_tsv_bytes"}
    assert checks["dlrm_tsv_bytes"].figures["read_bytes"] == 0


@pytest.mark.parametrize("is_real", [False, True], ids=["synthetic", "real"])
def test_the_plan_counts_the_space_of_what_a_kill_left(tmp_path: Path, is_real: bool) -> None:
    target, changed = tmp_path / "target", {}
    if is_real:
        days = tmp_path / "days"
        days.mkdir()
        (days / "day_0").write_bytes(SyntheticDay(1, 0, 20_000).readall())
        changed["source"] = str(days)
    kill(target, ArrowConfig(), after=3, **changed)
    left = [path for path in target.rglob("*") if path.suffix in {".parquet", ".bin"}]
    workload = Dlrm(Config(**{**SETTINGS, **changed}), ArrowConfig(), Accelerator())
    present_bytes = workload.plan(context_at(target)).present_bytes
    assert present_bytes == sum(path.stat().st_blocks * 512 for path in left) > 0


def test_without_parquet_finished_parts_are_kept_too(tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupt(target, NativeConfig(), after=5, columnar=False)
    outcome, checks = start(target, NativeConfig(), columnar=False)
    assert kept(outcome) == {"tsv_to_binary": 5}
    assert rows(target) == reference(target)
    assert failed(checks) == {"dlrm_tsv_bytes"}


def test_parts_of_split_columns_are_kept_whole(tmp_path: Path) -> None:
    target, split = tmp_path / "target", {"dense": Dense.log, "pack": Pack.split_binary}
    interrupt(target, ArrowConfig(), after=5, columnar=False, **split)
    next(target.rglob("day_0.00001.cat_7.bin")).unlink()
    outcome, checks = start(target, ArrowConfig(), columnar=False, **split)
    assert kept(outcome) == {"tsv_to_binary": 4}
    assert failed(checks) == {"dlrm_tsv_bytes"}
    labels = [path.read_bytes() for path in sorted(target.rglob("*.label.bin"))]
    assert b"".join(labels) == reference(target)[::160]


def test_after_ctrl_c_a_run_resumes_and_the_next_measures_everything(tmp_path: Path) -> None:
    target = tmp_path / "target"
    note = interrupt(target, ArrowConfig(), after=2)
    first, second = target.rglob("*.parquet")
    assert note.startswith(f"  kept        2 finished files in {first.parent}; the same run")
    assert first.parent == second.parent
    outcome, _ = start(target, ArrowConfig())
    assert kept(outcome)["tsv_to_parquet"] == 2
    outcome, checks = start(target, ArrowConfig())
    assert set(kept(outcome).values()) == {0}
    assert failed(checks) == set()
    assert rows(target) == reference(target)
    clean(target)
    assert list(target.rglob("*.bin")) == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"keep_output": False}, id="output is not kept"),
        pytest.param({"rounds": 2}, id="rounds"),
        pytest.param({"block_bytes": 1 << 17}, id="row groups"),
    ],
)
def test_a_run_of_another_kind_starts_anew(tmp_path: Path, changed: dict[str, Any]) -> None:
    target = tmp_path / "target"
    interrupt(target, ArrowConfig(), after=1)
    outcome, checks = start(target, ArrowConfig(), **changed)
    assert set(kept(outcome).values()) == {0}
    assert failed(checks) == set()
    assert foreign_paths(target) == ()


def test_another_loader_starts_anew(tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupt(target, ArrowConfig(), after=1)
    outcome, checks = start(target, NativeConfig())
    assert set(kept(outcome).values()) == {0}
    assert failed(checks) == set()


def test_what_a_kill_left_unfinished_is_removed_by_a_run_with_other_parts(tmp_path: Path) -> None:
    target = tmp_path / "target"
    kill(target, ArrowConfig(), after=0, workers=2)
    assert list(target.rglob("day_0.00001.parquet"))
    start(target, ArrowConfig(), part_bytes=10 << 20)
    names = {path.name for path in target.rglob("*.parquet")}
    assert names == {"day_0.00000.parquet", "day_1.00000.parquet"}


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("spoil", [cut, Path.unlink])
def test_a_kept_file_that_is_not_whole_is_made_again(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    target = tmp_path / "target"
    interrupt(target, ArrowConfig(), after=PARTS)
    spoil(next(target.rglob("day_1.00000.parquet")))
    outcome, checks = start(target, ArrowConfig())
    assert kept(outcome)["tsv_to_parquet"] == PARTS - 1
    assert rows(target) == reference(target)
    assert failed(checks) == {"dlrm_tsv_bytes"}


def test_a_kept_file_with_other_bytes_fails_the_checks(tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupt(target, ArrowConfig(), after=PARTS + 2)
    (path, *_) = sorted(path for path in target.rglob("*.bin") if path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    _, checks = start(target, ArrowConfig())
    assert "dlrm_content" in failed(checks)
