"""GraphSAGE in plain PyTorch: mean aggregation, summed over relations, trained by Adam."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from wattload.loaders.graph.sampler import Batch
from wattload.loaders.graph.synthetic import WIDTH, GraphShape
from wattload.workloads.gnn.model_size import ModelSize


class MeanConvolution(torch.nn.Module):
    """``neighbours(mean of the sources) + own(destination)``, PyG's ``SAGEConv``.

    Hamilton et al., NeurIPS 2017, with the two halves of the weight applied one by one instead of
    to concatenated values. A destination without edges has a mean of zero.
    """

    def __init__(self, width: int, out_width: int) -> None:
        super().__init__()
        self.neighbours = torch.nn.Linear(width, out_width)
        self.own = torch.nn.Linear(width, out_width, bias=False)

    def forward(
        self,
        sources: torch.Tensor,
        destinations: torch.Tensor,
        offsets: torch.Tensor,
        edges: torch.Tensor,
    ) -> torch.Tensor:
        """Return ``(destinations, out_width)``.

        The edges into destination i come from the rows ``edges[offsets[i] : offsets[i + 1]]`` of
        ``sources``. No tensor has a row for each edge.
        """
        if len(edges):
            # Measured on a CPU, with gradient: half the time of a product with a sparse matrix in
            # CSR, a quarter of that of torch.segment_reduce, which also copies each edge's row.
            means = functional.embedding_bag(
                edges, sources, offsets, mode="mean", include_last_offset=True
            )
        else:  # embedding_bag refuses sources without rows
            means = torch.zeros_like(destinations)
        found: torch.Tensor = self.neighbours(means) + self.own(destinations)
        return found


class GraphSage(torch.nn.Module):
    """A convolution per layer and relation; ReLU between layers.

    The convolutions of relations that lead to the same type are added, as by PyG's ``HeteroConv``
    with ``aggr="sum"``.
    """

    def __init__(
        self, shape: GraphShape, *, layers: int, hidden: int, classes: int, width: int = WIDTH
    ) -> None:
        """Make the weights.

        Raises:
            ConfigError: no relation leads to one of the types.
        """
        super().__init__()
        self.shape = shape
        sizes = ModelSize.of(shape, layers=layers, hidden=hidden, classes=classes, width=width)
        self.layers = tuple(
            tuple(MeanConvolution(*ends) for _ in shape.relations) for ends in sizes.ends
        )
        # PyTorch finds the weights in lists of its own only.
        self.convolutions = torch.nn.ModuleList(chain.from_iterable(self.layers))

    def forward(
        self,
        features: torch.Tensor,
        counts: Sequence[Sequence[int]],
        edges: Sequence[Sequence[tuple[torch.Tensor, torch.Tensor]]],
    ) -> torch.Tensor:
        """Return a value per class for each seed.

        ``features`` has the rows of the batch's nodes, one type after the other. ``counts`` and
        ``edges`` (offsets and sources) are those of ``Batch``: the first layer of the model uses
        the edges that were drawn last, and each computes only the nodes that the next one needs.
        """
        values: list[torch.Tensor] = list(torch.split(features, list(counts[-1])))
        last = len(self.layers) - 1
        for number, convolutions in enumerate(self.layers):
            layer = last - number
            found: list[torch.Tensor | None] = [None] * len(values)
            for relation, convolution, (offsets, sources) in zip(
                self.shape.relations, convolutions, edges[layer], strict=True
            ):
                count = counts[layer][relation.destination]
                if not count:
                    continue
                own = values[relation.destination][:count]
                added = convolution(values[relation.source], own, offsets, sources)
                before = found[relation.destination]
                found[relation.destination] = added if before is None else before + added
            values = [
                old[:0] if new is None else functional.relu(new) if layer else new
                for old, new in zip(values, found, strict=True)
            ]
        return values[0]


class Trainer:
    """A model, its optimizer and the device of both.

    On a CPU, the same batches, features and labels give bit-identical losses, with any loader.
    """

    def __init__(
        self,
        shape: GraphShape,
        *,
        layers: int,
        hidden: int,
        classes: int,
        learning_rate: float,
        device: torch.device | str,
        seed: int,
        width: int = WIDTH,
    ) -> None:
        """Make the weights from ``seed``: the same on any device.

        Raises:
            ConfigError: no relation leads to one of the types of nodes.
        """
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed & (1 << 63) - 1)
            self.model = GraphSage(
                shape, layers=layers, hidden=hidden, classes=classes, width=width
            )
        self.model.to(self.device)
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate)

    def step(
        self,
        features: torch.Tensor,
        batch: Batch,
        labels: torch.Tensor | NDArray[np.int64],
    ) -> torch.Tensor:
        """Train on one batch, and return its cross entropy without waiting for a GPU.

        ``features`` are float32 rows on the device of the trainer, one type after the other in the
        order of the batch's nodes; ``labels`` are the classes of the seeds, of the first type.
        """
        edges = _edges_on(self.device, batch)
        labels = torch.as_tensor(labels).to(self.device, non_blocking=True)
        self._optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.model(features, batch.counts, edges), labels)
        torch.autograd.backward(loss)
        self._optimizer.step()
        return loss.detach()


def _edges_on(device: torch.device, batch: Batch) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return offsets and sources by layer and relation, as int32 on a device: one copy at most."""
    flat: list[Any] = [
        numbers
        for layer in batch.layers
        for each in layer
        for numbers in (each.offsets, each.sources)
    ]
    if isinstance(flat[0], torch.Tensor):
        tensors = flat
    elif device.type == "cpu":
        tensors = [torch.from_numpy(each.view(np.int32)) for each in flat]
    else:
        packed = torch.from_numpy(np.concatenate(flat).view(np.int32)).to(device)
        tensors = list(torch.split(packed, [len(each) for each in flat]))
    pairs = list(zip(tensors[::2], tensors[1::2], strict=True))
    relations = len(batch.layers[0])
    return [pairs[start : start + relations] for start in range(0, len(pairs), relations)]
