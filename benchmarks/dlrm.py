"""The steps of DLRM preprocessing against polars: one core each, TSV bytes per CPU second.

Both loaders are compared with polars and with each other. ``python -m benchmarks.dlrm LIBRARY STEP
FOLDER`` does one step in a process of its own and prints its CPU seconds.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.child import output, scratch
from benchmarks.measure import Comparison, Figures, Row
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import ConversionSettings
from wattload.loaders.data.criteo_day_files import CATEGORICALS, COLUMNS, ID_MODULUS, cut_parts
from wattload.loaders.data.criteo_synthetic import SyntheticDay
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm.tasks import WRITE_BYTES
from wattload.workloads.dlrm.workers import load_libraries

if TYPE_CHECKING:
    from polars import DataFrame, Expr, LazyFrame

ROW_COUNT = 1_000_000
POLARS_ROWS = 524_288
"""Rows that polars packs at a time: the fastest among slices and whole files."""
SETTINGS = ConversionSettings(compression="snappy", block_bytes=16 << 20)
PARQUET, NUMERIC, BINARY, ROWS = "to Parquet", "to Parquet, int32 ids", "to binary", "to rows"
STEPS = {PARQUET: 2.5, NUMERIC: 3.0, BINARY: 3.0, ROWS: 3.0}
"""The goal of native ÷ polars by step: binary rows from Parquet, and rows from TSV at once."""
NATIVE_TO_ARROW_GOAL, ARROW_TO_POLARS_GOAL = 4.0, 1.0
SUFFIXES = {PARQUET: ".parquet", NUMERIC: ".numeric.parquet", BINARY: ".bin", ROWS: ".rows"}

_rate = partial(Row, figure="bytes_per_s", unit="MB/s", scale=1e-6)


def comparisons(target: Path) -> Iterator[Comparison]:
    """Measure the generator, then compare the steps of both loaders and polars."""
    yield Comparison(
        rows=(_rate(name="dlrm synthetic day in memory, one core", goal=1000),),
        ways={"memory": _generated},
        warm=True,
    )
    with scratch(target) as folder:
        with (folder / "day_0").open("wb") as file:
            shutil.copyfileobj(SyntheticDay(0, 0, ROW_COUNT), file, WRITE_BYTES)
        for step, goal in STEPS.items():
            for ours, theirs, ratio_goal in (
                ("native", "arrow", NATIVE_TO_ARROW_GOAL),
                ("arrow", "polars", ARROW_TO_POLARS_GOAL),
                ("native", "polars", goal),
            ):
                name = f"dlrm {step}, one core, {ours} ÷ {theirs}"
                yield Comparison(
                    rows=(_rate(name=name, goal=ratio_goal),),
                    ways={each: partial(_step, each, step, folder) for each in (ours, theirs)},
                    warm=True,
                    noise=False,
                    notes=[f"dlrm: MB of TSV per CPU second, {ROW_COUNT} synthetic rows, snappy"],
                )


def _generated() -> Figures:
    """Return the bytes per CPU second of a synthetic day that is not written."""
    text, buffer, size_bytes = SyntheticDay(0, 0, ROW_COUNT), aligned_buffer(WRITE_BYTES), 0
    start_s = time.process_time()
    while count := text.readinto(buffer.data):
        size_bytes += count
    return {"bytes_per_s": size_bytes / (time.process_time() - start_s)}


def _step(library: str, step: str, folder: Path) -> Figures:
    """Do one step in a process of its own and return TSV bytes per CPU second."""
    _output(library, step, folder).unlink(missing_ok=True)  # loaders never overwrite
    command = [sys.executable, "-m", "benchmarks.dlrm", library, step, str(folder)]
    printed = output(command, {**os.environ, "POLARS_MAX_THREADS": "1"})
    return {"bytes_per_s": (folder / "day_0").stat().st_size / float(printed)}


def _output(library: str, step: str, folder: Path) -> Path:
    return folder / f"{library}{SUFFIXES[step]}"


def _convert(library: str, step: str, folder: Path) -> None:
    """Do a step by a loader."""
    converter = (NativeConfig() if library == "native" else ArrowConfig()).converter()
    (part,) = cut_parts([folder / "day_0"], 1)
    path = _output(library, step, folder)
    if step == BINARY:
        source = _output(library, PARQUET, folder)
        converter.parquet_to_binary(source, path, SETTINGS, lambda *_: None)
    elif step == ROWS:
        converter.tsv_to_binary(part, path, SETTINGS, lambda *_: None)
    else:
        settings = replace(SETTINGS, numeric_ids=step == NUMERIC)
        converter.tsv_to_parquet(part, path, settings, lambda *_: None)


def _polars(step: str, folder: Path) -> None:
    """Do a step as polars does it fastest: Parquet by streaming, rows in slices."""
    import polars as pl

    path = _output("polars", step, folder)
    if step == BINARY:
        frame = _packed(pl.scan_parquet(_output("polars", PARQUET, folder)))
        starts = range(0, ROW_COUNT, POLARS_ROWS)
        _write((frame.slice(first, POLARS_ROWS).collect() for first in starts), path)
        return
    text = set(CATEGORICALS)
    schema = {name: pl.String if name in text else pl.Int32 for name in COLUMNS}
    frame = pl.scan_csv(
        folder / "day_0", separator="\t", has_header=False, schema=schema, quote_char=None
    )
    if step == ROWS:
        _write(_packed(frame).collect().iter_slices(POLARS_ROWS), path)
    else:
        ids = _ids() if step == NUMERIC else []
        frame.with_columns(ids).sink_parquet(path, compression="snappy")


def _packed(frame: LazyFrame) -> LazyFrame:
    import polars as pl

    integers = [pl.col(name).clip(lower_bound=0) for name in COLUMNS if name not in CATEGORICALS]
    return frame.select([*integers, *_ids()]).fill_null(0)


def _ids() -> list[Expr]:
    import polars as pl

    return [
        pl.col(name).str.to_integer(base=16, dtype=pl.UInt32).mod(ID_MODULUS).cast(pl.Int32)
        for name in CATEGORICALS
    ]


def _write(slices: Iterable[DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for rows in slices:
            file.write(rows.to_numpy(order="c").data)
        os.fsync(file.fileno())


def _main(library: str, step: str, folder: Path) -> None:
    """Do one step as a worker would; libraries are loaded before the clock starts."""
    load_libraries()
    work: Callable[[], None] = partial(_convert, library, step, folder)
    if library == "polars":
        importlib.import_module("polars")
        work = partial(_polars, step, folder)
    start_s = time.process_time()
    work()
    sys.stdout.write(str(time.process_time() - start_s))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
