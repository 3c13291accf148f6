"""The settings of the retinanet workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wattload.workloads.training import config


@dataclass(slots=True, kw_only=True)
class Config(config.Config):
    """MLPerf Storage's retinanet; its YAML file has the values."""

    model: ClassVar[str] = "retinanet"

    _target_: str = "wattload.workloads.training.workload.Retinanet"
