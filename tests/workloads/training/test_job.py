from __future__ import annotations

import pytest

from wattload.core.errors import ConfigError
from wattload.workloads.training.job import (
    Division,
    divide,
    drawn_samples,
    epoch_order,
    steps_per_epoch,
)


@pytest.mark.parametrize(
    ("accelerators", "world_size", "per_rank"), [(1, 1, 1), (1, 4, 1), (4, 4, 1), (6, 2, 3)]
)
def test_accelerators_are_dealt_evenly(accelerators: int, world_size: int, per_rank: int) -> None:
    division = divide(accelerators, world_size)
    assert division.per_rank == per_rank
    assert division.accelerators == per_rank * world_size


@pytest.mark.parametrize(("accelerators", "world_size"), [(3, 2), (2, 4), (0, 1), (-2, 2)])
def test_accelerators_that_ranks_cant_share_are_refused(accelerators: int, world_size: int) -> None:
    with pytest.raises(ConfigError, match=f"got {accelerators}"):
        divide(accelerators, world_size)


def test_fewer_files_than_ranks_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"at least the number of ranks \(4\), got 3"):
        steps_per_epoch(3, 1, divide(1, 4))


def test_files_for_less_than_one_batch_each_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be 14 or more for 2 accelerators with"):
        steps_per_epoch(13, 7, divide(2, 1))


@pytest.mark.parametrize(("world_size", "per_rank"), [(1, 1), (2, 1), (2, 3), (1, 4)])
@pytest.mark.parametrize("file_count", [28, 61, 100])
def test_every_accelerator_gets_its_own_samples(
    world_size: int, per_rank: int, file_count: int
) -> None:
    division = Division(world_size=world_size, per_rank=per_rank)
    orders = [
        epoch_order(file_count, 2, division, rank=rank, seed=5, epoch=0)
        for rank in range(world_size)
    ]
    steps = steps_per_epoch(file_count, 2, division)
    together = [sample for order in orders for sample in order]
    assert len(set(together)) == len(together) == steps * 2 * division.accelerators
    assert set(together) <= set(range(file_count))
    assert len({len(order) for order in orders}) == 1


def test_a_rank_with_several_accelerators_takes_a_batch_for_each_in_turn() -> None:
    alone = [
        epoch_order(24, 2, Division(world_size=4, per_rank=1), rank=rank, seed=1, epoch=2)
        for rank in range(4)
    ]
    paired = epoch_order(24, 2, Division(world_size=2, per_rank=2), rank=1, seed=1, epoch=2)
    steps = [
        alone[rank][step * 2 : step * 2 + 2]
        for step in range(len(alone[0]) // 2)
        for rank in (2, 3)
    ]
    assert paired == [sample for batch in steps for sample in batch]


def test_bounded_steps_read_the_front_of_each_shard_and_other_files_in_every_epoch() -> None:
    division = divide(2, 1)
    assert steps_per_epoch(40, 2, division) == 10
    assert steps_per_epoch(40, 2, division, 3) == 3
    assert steps_per_epoch(40, 2, division, 30) == 10
    orders = [
        epoch_order(40, 2, division, rank=0, seed=1, epoch=epoch, most_steps=3)
        for epoch in range(4)
    ]
    whole = epoch_order(40, 2, division, rank=0, seed=1, epoch=0)
    assert orders[0] == whole[:12]
    assert {len(set(order)) for order in orders} == {12}
    assert len({frozenset(order) for order in orders}) == 4


def test_orders_depend_on_seed_and_epoch_alone() -> None:
    division = divide(1, 1)
    orders = {
        (seed, epoch): tuple(epoch_order(50, 5, division, rank=0, seed=seed, epoch=epoch))
        for seed in (1, 2)
        for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 4
    again = epoch_order(50, 5, division, rank=0, seed=2, epoch=1)
    assert tuple(again) == orders[2, 1]


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 1), (7, 1), (16, 1), (28, 2), (3500, 219), (14_000, 256)]
)
def test_one_in_16_samples_is_drawn_from_one_to_256(count: int, expected: int) -> None:
    order = list(range(100, 100 + count))
    drawn = drawn_samples(order, 3)
    assert len(drawn) == expected
    assert drawn <= set(order)
    assert drawn == drawn_samples(order, 3)


def test_another_draw_takes_other_samples() -> None:
    assert drawn_samples(list(range(500)), 1) != drawn_samples(list(range(500)), 2)
