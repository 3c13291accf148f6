"""The settings of the gnn workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.host.gpus import check_names, named_gpus
from wattload.core.settings import check_settings, setting
from wattload.loaders.graph.sampler import FANOUT_LIMIT, THREAD_LIMIT
from wattload.loaders.graph.synthetic import SHAPES, GraphShape

SERIAL, AHEAD = "serial", "ahead"
AUTO, TORCH, EMULATED = "auto", "torch", "emulated"
CPU, GPU = "cpu", "gpu"
MOST_LAYERS = 8
MOST_STEPS = 1_000_000
MOST_SEEDS = 1 << 20
MOST_OUTSTANDING = 65_536
MOST_WIDTH = 8192


@dataclass(slots=True, kw_only=True)
class Scale:
    """The graph, the steps and their seeds at one scale."""

    graph: str = "igb_small"
    steps: int = 20
    warmup_steps: int = 5
    batch_seeds: int = 1024


@dataclass(slots=True, kw_only=True)
class Config:
    """Training on a graph whose features are larger than memory: each batch reads its rows.

    The defaults are those of GIDS's script for IGBH-Full: three layers, fan-outs 10,5,5, batches of
    1024 and a hidden width of 512.
    """

    _target_: str = "wattload.workloads.gnn.workload.Gnn"
    graph: str = setting(
        "igb_small",
        "Shape of the synthetic graph; without effect with workload.source.",
        choices=tuple(SHAPES),
    )
    source: str | None = setting(
        None,
        "Folder of a real IGB graph on the target's file system, which is read and never changed.",
        unset="a synthetic graph",
    )
    batch_seeds: int = setting(
        1024, "Training nodes that a batch starts with.", least=1, most=MOST_SEEDS
    )
    layers: int = setting(3, "Layers of the model.", least=1, most=MOST_LAYERS)
    fanouts: Any = setting(
        lambda: [10, 5, 5],
        "Neighbours drawn for a node, by layer in DGL's order (the seeds draw the last); a list "
        "per layer has a number for each relation.",
    )
    hidden: int = setting(512, "Width of the hidden layers.", least=1, most=MOST_WIDTH)
    learning_rate: float = setting(0.01, "Learning rate of Adam.", above=0, most=10)
    steps: int = setting(20, "Timed steps.", least=1, most=MOST_STEPS)
    warmup_steps: int = setting(
        5, "Untimed steps before them; memory is limited after the first.", least=1, most=MOST_STEPS
    )
    overlap: str = setting(
        SERIAL,
        "Whether stages follow each other (serial), or the next batches are sampled and gathered "
        "while one trains (ahead).",
        choices=(SERIAL, AHEAD),
    )
    training: str = setting(
        AUTO,
        "PyTorch trains (torch: on the GPU, else on the CPU), or accelerator.step_s.gnn is slept "
        "(emulated). auto: torch.",
        choices=(AUTO, TORCH, EMULATED),
    )
    sampler: str = setting(
        AUTO,
        "Who samples: threads of the CPU, or the GPU with the topology in its memory. auto: the "
        "GPU where there is one that trains and the topology fits.",
        choices=(AUTO, CPU, GPU),
    )
    sampler_threads: int | None = setting(
        None,
        "CPU threads that sample and recompute rows.",
        least=1,
        most=THREAD_LIMIT,
        unset="one per CPU",
    )
    outstanding: int = setting(
        512, "Reads in flight, where the loader decides that.", least=1, most=MOST_OUTSTANDING
    )
    memory_share: float = setting(
        0.45,
        "Host memory for topology, batches, the loader's rows and the page cache, as a share of "
        "the bytes of all features; the default is the paper's 1 TB of 2.24 TB.",
        above=0,
        most=100,
    )
    compare_every: int = setting(
        16,
        "One row of a batch in so many is recomputed where the model takes it.",
        least=1,
        most=1 << 20,
    )
    profile_steps: int = setting(
        2,
        "Untimed steps whose reads are traced at the drive, after the timed ones.",
        least=0,
        most=1000,
    )
    train_share: float = setting(
        0.6, "Share of the nodes of the first type that train.", above=0, most=1
    )
    gpus: Any = setting(
        None,
        "The GPU that trains, by its number in nvidia-smi or its PCI address.",
        unset="the first by PCI address",
    )
    scales: dict[str, Scale] = setting(dict, "Graphs and steps by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        check_names(self.named_gpus)
        fanouts = self.fanouts
        if isinstance(fanouts, str) or not isinstance(fanouts, Sequence):
            raise ConfigError(f"workload.fanouts must be a list such as [10,5,5], got {fanouts!r}")
        if len(fanouts) != self.layers:
            raise ConfigError(
                f"workload.fanouts has {len(fanouts)} numbers for workload.layers={self.layers}: "
                "each layer needs one; use as many of both"
            )
        for layer in fanouts:
            each = layer if isinstance(layer, Sequence) and not isinstance(layer, str) else [layer]
            for fanout in each:
                is_number = isinstance(fanout, int) and not isinstance(fanout, bool)
                if not is_number or not 0 <= fanout <= FANOUT_LIMIT:
                    raise ConfigError(
                        f"workload.fanouts must have whole numbers from 0 to {FANOUT_LIMIT}, got "
                        f"{fanout!r}"
                    )
        if len(self.named_gpus) > 1:
            raise ConfigError(
                f"workload.gpus names {len(self.named_gpus)} GPUs, and gnn trains on one so far; "
                "name one"
            )

    @property
    def named_gpus(self) -> tuple[str, ...]:
        """The GPU that was named, as text; empty for the first one."""
        return named_gpus(self.gpus)

    def fanouts_of(self, shape: GraphShape) -> list[list[int]]:
        """Return the fan-outs by layer and relation of a graph.

        Raises:
            ConfigError: a layer has another number of fan-outs than the graph has relations.
        """
        relations = len(shape.relations)
        found = []
        for number, layer in enumerate(self.fanouts):
            each = [layer] * relations if isinstance(layer, int) else list(layer)
            if len(each) != relations:
                raise ConfigError(
                    f"layer {number} of workload.fanouts has {len(each)} numbers, and "
                    f"{shape.name} has {relations} relations; use one number for all of them, or "
                    f"{relations}"
                )
            found.append(each)
        return found
