"""The calibrations of this host's meters, kept between runs: a file each in the state folder.

A record has the calibrations that it uses, so these files are a cache: a lost one only costs a new
calibration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from wattload.core.base_models import Frozen
from wattload.core.errors import DataError
from wattload.core.files import open_folder
from wattload.core.power import SourceFacts
from wattload.core.record.energy import CalibrationRecord, PowerSection
from wattload.power.control.journal import default_state_folder

_PREFIX, _SUFFIX = "calibration-", ".json"


class StoredCalibration(Frozen):
    """A calibration and the source that it is of, as declared."""

    facts: SourceFacts
    record: CalibrationRecord


class CalibrationCache:
    """The latest calibration for each key; a folder or file that can't be trusted has none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_state_folder()

    def find(self, facts: SourceFacts, key: Mapping[str, str]) -> CalibrationRecord | None:
        """Return the calibration with exactly this key, ``None`` if there is none.

        It must be of the same sensor, range and rails: all that is declared of the source counts,
        but for the drive's name in the kernel, which changes.
        """
        found = [each for each in self._read(_name_of(key)) if each.record.key == key]
        return next((each.record for each in found if _is_of(each, facts)), None)

    def latest(self, facts: SourceFacts, key: Mapping[str, str]) -> CalibrationRecord | None:
        """Return the latest calibration with this key but for the power state, or ``None``."""
        found = [each for each in self.all() if _meter_of(each.record.key) == _meter_of(key)]
        return next((each.record for each in reversed(found) if _is_of(each, facts)), None)

    def all(self) -> list[StoredCalibration]:
        """Return all calibrations, the latest last."""
        with suppress(OSError, DataError), open_folder(self._folder) as folder:
            names = [name for name in folder.names() if name.startswith(_PREFIX)]
            return sorted(
                (each for name in names for each in self._read(name)),
                key=lambda each: each.record.utc,
            )
        return []

    def store(self, facts: SourceFacts, record: CalibrationRecord) -> None:
        """Keep a calibration of a source for later runs, if the folder can be written."""
        stored = StoredCalibration(facts=facts, record=record)
        with suppress(OSError, DataError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_folder(self._folder) as folder:
                folder.write(_name_of(record.key), stored.model_dump_json())

    def _read(self, name: str) -> list[StoredCalibration]:
        with suppress(OSError, DataError, ValidationError), open_folder(self._folder) as folder:
            content = folder.read(name)
            return [] if content is None else [StoredCalibration.model_validate_json(content)]
        return []


class SessionCalibrations:
    """The calibrations that the runs of one session use, for each meter: the same or none in all.

    Runs of a comparison set different power states, so a calibration holds for all of them here.
    What the first run uses stays, even if that is none.
    """

    def __init__(self, cache: CalibrationCache | None = None) -> None:
        self._cache = cache or CalibrationCache()
        self._used: dict[SourceFacts, CalibrationRecord | None] = {}

    def recall(self, section: PowerSection) -> None:
        """Take what an earlier run of this session used, which another process made."""
        for source in section.sources:
            if source.facts is None or source.sensor is None:
                continue
            is_calibrated = source.sensor.basis == "calibrated"
            found = section.calibration_of(source) if is_calibrated else None
            self._used.setdefault(_unnamed(source.facts), found)

    def is_settled(self, facts: SourceFacts, key: Mapping[str, str]) -> bool:
        """Return whether a run must not calibrate a source, as it is known what the run uses."""
        return _unnamed(facts) in self._used or self._cache.find(facts, key) is not None

    def uses_none(self, facts: SourceFacts) -> bool:
        """Return whether an earlier run of the session used no calibration of a source."""
        meter = _unnamed(facts)
        return meter in self._used and self._used[meter] is None

    def use(
        self,
        facts: SourceFacts,
        key: Mapping[str, str],
        own: CalibrationRecord | None = None,
        *,
        is_of_any_state: bool,
    ) -> CalibrationRecord | None:
        """Return the calibration that a run uses; later runs use none else.

        ``own`` is the one that the run made, which is kept for later sessions too. With
        ``is_of_any_state``, another than that of the drive's power state will do.
        """
        if own is not None:
            self._cache.store(facts, own)
        meter = _unnamed(facts)
        if meter not in self._used:
            found = own or self._cache.find(facts, key)
            if found is None and is_of_any_state:
                found = self._cache.latest(facts, key)
            self._used[meter] = found
        return self._used[meter]


def _unnamed(facts: SourceFacts) -> SourceFacts:
    """Return what is declared of a source but for the kernel's name of its drive, which changes."""
    return facts.model_copy(update={"device_name": ""})


def _is_of(stored: StoredCalibration, facts: SourceFacts) -> bool:
    return _unnamed(stored.facts) == _unnamed(facts)


def _meter_of(key: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in key.items() if name != "power_state")


def _name_of(key: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()
    return f"{_PREFIX}{digest[:16]}{_SUFFIX}"
