"""``wattload power calibrate``: how the meters of a drive answer a known load, beside the declared.

The drive is read only. The one file that may be written, on a directory without data of wattload,
is removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattload.cli.meters import device_in, devices_under
from wattload.core.errors import ConfigError, PowerError, PowerPermissionError, WattloadError
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.core.power import PowerSource, Sample, Scope, SourceFacts
from wattload.core.record.energy import CalibrationRecord, SensorRecord
from wattload.core.record.sensor_text import sensor_text
from wattload.core.units import MIB, NS_PER_S
from wattload.loaders.aligned_io import direct_alignment
from wattload.loaders.data.data_folder import DataFolder, list_folders
from wattload.loaders.data.target_folder import TargetLock
from wattload.loaders.engine.engine import IOEngine
from wattload.power.config import START, PowerConfig
from wattload.power.control.calibrations import CalibrationCache
from wattload.power.control.host import PowerHost
from wattload.power.energy.calibration import Curve, Readings, calibrate, response_curve
from wattload.power.energy.sensor import declared_sensor
from wattload.power.nvme.state import read_state
from wattload.power.sampler.polling import Schedule
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.selection import select
from wattload.run.calibration_records import calibration_records, source_key
from wattload.run.pulses import (
    BLOCK_BYTES,
    DEPTH,
    KnownLoad,
    PulsePlan,
    length_bytes,
    load_drives,
    plan_pulses,
)

FILE_BYTES = 256 * MIB
SETTLE_S = 5.0
"""After writing a file, until the drive has moved it out of its cache."""
_BAR_WIDTH, _ROWS = 40, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A source, its calibration, and the sensor and curve that follow; no curve without one.

    ``declared`` is the sensor without the calibration.
    """

    facts: SourceFacts
    record: CalibrationRecord
    declared: SensorRecord
    sensor: SensorRecord
    curve: Curve | None


def run(arguments: argparse.Namespace, host: PowerHost) -> int:
    """Calibrate, print and keep the result; returns 0, or 1 if no meter could be calibrated.

    Raises:
        ConfigError: the device or a setting is unknown.
        PowerError: there is no meter or no data, or the meter is too slow.
    """
    named = device_in(arguments.what)
    calibrated = _of_device(host, named) if named else _of_target(host, arguments.what)
    for answer in calibrated:
        _print(json.dumps(_document(answer)) if arguments.json else "\n".join(_chart(answer)))
    return 0 if any(each.sensor.basis == "calibrated" for each in calibrated) else 1


def _of_device(host: PowerHost, device: str) -> list[Answer]:
    name = device.removeprefix("/dev/")
    if name not in host.list_names():
        known = ", ".join(host.list_names()) or "none"
        raise ConfigError(f"{device!r} is not an NVMe controller of this host; it has {known}")
    nodes = [
        Path("/dev") / path.name
        for path in sorted((Path("/sys/class/nvme") / name).glob("nvme*n[0-9]*"))
    ]
    if any(not os.access(node, os.R_OK) for node in nodes):
        raise PowerPermissionError(
            f"not calibrated: {nodes[0]} can't be read by this user; run as root, or give "
            "target.path= and a directory on the drive"
        )
    config = PowerConfig()
    drive = PowerDevice(key=host.serial_of(name), name=name, is_nvme=True)
    with _sources(host, config, [drive]) as sources:
        return _calibrated(host, config, sources, nodes)


def _of_target(host: PowerHost, overrides: Sequence[str]) -> list[Answer]:
    from wattload.run.compose import compose

    config, _ = compose(overrides)
    if config.target.is_block:
        raise ConfigError("target=block has no data to read; name a controller, such as nvme0")
    if config.power.first_setting is not None:
        raise ConfigError(
            "a calibration sets no power state; set it by `wattload power set` and calibrate then"
        )
    if config.power.source == "replay" and config.power.replay.align == START:
        raise ConfigError(
            "a replayed trace can't be calibrated: use power.replay.align=wall or monotonic, and "
            "the log that the meter writes meanwhile"
        )
    with _sources(host, config.power, devices_under(host, config.target)) as sources:
        if isinstance(plan := plan_pulses([each.facts() for each in sources], None), str):
            raise PowerError(f"not calibrated: {plan}")
        with _data(config.target.paths()[0]) as files:
            return _calibrated(host, config.power, sources, files)


@contextmanager
def _sources(
    host: PowerHost, config: PowerConfig, devices: Sequence[PowerDevice]
) -> Iterator[Sequence[PowerSource]]:
    """Yield the opened sources that measure drives, for as long as the block lasts.

    Raises:
        PowerError: there are none.
    """
    config.check()
    selection = select(devices, config, host=host.name)
    try:
        drives = [
            source
            for source in selection.sources
            if source.facts().scope is Scope.DRIVE and source.facts().measures
        ]
        if not drives:
            raise PowerError(f"no sensor measures the drive: {selection.choice}")
        yield drives
    finally:
        for source in selection.sources:
            source.close()


@contextmanager
def _data(target: Path) -> Iterator[Sequence[Path]]:
    """Yield files of ours on a target; without enough, one that is written and removed again."""
    with TargetLock.acquire(target) as lock:
        try:
            found = [
                folder.path / name
                for folder in list_folders(target)
                for name in sorted(folder.entries)
            ]
            if sum(map(length_bytes, found)) >= FILE_BYTES:
                yield found
                return
            folder = DataFolder.claim(target, "calibration", {"size_bytes": FILE_BYTES}, seed=0)
            try:
                path = _write(folder)
                sys.stderr.write(f"{path} was written, and is removed afterwards\n")
                time.sleep(SETTLE_S)
                yield [path]
            finally:
                folder.remove()
        finally:
            with suppress(OSError):
                lock.remove()


def _write(folder: DataFolder) -> Path:
    name = "data.bin"
    path = folder.path / name
    folder.reserve(name)
    engine = IOEngine(block_bytes=BLOCK_BYTES, depth=DEPTH)
    try:
        engine.run(
            IOPlan(
                kind=IOKind.WRITE,
                extents=[Extent(path, 0, FILE_BYTES)],
                block_bytes=BLOCK_BYTES,
                depth=DEPTH,
                fsync=True,
            ),
            alignment_bytes=direct_alignment(folder.path),
        )
    except OSError as error:
        raise PowerError(f"not calibrated: {path} can't be written: {error}") from error
    finally:
        engine.close()
    folder.record(name, FILE_BYTES, None)
    return path


def _calibrated(
    host: PowerHost, config: PowerConfig, sources: Sequence[PowerSource], files: Sequence[Path]
) -> list[Answer]:
    plan = plan_pulses([source.facts() for source in sources], files)
    if isinstance(plan, str):
        raise PowerError(f"not calibrated: {plan}")
    sys.stderr.write(f"reading the drive in pulses for {plan.seconds:.0f} s\n")
    used = [source for source in sources if source.facts() in plan.sources]
    load, samples = measure(plan, used, files, config.period_s)
    keys = {facts: _key(host, facts) for facts in plan.sources}
    answers = []
    for facts, record in zip(
        plan.sources, calibration_records(load, samples, keys, host=host.name), strict=True
    ):
        sensor = calibrate(record, facts)
        if sensor.basis == "calibrated":  # another one stays as it was
            CalibrationCache().store(facts, record)
        answers.append(
            Answer(
                facts=facts,
                record=record,
                declared=declared_sensor(facts, Readings.of(record, facts).profile),
                sensor=sensor,
                curve=response_curve(record, facts),
            )
        )
    return answers


def measure(
    plan: PulsePlan, sources: Sequence[PowerSource], files: Sequence[Path], period_s: float
) -> tuple[KnownLoad, list[Sample]]:
    """Load the drive in a thread and read the sources meanwhile."""
    samples: list[Sample] = []
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as loader:
        for source in sources:
            source.start()
        load = loader.submit(load_drives, plan, files, stop)
        schedule = Schedule(period_s, time.monotonic_ns())
        try:
            while not load.done():
                samples += (sample for source in sources for sample in source.read())
                schedule.advance(time.monotonic_ns())
                time.sleep(max(0.0, (schedule.due_ns - time.monotonic_ns()) / NS_PER_S))
        finally:  # Ctrl-C does not wait for the load
            stop.set()
    try:
        return load.result(), samples
    except (OSError, WattloadError) as error:
        raise PowerError(f"not calibrated: the drive could not be read: {error}") from error


def _key(host: PowerHost, facts: SourceFacts) -> Mapping[str, str]:
    fields: dict[str, Any] = {}
    if facts.device_name in host.list_names():
        with suppress(PowerError), closing(host.open_device(facts.device_name)) as device:
            fields, _ = read_state(device)
    return source_key(
        facts,
        host=host.name,
        firmware=str(fields.get("firmware") or ""),
        power_state=fields.get("power_state"),
    )


def _chart(answer: Answer) -> Iterator[str]:
    """Yield the lines of a chart of the step response, beside what was declared."""
    facts, declared, sensor, curve = answer.facts, answer.declared, answer.sensor, answer.curve
    yield f"{facts.device_name} ({facts.device}) by {facts.name}: {sensor_text(sensor)}"
    if sensor.basis == "calibrated":
        yield f"{'':24}{'declared':>12}{'calibrated':>12}"
        rows = [
            ("delay (tau)", declared.tau_s, sensor.tau_s, sensor.tau_uncertainty_s),
            ("shown by then (kappa)", declared.kappa_s, sensor.kappa_s, sensor.kappa_uncertainty_s),
            ("settled after", declared.settle_s, sensor.settle_s, None),
            ("time between updates", declared.update_s, sensor.update_s, sensor.jitter_s or None),
        ]
        for name, stated_s, found_s, unsure_s in rows:
            unsure = "" if unsure_s is None else f" +- {unsure_s:.3f} s"
            yield f"  {name:<22}{stated_s:>10.3f} s{found_s:>10.3f} s{unsure}"
        yield f"  {'noise of a reading':<22}{'':>12}{sensor.noise_w:>10.3g} W"
        stated_w = facts.resolution_w or 0.0
        yield f"  {'least step':<22}{stated_w:>10.3g} W{sensor.step_w:>10.3g} W"
        if sensor.train_share is not None and sensor.train_share_uncertainty is not None:
            yield (
                f"  {'fast train: error':<22}{'':>12}{100 * sensor.train_share:>10.1f} %"
                f" +- {100 * sensor.train_share_uncertainty:.1f} %"
            )
    if curve is None:
        return
    yield "  after a rise of the load, share of the step that readings show:"
    until_s = min(1.5 * sensor.settle_s + 3 * curve.step_s, float(curve.time_s[-1]))
    stride = max(1, -(-int(until_s / curve.step_s) // _ROWS))
    for time_s, share in zip(curve.time_s[::stride], curve.share[::stride], strict=True):
        if time_s > until_s:
            break
        middle_s = time_s + curve.step_s / 2
        bar = "#" * round(_BAR_WIDTH * min(max(share, 0.0), 1.25))
        yield f"  {middle_s:>7.2f} s {100 * share:>5.0f} % {bar}"


def _document(answer: Answer) -> dict[str, Any]:
    curve = answer.curve
    return {
        "device": answer.facts.device,
        "device_name": answer.facts.device_name,
        "source": answer.facts.name,
        "text": sensor_text(answer.sensor),
        "sensor": answer.sensor.model_dump(mode="json"),
        "declared": answer.declared.model_dump(mode="json"),
        "response": None
        if curve is None
        else {
            "time_s": (curve.time_s + curve.step_s / 2).tolist(),
            "share": curve.share.tolist(),
        },
        "key": dict(answer.record.key),
    }


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
