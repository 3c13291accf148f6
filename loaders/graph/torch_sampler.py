"""Batches of neighbours, sampled by PyTorch where the topology is: on a GPU, or in host memory.

It follows ``wl_sampler_open`` of the engine's header and gives the same lists as ``Sampler``. All
edges of a relation are drawn at once, in padded lists of ``fan-out`` places for each node, so that
the device waits for the host once a layer, for the sizes of its lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from traceback import clear_frames

import numpy as np
import torch
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.units import compared_bytes
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import Batch, SampledEdges, check_fanouts, largest_counts
from wattload.loaders.graph.synthetic import GraphShape, draw_number

_NEW = 1 << 30
"""From here on a place in a table is the number of an edge instead of a node's place."""
_UNSEEN = (1 << 31) - 1
_EDGE_BYTES = 72
"""Of the lists of a relation's edges that ``_relation`` has at once, about."""
_LOW = (1 << 32) - 1


def _signed(number: int) -> int:
    """Return the int64 with the bits of a number of 64 bits: int64 wraps as uint64 does."""
    return number - (1 << 64) if number >> 63 else number


_STEP = _signed(0x9E3779B97F4A7C15)
_FACTORS = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


class DeviceBatch(Batch):
    """A batch of tensors."""

    __slots__ = ()

    def rows(self, shape: GraphShape) -> NDArray[np.uint64]:
        """Return the rows of all nodes in host memory, one type after the other."""
        found = torch.cat(
            [nodes.long() + shape.first_row(number) for number, nodes in enumerate(self.nodes)]
        )
        return found.cpu().numpy().view(np.uint64)


def device_bytes(shape: GraphShape) -> int:
    """Return the memory of the topology and the tables of a sampler; a batch comes on top."""
    tables = sum(4 * (each.count + 1) for each in shape.node_types)
    return tables + sum(
        8 * (shape.node_types[each.destination].count + 1) + 4 * each.edge_count
        for each in shape.relations
    )


def fits(shape: GraphShape, device: torch.device | str, *, reserved_bytes: int = 0) -> bool:
    """Return whether a GPU has the memory of a sampler free, besides ``reserved_bytes``."""
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return device_bytes(shape) + reserved_bytes <= free_bytes


class TorchSampler:
    """Draws batches on a device, in the current stream; implements ``BatchSampler``."""

    def __init__(
        self,
        topology: Topology,
        fanouts: Sequence[Sequence[int]],
        *,
        seed: int,
        device: torch.device | str,
    ) -> None:
        """Copy the topology to the device; ``fanouts`` are those of ``Sampler``.

        Raises:
            ConfigError: the fan-outs do not fit the graph, it is too large for numbers of 31 bits,
                or the GPU has too little memory.
        """
        shape = topology.shape
        check_fanouts(shape, fanouts)
        for node_type in shape.node_types:
            if node_type.count >= _NEW:
                raise ConfigError(
                    f"a sampler with torch takes fewer than {_NEW} nodes of a type, "
                    f"{shape.name} has {node_type.count} of {node_type.name}"
                )
        self._shape = shape
        self._seed = seed
        self._fanouts = tuple(map(tuple, fanouts))
        self._device = torch.device(device)
        self._lists: list[torch.Tensor] = []
        try:
            self._indptr = [self._copy(each.view(np.int64)) for each in topology.indptr]
            self._indices = [self._copy(each.view(np.int32)) for each in topology.indices]
            # The last place of a table stands for no node.
            self._tables = [
                torch.full((each.count + 1,), _UNSEEN, dtype=torch.int32, device=self._device)
                for each in shape.node_types
            ]
            self._numbers = self._range(0)
        except torch.OutOfMemoryError as error:
            self._indptr, self._indices, self._tables = [], [], []
            raise self._no_room(error, "the topology needs", device_bytes(shape)) from error

    def draw(self, batch: int, seeds: NDArray[np.uint32]) -> DeviceBatch:
        """Return the batch of this number, which starts with ``seeds``, nodes of the first type.

        Raises:
            ConfigError: a seed is no node, or is given twice; the batch may be too large, or the
                GPU has too little memory for it.
            RuntimeError: the sampler is closed.
        """
        if not self._tables:
            raise RuntimeError("the sampler is closed")
        self._check_seeds(seeds)
        try:
            self._reserve(len(seeds))
            return self._draw(batch, seeds)
        except torch.OutOfMemoryError as error:
            self._forget(None)
            what = f"a batch of {len(seeds)} seeds can need"
            raise self._no_room(error, what, self._batch_bytes(len(seeds))) from error
        except BaseException:
            self._forget(None)
            raise

    def close(self) -> None:
        """Release the memory; safe to call twice."""
        self._indptr, self._indices, self._tables, self._lists = [], [], [], []
        self._numbers = self._range(0)

    def _draw(self, batch: int, seeds: NDArray[np.uint32]) -> DeviceBatch:
        types = range(len(self._shape.node_types))
        counts = [[len(seeds) if number == 0 else 0 for number in types]]
        self._lists[0][: len(seeds)] = self._copy(seeds.astype(np.int64))
        for table in self._tables:
            table[-1] = 0  # not new
        self._tables[0][self._lists[0][: len(seeds)]] = self._range(len(seeds))
        # How many nodes there are by now: the device knows it before the host does.
        ends = list(torch.tensor(counts[-1], device=self._device).unbind())
        key, layers = draw_number(self._seed, batch), []
        for layer, fanouts in enumerate(reversed(self._fanouts)):
            drawn = [
                self._relation(
                    number,
                    fanout,
                    draw_number(key, layer * len(fanouts) + number),
                    counts[-1],
                    ends,
                )
                for number, fanout in enumerate(fanouts)
            ]
            sizes = torch.stack([*ends, *(offsets[-1] for offsets, _ in drawn)]).tolist()
            counts.append(sizes[: len(types)])
            layers.append(
                tuple(
                    SampledEdges(offsets.int(), sources[:size])
                    for (offsets, sources), size in zip(drawn, sizes[len(types) :], strict=True)
                )
            )
        nodes = tuple(
            found[:count].int() for found, count in zip(self._lists, counts[-1], strict=True)
        )
        self._forget(counts[-1])
        return DeviceBatch(nodes, tuple(map(tuple, counts)), tuple(layers))

    def _relation(
        self, number: int, fanout: int, key: int, counts: Sequence[int], ends: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw the edges of one relation, and append what is new to the nodes of its source.

        Returns offsets, and the places of sources with room for the most edges there can be.
        """
        relation = self._shape.relations[number]
        count = counts[relation.destination]
        if not count or not fanout:
            zeros = torch.zeros(count + 1, dtype=torch.int64, device=self._device)
            return zeros, zeros[:0].int()
        nodes = self._lists[relation.destination][:count]
        starts = self._indptr[number][nodes]
        degrees = self._indptr[number][nodes + 1] - starts
        offsets = torch.zeros(count + 1, dtype=torch.int64, device=self._device)
        torch.cumsum(degrees.clamp(max=fanout), 0, out=offsets[1:])
        picked = _picks(degrees, fanout, _draw_each(key, nodes))
        numbers = self._range(fanout)
        is_edge = numbers < degrees[:, None]

        table, none = self._tables[relation.source], len(self._tables[relation.source]) - 1
        edges = torch.where(is_edge, starts[:, None] + picked.T, 0).flatten()
        is_edge = is_edge.flatten()
        sources = torch.where(is_edge, self._indices[number][edges].long(), none)
        # The first edge of a node that is new gives it its place.
        numbered = self._range(count * fanout) + _NEW
        table.scatter_reduce_(0, sources, numbered, "amin")
        is_first = table[sources] == numbered
        ranks = torch.cumsum(is_first, 0)
        places = ends[relation.source] + ranks - 1
        table[torch.where(is_first, sources, none)] = torch.where(is_first, places, 0).int()
        room = self._lists[relation.source]
        room[torch.where(is_first, places, len(room) - 1)] = sources
        ends[relation.source] = ends[relation.source] + ranks[-1]

        packed = torch.empty(count * fanout + 1, dtype=torch.int32, device=self._device)
        targets = (offsets[:-1, None] + numbers).flatten()
        packed[torch.where(is_edge, targets, count * fanout)] = table[sources]
        return offsets, packed

    def _reserve(self, seed_count: int) -> None:
        """Make room for the nodes of any batch, and one that is for no node."""
        largest = largest_counts(self._shape, self._fanouts, seed_count)
        for layer, fanouts in enumerate(reversed(self._fanouts)):
            for relation, fanout in zip(self._shape.relations, fanouts, strict=True):
                edges = largest[layer][relation.destination] * fanout
                if edges >= _NEW:
                    raise ConfigError(
                        f"{seed_count} seeds can have {edges} edges in a layer, a sampler with "
                        f"torch takes fewer than {_NEW}; take fewer seeds or smaller fan-outs"
                    )
        if [len(each) - 1 for each in self._lists] != list(largest[-1]):
            self._lists = [
                torch.empty(count + 1, dtype=torch.int64, device=self._device)
                for count in largest[-1]
            ]

    def _batch_bytes(self, seed_count: int) -> int:
        """Return about what a batch takes at most: its nodes, and the edges of one relation."""
        largest = largest_counts(self._shape, self._fanouts, seed_count)
        edges = max(
            largest[layer][relation.destination] * fanout
            for layer, fanouts in enumerate(reversed(self._fanouts))
            for relation, fanout in zip(self._shape.relations, fanouts, strict=True)
        )
        return 8 * sum(largest[-1]) + _EDGE_BYTES * edges

    def _no_room(self, error: torch.OutOfMemoryError, what: str, needed_bytes: int) -> ConfigError:
        # What the failed call has allocated is free as soon as nothing refers to it.
        clear_frames(error.__traceback__)
        torch.cuda.empty_cache()
        free_bytes, _ = torch.cuda.mem_get_info(self._device)
        needed, free = compared_bytes(needed_bytes, free_bytes)
        return ConfigError(
            f"sampling on the GPU does not fit its memory: {what} {needed}, {free} are free; use "
            "workload.sampler=cpu"
        )

    def _forget(self, counts: Sequence[int] | None) -> None:
        """Take the nodes of a batch out of the tables; all nodes where it failed."""
        for number, table in enumerate(self._tables):
            if counts is None:
                table.fill_(_UNSEEN)
            else:
                table.index_fill_(0, self._lists[number][: counts[number]], _UNSEEN)

    def _check_seeds(self, seeds: NDArray[np.uint32]) -> None:
        """Raise what the sampler in C raises."""
        count = self._shape.node_types[0].count
        if len(seeds) and int(seeds.max()) >= count:
            place = int(np.argmax(seeds >= count))
            raise ConfigError(
                f"seed {place} is node {seeds[place]}, but there are only {count} nodes"
            )
        found, times = np.unique(seeds, return_counts=True)
        if len(found) < len(seeds):
            raise ConfigError(f"node {found[np.argmax(times > 1)]} is twice among the seeds")

    def _range(self, count: int) -> torch.Tensor:
        """Return the numbers from 0 on as int32; they are kept."""
        if not hasattr(self, "_numbers") or len(self._numbers) < count:
            self._numbers = torch.arange(count, dtype=torch.int32, device=self._device)
        return self._numbers[:count]

    def _copy(self, numbers: NDArray[np.int64] | NDArray[np.int32]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self._device)


def _picks(degrees: torch.Tensor, fanout: int, keys: torch.Tensor) -> torch.Tensor:
    """Return which of its edges each node draws, shape ``(fanout, nodes)``.

    A node with at most ``fanout`` edges has all of them in their order, and numbers that it has no
    edges of.
    """
    numbers = torch.arange(fanout, device=degrees.device)[:, None]
    limits = degrees + (numbers - (fanout - 1))
    bits = _mix(keys + (numbers + 1) * _STEP)
    # The upper half of a product of 128 bits: degrees, and so limits, have at most 31.
    scaled = ((bits >> 32) & _LOW) * limits + (((bits & _LOW) * limits) >> 32) >> 32
    picked = torch.where(degrees > fanout, scaled, numbers)
    lasts = limits - 1
    for number in range(1, fanout):
        own = picked[number]
        torch.where((picked[:number] == own).any(0), lasts[number], own, out=own)
    return picked


def _draw_each(seed: int, numbers: torch.Tensor) -> torch.Tensor:
    """Return ``wl_draw`` of one seed and each number."""
    return _mix((numbers + 1) * _STEP + _signed(seed))


def _mix(x: torch.Tensor) -> torch.Tensor:
    """Return ``wl_mix``; shifts to the right fill up with the sign, which the masks take off."""
    x = (x ^ ((x >> 30) & (1 << 34) - 1)) * _FACTORS[0]
    x = (x ^ ((x >> 27) & (1 << 37) - 1)) * _FACTORS[1]
    return x ^ ((x >> 31) & (1 << 33) - 1)
