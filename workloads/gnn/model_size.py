"""The widths of a model and the memory that training it takes; PyTorch is not imported for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from wattload.core.errors import ConfigError
from wattload.loaders.graph.synthetic import WIDTH, GraphShape

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The graph of a model, and the widths of the inputs and outputs of each layer, in order."""

    shape: GraphShape
    ends: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, shape: GraphShape, *, layers: int, hidden: int, classes: int, width: int = WIDTH
    ) -> Self:
        """Return the size of a model with ``layers`` layers.

        Raises:
            ConfigError: no relation leads to one of the types of nodes.
        """
        reached = {each.destination for each in shape.relations}
        for number, node_type in enumerate(shape.node_types):
            if number not in reached:
                raise ConfigError(
                    f"no relation of {shape.name} leads to {node_type.name}, so that the model has "
                    "no value for its nodes; add the relation the other way"
                )
        return cls(shape, tuple(pairwise([width, *[hidden] * (layers - 1), classes])))

    @property
    def parameter_count(self) -> int:
        """The weights of all layers and relations: two matrices and a bias each."""
        of_relation = sum(2 * width * out_width + out_width for width, out_width in self.ends)
        return len(self.shape.relations) * of_relation

    def activation_bytes(self, counts: Sequence[Sequence[int]]) -> int:
        """Return about the most memory that a step takes besides its features, in bytes.

        ``counts`` are nodes by layer and type, those of ``Batch`` or of ``largest_counts``. Counted
        are the weights with gradients and the two moments of Adam; the means and outputs of all
        layers, which are kept for the backward pass; and what a layer needs while it runs, forward
        or backward, of the layer that needs most.
        """
        kept = largest = 0
        last = len(self.ends) - 1
        for number, (width, out_width) in enumerate(self.ends):
            layer = last - number
            means = [counts[layer][each.destination] * width for each in self.shape.relations]
            outputs = sum(counts[layer]) * out_width
            kept += sum(means) + outputs
            # Forward: both products and their sum. Backward: the gradients of outputs and of one
            # mean and, but for features, those of all inputs, which two terms are added to.
            inputs = sum(counts[layer + 1]) * width if number else 0
            largest = max(largest, 3 * outputs, outputs + max(means) + 3 * inputs)
        return _FLOAT_BYTES * (4 * self.parameter_count + kept + largest)
