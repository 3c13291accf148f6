from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import ConfigError
from wattload.results.kv_cache.facts import Arrivals
from wattload.workloads.kv_cache.config import Config, Spread, UserType
from wattload.workloads.kv_cache.requests import BLOCK_ID_LIMIT, Request
from wattload.workloads.kv_cache.users import Users

CHATBOT = UserType(
    new_tokens=Spread(low=512, high=4096),
    output_tokens=Spread(low=50, high=200),
    think_s=Spread(low=0.1, high=0.5),
)


def closed(kind: UserType = CHATBOT, **changes: Any) -> Config:
    config = Config(user_types={"some": kind}, **changes)
    config.check("demo")
    return config


def open_loop(kind: UserType = CHATBOT, **changes: Any) -> Config:
    return closed(kind, **({"arrivals": Arrivals.open, "request_rate": 2.0} | changes))


def thinking(think_s: Spread, *, is_drawn_once: bool = False) -> UserType:
    return replace(CHATBOT, think_s=think_s, is_drawn_once=is_drawn_once)


def by_user(config: Config, count: int, *, seed: int = 1, order: int = 0) -> list[list[Request]]:
    """The requests of each user of a closed loop, answered in a random order."""
    users = Users(config, seed=seed)
    asked = [[each] for each in users.first()]
    drawn = random.Random(order)
    while open_lists := [each for each in asked if len(each) < count]:
        requests = drawn.choice(open_lists)
        requests.append(users.following(requests[-1], requests[-1].arrival_s + drawn.random()))
    return sorted(asked, key=lambda requests: requests[0].user)


def scheduled(config: Config, *, seed: int = 1, late_s: float = 0.0) -> Any:
    """The requests of an open loop, each asked for ``late_s`` after its arrival."""
    users = Users(config, seed=seed)
    (request,) = users.first()
    while True:
        yield request
        request = users.following(request, request.arrival_s + late_s)


@settings(max_examples=40, deadline=None)
@given(
    block_tokens=st.sampled_from([16, 48, 256, 512]),
    prompts=st.tuples(st.integers(0, 3), st.integers(0, 1500)),
    most=st.integers(2000, 20000),
    turns=st.sampled_from([1.0, 3.0, 1000.0]),
    is_open=st.booleans(),
)
def test_equal_ids_have_equal_places_and_equal_ids_before_them(
    block_tokens: int, prompts: tuple[int, int], most: int, turns: float, *, is_open: bool
) -> None:
    sizes: dict[str, Any] = {
        "block_tokens": block_tokens,
        "system_prompts": prompts[0],
        "system_prompt_tokens": prompts[1],
        "most_input_tokens": most,
        "turns": turns,
    }
    requests = (
        islice(scheduled(open_loop(**sizes)), 60)
        if is_open
        else chain.from_iterable(by_user(closed(users=4, **sizes), 15))
    )
    seen: dict[int, tuple[int, int]] = {}
    for request in requests:
        assert 1 <= request.input_tokens <= most
        assert len(request.blocks) == request.input_tokens // block_tokens
        before = -1
        for index, block in enumerate(request.blocks):
            assert 0 <= block < BLOCK_ID_LIMIT
            assert seen.setdefault(block, (index, before)) == (index, before)
            before = block


def test_a_turn_has_the_whole_conversation_before_it_and_new_text() -> None:
    kind = replace(CHATBOT, output_tokens=Spread(low=9000, high=9000))
    config = closed(kind, users=3, turns=1000, most_input_tokens=131072, system_prompt_tokens=700)
    for requests in by_user(config, 12, seed=3):
        assert requests[0].input_tokens > 700
        for earlier, later in pairwise(requests):
            count = len(earlier.blocks)
            assert list(later.blocks[:count]) == list(earlier.blocks)
            new_tokens = later.input_tokens - earlier.input_tokens - earlier.output_tokens
            assert 512 / 4 <= new_tokens <= 4096


def test_a_conversation_ends_before_an_input_that_is_too_long() -> None:
    config = closed(users=1, turns=1000, most_input_tokens=10_000, system_prompts=0)
    (requests,) = by_user(config, 200)
    begun = [
        later for earlier, later in pairwise(requests) if later.blocks[:1] != earlier.blocks[:1]
    ]
    assert len(begun) > 10
    assert all(each.input_tokens <= 4096 for each in begun), "new text alone"
    assert len({each.blocks[0] for each in begun}) == len(begun), "nothing is shared"


def test_the_first_prompt_is_cut_to_fit() -> None:
    kind = replace(CHATBOT, new_tokens=Spread(median=1e9))
    config = closed(
        replace(kind, is_drawn_once=False),
        users=2,
        most_input_tokens=131072,
        block_tokens=16,
        system_prompts=0,
    )
    first = list(Users(config, seed=1).first())
    assert [each.input_tokens for each in first] == [131072, 131072]
    assert len({*first[0].blocks, *first[1].blocks}) == 2 * 131072 // 16, "ids do not overlap"


def test_only_blocks_inside_a_system_prompt_are_shared_with_other_conversations() -> None:
    config = closed(users=8, system_prompts=1, system_prompt_tokens=1000, block_tokens=256, turns=1)
    blocks = [set(requests[0].blocks) for requests in by_user(config, 1)]
    for one, other in pairwise(blocks):
        assert len(one & other) == 3


def test_prompts_are_popular_by_zipf() -> None:
    config = closed(users=1000, system_prompts=2, zipf=2.0)
    heads = Counter(each.blocks[0] for each in Users(config, seed=5).first())
    assert len(heads) == 2
    assert 0.7 < heads[min(heads)] / 1000 < 0.9, "4 of 5"


def test_lengths_are_drawn_once_a_user_and_vary_by_a_factor_of_four() -> None:
    for requests in by_user(closed(users=4, turns=1, system_prompts=0), 60):
        lengths = [each.input_tokens for each in requests]
        assert 2 < max(lengths) / min(lengths) < 4.05
        pauses = [each.think_s for each in requests]
        assert 1.2 < max(pauses) / min(pauses) <= 1.5
    longest = [max(each.input_tokens for each in r) for r in by_user(closed(turns=1), 60)]
    assert max(longest) > 1.5 * min(longest), "users differ"


def test_a_factor_shortens_texts_and_not_system_prompts() -> None:
    sizes: dict[str, Any] = {"users": 4, "turns": 1000, "system_prompt_tokens": 500}
    whole, eighth = (by_user(closed(length_factor=f, **sizes), 2) for f in (1.0, 0.125))
    for long, short in zip(whole, eighth, strict=True):
        for one, other in zip(long, short, strict=True):
            assert other.output_tokens == pytest.approx(one.output_tokens / 8, abs=1)
            assert other.input_tokens - 500 == pytest.approx((one.input_tokens - 500) / 8, abs=4)


def test_users_are_of_the_types_in_proportion_to_their_shares() -> None:
    def kind(tokens: int, share: float) -> UserType:
        return UserType(share=share, is_drawn_once=False, new_tokens=Spread(median=tokens))

    types = {"one": kind(100, 3), "two": kind(200, 1), "none": kind(300, 0)}
    config = Config(user_types=types, users=8, system_prompts=0)
    config.check("demo")
    found = Counter(each.input_tokens for each in Users(config, seed=9).first())
    assert found == {100: 6, 200: 2}


def test_the_order_of_answers_does_not_change_what_a_user_asks() -> None:
    config = closed(users=5)
    one, other = by_user(config, 20, order=1), by_user(config, 20, order=2)
    for mine, theirs in zip(one, other, strict=True):
        assert [each.blocks for each in mine] == [each.blocks for each in theirs]
        assert [each.think_s for each in mine] == [each.think_s for each in theirs]
    assert by_user(config, 20, seed=1) == by_user(config, 20, seed=1)
    assert by_user(config, 2, seed=2) != by_user(config, 2, seed=1)


def test_a_user_asks_again_a_pause_after_the_answer() -> None:
    users = Users(closed(users=2), seed=1)
    first = list(users.first())
    assert first[0].arrival_s != first[1].arrival_s
    assert all(0 <= each.arrival_s <= 0.6 for each in first)
    later = users.following(first[1], 77.0)
    assert later.user == first[1].user
    assert later.arrival_s == 77.0 + first[1].think_s


def test_an_open_schedule_does_not_depend_on_answers() -> None:
    config = open_loop()
    on_time = list(islice(scheduled(config), 300))
    assert on_time == list(islice(scheduled(config, late_s=1000.0), 300))
    times = [each.arrival_s for each in on_time]
    assert times == sorted(times)
    assert on_time != list(islice(scheduled(config, seed=2), 300))


@pytest.mark.parametrize(
    "kind",
    [
        thinking(Spread(median=100.0)),
        thinking(Spread(median=40.0, sigma=1.0)),
        thinking(Spread(low=0.0, high=200.0)),
        thinking(Spread(low=0.0, high=200.0), is_drawn_once=True),
    ],
)
def test_an_open_loop_has_its_rate_from_the_start(kind: UserType) -> None:
    config = open_loop(kind, request_rate=1.0, turns=5)
    seen: Counter[int] = Counter()
    for seed in range(50):
        for request in scheduled(config, seed=seed):
            if request.arrival_s >= 80:
                break
            seen[int(request.arrival_s // 20)] += 1
    for window in range(4):  # 1000 requests each, with a standard deviation of 4 % at most
        assert 850 < seen[window] < 1150, seen


def test_a_limit_of_the_input_does_not_change_the_rate() -> None:
    config = open_loop(request_rate=5.0, turns=20, most_input_tokens=5000)
    last = next(islice(scheduled(config), 4000, None))
    assert 4000 / 5 * 0.85 < last.arrival_s < 4000 / 5 * 1.15


def test_memory_does_not_grow_with_requests() -> None:
    requests = scheduled(open_loop(request_rate=20.0))
    next(islice(requests, 1000, None))
    tracemalloc.start()
    try:
        next(islice(requests, 1000, None))
        before, _ = tracemalloc.get_traced_memory()
        next(islice(requests, 10_000, None))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000, "10 bytes a request"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"user_types": {}}, "no type with a share above 0"),
        ({"user_types": {"a": replace(CHATBOT, share=0.0)}}, "no type with a share above 0"),
        ({"user_types": {"a": replace(CHATBOT, share=-1.0)}}, "a.share must be 0 or more, got -1"),
        ({"user_types": {"a": thinking(Spread(low=2, high=1))}}, "a.think_s must have 0 <= low"),
        ({"user_types": {"a": thinking(Spread(median=0.0))}}, "median=0.0"),
        ({"user_types": {"a": thinking(Spread(median=1.0, sigma=5))}}, "sigma=5"),
        ({"user_types": {"a": thinking(Spread(median=1.0, high=5))}}, "high=5"),
        ({"user_types": {"a": thinking(Spread(low=float("nan")))}}, "low=nan"),
        ({"system_prompt_tokens": 32768}, "must be less than workload.most_input_tokens=32768"),
        ({"turns": 0.5}, "workload.turns must be 1 to 1000"),
    ],
)
def test_settings_of_users_are_checked(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        replace(closed(), **changes).check("demo")
    assert sentence in str(raised.value)
