"""The sampler of PyTorch against the one in C, and against the definition in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.loaders.graph.sampling import SEED, SMALL, edges_of, homogeneous, reference, synthetic
from wattload.core.errors import ConfigError
from wattload.loaders.graph.sampler import Batch, SampledEdges, Sampler, TrainingSeeds
from wattload.loaders.graph.synthetic import SHAPES
from wattload.loaders.graph.torch_sampler import DeviceBatch, TorchSampler

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU"),
        ],
    ),
]


def on_host(batch: DeviceBatch) -> Batch:
    def numbers(found: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        assert found.dtype == torch.int32
        return found.cpu().numpy().view(np.uint32)

    layers = tuple(
        tuple(SampledEdges(numbers(each.offsets), numbers(each.sources)) for each in layer)
        for layer in batch.layers
    )
    return Batch(tuple(map(numbers, batch.nodes)), batch.counts, layers)


@pytest.mark.parametrize("device", DEVICES)
def test_batches_are_those_of_the_definition(device: str) -> None:
    lists = [[1, 2], [3], [3, 4, 1, 9, 5, 8, 2], [], [5, 0, 5], [0], [7], [8], [9], [6, 6]]
    cases = [
        (homogeneous(lists), [[2], [1], [3]], [2, 9, 4]),
        (synthetic(), [[4, 3], [2, 9], [5, 0], [3, 1]], list(range(990, 970, -1))),
    ]
    for topology, fanouts, seeds in cases:
        sampler = TorchSampler(topology, fanouts, seed=SEED, device=device)
        for number in (0, 1, 2**40, 0):
            batch = on_host(sampler.draw(number, np.array(seeds, dtype=np.uint32)))
            nodes, edges = reference(topology, fanouts, number, seeds)
            assert [each.tolist() for each in batch.nodes] == nodes
            assert edges_of(topology.shape, batch) == edges
        sampler.close()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["igb_tiny", "igbh_1000th"])
def test_batches_are_those_of_the_sampler_in_c(name: str, device: str) -> None:
    shape = SHAPES[name]
    topology = synthetic(shape)
    fanouts = [[fanout] * len(shape.relations) for fanout in (10, 5, 5)]
    ours = Sampler(topology, fanouts, threads=2, seed=-SEED)
    theirs = TorchSampler(topology, fanouts, seed=-SEED, device=device)
    seeds = TrainingSeeds(shape.node_types[0].count, 0.6, SEED).batch(3, 16)
    expected, drawn = ours.draw(3, seeds), theirs.draw(3, seeds)
    ours.close()
    theirs.close()
    found = on_host(drawn)
    assert found.counts == expected.counts
    assert drawn.row_count == expected.row_count
    assert drawn.rows(shape).dtype == np.uint64
    np.testing.assert_array_equal(drawn.rows(shape), expected.rows(shape))
    for own, other in zip(found.layers, expected.layers, strict=True):
        for one, two in zip(own, other, strict=True):
            np.testing.assert_array_equal(one.offsets, two.offsets)
            np.testing.assert_array_equal(one.sources, two.sources)


def test_a_gpu_that_is_too_small_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = synthetic(SHAPES["igb_tiny"])
    seeds = np.arange(10, dtype=np.uint32)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2_000_000, 8_000_000))

    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(torch, "full", refuse)
        with pytest.raises(ConfigError, match=r"the topology needs 3\.39 MB, 2\.00 MB are free"):
            TorchSampler(topology, [[3]], seed=SEED, device="cpu")
    sampler = TorchSampler(topology, [[3]], seed=SEED, device="cpu")
    expected = sampler.draw(1, seeds).rows(topology.shape)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "cumsum", refuse)
        with pytest.raises(
            ConfigError, match=r"10 seeds can need .* are free; use workload\.sampler=cpu$"
        ):
            sampler.draw(1, seeds)
    assert sampler.draw(1, seeds).rows(topology.shape).tolist() == expected.tolist()
    sampler.close()


def test_bad_seeds_are_refused_and_the_next_batch_is_right() -> None:
    sampler = TorchSampler(homogeneous([[1]] * 10), [[2]], seed=SEED, device="cpu")
    for seeds, message in (([0, 10], "seed 1 is node 10"), ([3, 4, 3], "node 3 is twice")):
        with pytest.raises(ConfigError, match=message):
            sampler.draw(0, np.array(seeds, dtype=np.uint32))
        assert sampler.draw(0, np.zeros(1, dtype=np.uint32)).nodes[0].tolist() == [0, 1]
    sampler.close()
    sampler.close()
    with pytest.raises(RuntimeError, match="closed"):
        sampler.draw(0, np.zeros(1, dtype=np.uint32))
    with pytest.raises(ConfigError, match="2 relations, got fan-outs for 1"):
        TorchSampler(synthetic(SMALL), [[3]], seed=SEED, device="cpu")
