"""The dumps in ``corpus/``: what drives answer, byte for byte, and what the bytes mean.

One JSON file a drive. ``origin`` says where its bytes come from; ``identify``, ``logs`` and
``features`` hold structures as ``{"bytes": size, "<offset>": "<hex>"}``, zero elsewhere, features
with their ``result``; ``expect`` says what the fields are, in words of the specification's units.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.power.nvme.admin import Answers

FOLDER = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class Dump:
    """One drive of the corpus."""

    name: str
    origin: str
    identify: dict[int, bytes]
    logs: dict[int, bytes]
    features: dict[tuple[int, int], tuple[int, bytes]]
    expect: dict[str, Any]

    def device(self) -> Answers:
        """Return a drive that answers with these bytes and refuses everything else."""
        return Answers(identify=self.identify, logs=self.logs, features=self.features)

    def write(self, folder: Path) -> None:
        """Write the answers as files, as the preloaded stand-in ``answers.c`` reads them."""
        for number, data in self.identify.items():
            (folder / f"identify-{number:02x}").write_bytes(data)
        for number, data in self.logs.items():
            (folder / f"log-{number:02x}").write_bytes(data)
        for (number, select), (result, data) in self.features.items():
            path = folder / f"feature-{number:02x}-{select:02x}"
            path.write_bytes(result.to_bytes(4, "little") + data)


def _bytes(sparse: dict[str, Any]) -> bytes:
    data = bytearray(sparse["bytes"])
    for offset, text in sparse.items():
        if offset not in ("bytes", "result"):
            part = bytes.fromhex(text)
            data[int(offset) : int(offset) + len(part)] = part
    if len(data) != sparse["bytes"]:
        raise ValueError(f"a part lies beyond the {sparse['bytes']} bytes of its structure")
    return bytes(data)


def _feature(key: str) -> tuple[int, int]:
    number, _, select = key.partition("/")
    return int(number, 16), int(select or "0")


def load(path: Path) -> Dump:
    """Return one dump."""
    raw = json.loads(path.read_text())
    return Dump(
        name=path.stem,
        origin=raw["origin"],
        identify={int(key, 16): _bytes(each) for key, each in raw["identify"].items()},
        logs={int(key, 16): _bytes(each) for key, each in raw["logs"].items()},
        features={
            _feature(key): (each["result"], _bytes(each)) for key, each in raw["features"].items()
        },
        expect=raw["expect"],
    )


DUMPS = tuple(load(path) for path in sorted(FOLDER.glob("*.json")))
