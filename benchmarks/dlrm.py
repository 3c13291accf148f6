"""The steps of DLRM preprocessing against polars: one core each, TSV bytes per CPU second.

By both loaders, which are compared too. And what it costs to generate a day file, and to verify:
the digest of a day file, and the checksums of all bytes that move.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import limited_drive
from benchmarks.measure import NotMeasuredError, Result, rounds
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.arrow.config import Config as ArrowConfig
from wattload.loaders.converters import ConversionSettings, Converter
from wattload.loaders.data import criteo_day_files
from wattload.loaders.data.criteo_day_files import CATEGORICALS, COLUMNS, ID_MODULUS, cut_parts
from wattload.loaders.data.criteo_synthetic import SyntheticDay
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.data.media import DirectMedium
from wattload.loaders.data.verification import content_of
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm.tasks import WRITE_BYTES, DayTask, make_day
from wattload.workloads.dlrm.workers import load_libraries

if TYPE_CHECKING:
    from polars import DataFrame, Expr, LazyFrame

ROOT = Path(__file__).resolve().parents[1]
ROW_COUNT = 1_000_000
POLARS_ROWS = 524_288
"""Rows that polars packs at a time; it was fastest so among slices and whole files."""
RATIOS = {
    "to_parquet": (("native", "polars", 2.5), ("native", "arrow", 4.0), ("arrow", "polars", 1.0)),
    "to_binary": (("native", "polars", 3.0), ("native", "arrow", 4.0), ("arrow", "polars", 1.0)),
    "to_numeric_parquet": (("native", "polars", 3.0), ("native", "arrow", 4.0)),
    "to_rows": (("native", "polars", 3.0), ("native", "arrow", 4.0)),
}
"""What is divided by what, and the goal. ``to_rows`` is from TSV to packed rows at once."""
SUFFIXES = {
    "to_parquet": ".parquet",
    "to_binary": ".bin",
    "to_numeric_parquet": ".numeric.parquet",
    "to_rows": ".rows",
}
GENERATOR_GOAL = 1e9
"""Bytes per CPU second that a synthetic day is generated with."""
ROWS_GOAL = 800e6
"""TSV bytes per CPU second that native packs without Parquet between."""
LIMITED_GOAL = 0.9
"""Of the bytes per second that the engine moves where the drive is the limit."""
RUN_S = 5.0
"""About how long a step takes, its start included, for the estimate."""

SETTINGS = ConversionSettings(compression="snappy", block_bytes=16 << 20)


def seconds(pairs: int) -> float:
    return 10 + 20 * pairs * RUN_S


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield the results of TSV to Parquet and of Parquet to packed rows."""
    folder = DataFolder.claim(target, "bench-dlrm", {"row_count": ROW_COUNT}, seed=0)
    libraries = ("polars", "arrow", "native", "unchecked")
    outputs = [f"{each}{suffix}" for each in libraries for suffix in SUFFIXES.values()]
    names = ("day_0", "generated", *outputs, *limited_drive.NAMES.values())
    try:
        for name in names:
            folder.reserve(name)
        with (folder.path / "day_0").open("wb") as file:
            shutil.copyfileobj(SyntheticDay(0, 0, ROW_COUNT), file, WRITE_BYTES)
        yield from _generator(folder.path / "generated", pairs)
        for step in RATIOS:
            yield from _compare(step, folder.path, pairs)
        for step in ("to_parquet", "to_binary"):
            yield _checksums(step, folder.path, pairs)
        yield _digest(folder.path / "day_0", pairs)
        yield _limited(folder.path, pairs)
    finally:
        folder.remove()


def _generator(path: Path, pairs: int) -> Iterator[Result]:
    """Yield how fast a synthetic day is generated: in memory, and with its digest to a file."""
    ways: dict[str, Callable[[], float]] = {
        "memory": _generated,
        "file": partial(_written, path),
    }
    taken = rounds(ways, pairs, warm=True)
    rates = taken.values(lambda rate: rate / 1e6)
    for way, name in (("memory", "in memory"), ("file", "to a file by O_DIRECT, with its SHA-256")):
        yield Result(
            name=f"dlrm synthetic day {name}, one core",
            unit="MB/s",
            goal=GENERATOR_GOAL / 1e6 if way == "memory" else None,
            values=rates[way],
            value_unit="MB/s",
            figures=rates,
            order=taken.order,
        )


def _generated() -> float:
    """Return the bytes per CPU second of a synthetic day that goes nowhere."""
    text, buffer, size_bytes = SyntheticDay(0, 0, ROW_COUNT), aligned_buffer(WRITE_BYTES), 0
    start_s = time.process_time()
    while count := text.readinto(buffer.data):
        size_bytes += count
    return size_bytes / (time.process_time() - start_s)


def _written(path: Path) -> float:
    """Return the bytes per CPU second of a day file as a run generates it."""
    path.unlink(missing_ok=True)
    task = DayTask(path, DirectMedium(), 0, 0, ROW_COUNT)
    start_s = time.process_time()
    made = make_day(task, lambda *_: None)
    return made.size_bytes / (time.process_time() - start_s)


def _compare(step: str, folder: Path, pairs: int) -> Iterator[Result]:
    """Yield the ratios of a step: both loaders and polars in turns."""
    ways: dict[str, Callable[[], float]] = {
        library: partial(_rate, f"{library}_{step}", folder)
        for library in ("native", "arrow", "polars")
    }
    empty = [
        Result(
            name=f"dlrm {step.replace('_', ' ')}, one core, {ours} ÷ {theirs}",
            unit="MB/s",
            goal=goal,
            notes=[
                f"dlrm: MB of TSV per CPU second, {ROW_COUNT} synthetic rows, snappy; native with "
                "O_DIRECT, the others from a warm page cache"
            ],
        )
        for ours, theirs, goal in RATIOS[step]
    ]
    try:
        taken = rounds(ways, pairs, warm=True)
    except NotMeasuredError as error:
        yield from (replace(each, missing=str(error)) for each in empty)
        return
    for each, (ours, theirs, _) in zip(empty, RATIOS[step], strict=True):
        yield replace(
            each,
            values=taken.ratios(float, ours, theirs),
            figures=taken.values(lambda rate: rate / 1e6),
            order=taken.order,
        )
    if step == "to_rows":
        rates = taken.values(lambda rate: rate / 1e6)
        yield Result(
            name="dlrm to rows, one core, native",
            unit="MB/s",
            goal=ROWS_GOAL / 1e6,
            values=rates["native"],
            value_unit="MB/s",
            figures=rates,
            order=taken.order,
        )


def _checksums(step: str, folder: Path, pairs: int) -> Result:
    """Return what the checksums of all bytes that move cost in a step: CPU time with ÷ without."""
    ways: dict[str, Callable[[], float]] = {
        way: partial(_rate, f"{way}_{step}", folder) for way in ("unchecked", "arrow")
    }
    taken = rounds(ways, pairs, warm=True)
    return Result(
        name=f"dlrm {step.replace('_', ' ')}, CPU time with ÷ without checksums",
        unit="MB/s",
        values=taken.ratios(float, "unchecked", "arrow"),
        figures=taken.values(lambda rate: rate / 1e6),
        order=taken.order,
    )


def _digest(day: Path, pairs: int) -> Result:
    """Return what it costs to verify a day file: SHA-256, CRC-32 and the count of lines."""
    taken = rounds({"day file": partial(_digest_cpu_s_per_gb, day)}, pairs, warm=True)
    return Result(
        name="dlrm data verified before the run, outside of the timed phases",
        unit="CPU s per GB",
        values=taken.figures["day file"],
        value_unit="CPU s per GB",
        figures=taken.figures,
        order=taken.order,
    )


def _limited(folder: Path, pairs: int) -> Result:
    """Return native's share of what the engine moves on a drive that is the limit."""
    empty = Result(
        name="dlrm to rows, one worker on a limited drive, native ÷ engine",
        unit="MB/s",
        goal=LIMITED_GOAL,
        notes=[
            "dlrm on a limited drive: MB read and written per second; the engine reads the same "
            "file and writes as much, at the same time"
        ],
    )
    try:
        with limited_drive.limited_group(folder) as procs:
            ways: dict[str, Callable[[], float]] = {
                way: partial(limited_drive.rate, way, folder, procs) for way in limited_drive.WAYS
            }
            taken = rounds(ways, pairs, warm=True)
    except NotMeasuredError as error:
        return replace(empty, missing=str(error))
    return replace(
        empty,
        values=taken.ratios(float, "native", "engine"),
        figures=taken.values(lambda rate: rate / 1e6),
        order=taken.order,
    )


def _digest_cpu_s_per_gb(day: Path) -> float:
    start_s = time.process_time()
    content = content_of(day, lambda _: None)
    return (time.process_time() - start_s) / content.size_bytes * 1e9


def _rate(way: str, folder: Path) -> float:
    """Do one step in a process of its own and return TSV bytes per CPU second.

    Raises:
        NotMeasuredError: the process failed; its last words are in the message.
    """
    library, step = way.split("_", 1)
    output = folder / (library + SUFFIXES[step])
    output.unlink(missing_ok=True)  # an output is written only where nothing is
    command = [sys.executable, "-m", "benchmarks.dlrm", way, str(folder)]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )
    if "No module named 'polars'" in done.stderr:
        raise NotMeasuredError("polars is not installed (pip install polars)")
    if done.returncode:
        raise NotMeasuredError(f"{way} failed: {done.stderr.strip().splitlines()[-1]}")
    return (folder / "day_0").stat().st_size / float(done.stdout)


def arrow_to_parquet(folder: Path) -> None:
    """Write ``arrow.parquet`` from ``day_0``."""
    _to_parquet(folder, ArrowConfig().converter(), "arrow")


def arrow_to_binary(folder: Path) -> None:
    """Write ``arrow.bin`` from ``arrow.parquet``."""
    _to_binary(folder, ArrowConfig().converter(), "arrow")


def native_to_parquet(folder: Path) -> None:
    """Write ``native.parquet`` from ``day_0``."""
    _to_parquet(folder, NativeConfig().converter(), "native")


def native_to_binary(folder: Path) -> None:
    """Write ``native.bin`` from ``native.parquet``."""
    _to_binary(folder, NativeConfig().converter(), "native")


def unchecked_to_parquet(folder: Path) -> None:
    """Write ``unchecked.parquet`` from ``day_0`` as arrow does, without checksums."""
    _leave_out_checksums()
    _to_parquet(folder, ArrowConfig().converter(), "unchecked")


def unchecked_to_binary(folder: Path) -> None:
    """Write ``unchecked.bin`` from ``unchecked.parquet``, without checksums."""
    _leave_out_checksums()
    _to_binary(folder, ArrowConfig().converter(), "unchecked")


def arrow_to_numeric_parquet(folder: Path) -> None:
    """Write ``arrow.numeric.parquet``, with ids as int32, from ``day_0``."""
    _to_numeric_parquet(folder, ArrowConfig().converter(), "arrow")


def native_to_numeric_parquet(folder: Path) -> None:
    """Write ``native.numeric.parquet``, with ids as int32, from ``day_0``."""
    _to_numeric_parquet(folder, NativeConfig().converter(), "native")


def arrow_to_rows(folder: Path) -> None:
    """Write ``arrow.rows`` from ``day_0`` at once."""
    _to_rows(folder, ArrowConfig().converter(), "arrow")


def native_to_rows(folder: Path) -> None:
    """Write ``native.rows`` from ``day_0`` at once."""
    _to_rows(folder, NativeConfig().converter(), "native")


def _to_numeric_parquet(folder: Path, converter: Converter, name: str) -> None:
    (part,) = cut_parts([folder / "day_0"], 1)
    settings = replace(SETTINGS, numeric_ids=True)
    converter.tsv_to_parquet(part, folder / f"{name}.numeric.parquet", settings, lambda *_: None)


def _to_rows(folder: Path, converter: Converter, name: str) -> None:
    (part,) = cut_parts([folder / "day_0"], 1)
    converter.tsv_to_binary(part, folder / f"{name}.rows", SETTINGS, lambda *_: None)


def _to_parquet(folder: Path, converter: Converter, name: str) -> None:
    (part,) = cut_parts([folder / "day_0"], 1)
    converter.tsv_to_parquet(part, folder / f"{name}.parquet", SETTINGS, lambda *_: None)


def _to_binary(folder: Path, converter: Converter, name: str) -> None:
    source, path = folder / f"{name}.parquet", folder / f"{name}.bin"
    converter.parquet_to_binary(source, path, SETTINGS, lambda *_: None)


def _leave_out_checksums() -> None:
    criteo_day_files.crc32_of = lambda content, start=0: start  # type: ignore[attr-defined]  # without its cost


def polars_to_parquet(folder: Path) -> None:
    """Write ``polars.parquet`` from ``day_0``, streaming, as polars does it best."""
    _polars_text(folder).sink_parquet(folder / "polars.parquet", compression="snappy")


def polars_to_numeric_parquet(folder: Path) -> None:
    """Write ``polars.numeric.parquet``, with ids as int32, from ``day_0``."""
    frame = _polars_text(folder).with_columns(_polars_ids())
    frame.sink_parquet(folder / "polars.numeric.parquet", compression="snappy")


def polars_to_binary(folder: Path) -> None:
    """Write ``polars.bin``, the same rows as ``arrow.bin``, from ``polars.parquet``."""
    import polars as pl

    frame = _polars_packed(pl.scan_parquet(folder / "polars.parquet"))
    slices = (
        frame.slice(first, POLARS_ROWS).collect() for first in range(0, ROW_COUNT, POLARS_ROWS)
    )
    _polars_write(slices, folder / "polars.bin")


def polars_to_rows(folder: Path) -> None:
    """Write ``polars.rows``, the same rows as ``arrow.rows``, from ``day_0`` at once."""
    rows = _polars_packed(_polars_text(folder)).collect()
    _polars_write(rows.iter_slices(POLARS_ROWS), folder / "polars.rows")


def _polars_text(folder: Path) -> LazyFrame:
    import polars as pl

    text = set(CATEGORICALS)
    schema = {name: pl.String if name in text else pl.Int32 for name in COLUMNS}
    return pl.scan_csv(
        folder / "day_0", separator="\t", has_header=False, schema=schema, quote_char=None
    )


def _polars_ids() -> list[Expr]:
    import polars as pl

    return [
        pl.col(name).str.to_integer(base=16, dtype=pl.UInt32).mod(ID_MODULUS).cast(pl.Int32)
        for name in CATEGORICALS
    ]


def _polars_packed(frame: LazyFrame) -> LazyFrame:
    import polars as pl

    integers = [pl.col(name).clip(lower_bound=0) for name in COLUMNS if name not in CATEGORICALS]
    return frame.select([*integers, *_polars_ids()]).fill_null(0)


def _polars_write(slices: Iterable[DataFrame], path: Path) -> None:
    with path.open("wb") as file:
        for rows in slices:
            file.write(rows.to_numpy(order="c").data)
        os.fsync(file.fileno())


WAYS: dict[str, Callable[[Path], None]] = {
    way.__name__: way
    for way in (
        arrow_to_parquet,
        arrow_to_binary,
        native_to_parquet,
        native_to_binary,
        unchecked_to_parquet,
        unchecked_to_binary,
        polars_to_parquet,
        polars_to_binary,
        arrow_to_numeric_parquet,
        native_to_numeric_parquet,
        polars_to_numeric_parquet,
        arrow_to_rows,
        native_to_rows,
        polars_to_rows,
    )
}


def _main(way: str, folder: Path) -> None:
    """Do one step as a worker would and print its CPU seconds; libraries are loaded before."""
    load_libraries()
    if way.startswith("polars"):
        importlib.import_module("polars")
    start_s = time.process_time()
    WAYS[way](folder)
    sys.stdout.write(str(time.process_time() - start_s))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
