"""The draws of MLPerf's users, against figures that were computed or published for them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from wattload.workloads.kv_cache.models import MODELS
from wattload.workloads.kv_cache_mlperf.config import MOST_USERS
from wattload.workloads.kv_cache_mlperf.users import (
    DECODE_BATCH,
    PREFILL_ONLY_TOKENS,
    PROMPT_TOKENS,
    Request,
    draw_users,
    requests,
)

TOKEN_BYTES = MODELS["llama3.1-8b"].bytes_per_token(2)


def drawn(count: int, users: int = 900, seed: int = 42, length_divisor: int = 1) -> list[Request]:
    random = Random(seed)
    found = requests(draw_users(users, random), random, length_divisor=length_divisor)
    return list(islice(found, count))


def test_entries_are_as_long_as_those_of_llama_8b() -> None:
    """Mean 734 MB, median 559 MB, at most 3,255 MB; 17.5 % are written and not read."""
    # Users ask at different rates: each counts once, as in the computed figures.
    of_users = {id(each.turns): each for each in drawn(8000, users=1000)}.values()
    sizes = sorted(each.entry_tokens * TOKEN_BYTES for each in of_users)
    assert sum(sizes) / len(sizes) == pytest.approx(734e6, rel=0.1)
    assert sizes[len(sizes) // 2] == pytest.approx(559e6, rel=0.12)
    assert 2.5e9 < sizes[-1] <= 25_000 * TOKEN_BYTES
    unread = sum(each.own_reads == 0 for each in of_users) / len(of_users)
    assert unread == pytest.approx(0.175, abs=0.03)


def test_entries_are_read_about_five_times_as_often_as_they_are_written() -> None:
    """4.9 bytes are read for each written, of which submissions have published 3.9 to 4.9."""
    found = drawn(20_000)
    read = sum(each.own_reads * each.entry_tokens for each in found)
    assert 4.2 < read / sum(each.entry_tokens for each in found) < 5.4


def test_an_entry_is_read_once_and_once_for_each_batch_of_tokens() -> None:
    for each in drawn(3000):
        tokens = each.entry_tokens + (0 if each.prompt is None else PROMPT_TOKENS[each.prompt])
        batches = -(-each.generated_tokens // DECODE_BATCH)
        assert each.own_reads == (0 if tokens >= PREFILL_ONLY_TOKENS else 1 + batches)


def test_a_divisor_shortens_entries_and_nothing_else() -> None:
    for whole, part in zip(drawn(500), drawn(500, length_divisor=64), strict=True):
        assert part.entry_tokens == max(whole.entry_tokens // 64, 1)
        assert (part.own_reads, part.time_s) == (whole.own_reads, whole.time_s)


def test_users_do_not_wait_and_keep_their_pauses() -> None:
    found = drawn(4000, users=20)
    times = [each.time_s for each in found]
    assert times == sorted(times)
    assert found == drawn(4000, users=20)
    assert found[:9] != drawn(9, users=20, seed=43)
    # Pauses of 0.1 to 1.5 s, times 0.8 to 1.2, with a mean of 0.3, 0.6 or 0.9 s.
    assert 20 / 0.9 < len(times) / times[-1] < 20 / 0.3


def test_priorities_and_prompts_have_their_shares() -> None:
    shares = Counter(user.priority for user in draw_users(5000, Random(1)))
    assert [shares[priority] / 5000 for priority in (3, 2, 1)] == pytest.approx(
        [0.15, 0.35, 0.5], abs=0.03
    )
    prompts = Counter(each.prompt for each in drawn(5000))
    assert prompts.pop(None) / 5000 == pytest.approx(0.8, abs=0.03)
    assert set(prompts) == {0, 1, 2}
    assert max(prompts.values()) < 1.3 * min(prompts.values())


def test_one_turn_in_five_begins_a_conversation() -> None:
    found = drawn(3000, users=50)
    first = sum(each.turns[0] == each.number for each in found)
    assert first / len(found) == pytest.approx(0.2, abs=0.03)
    assert all(each.number in each.turns for each in found[-50:])
    turns = {id(each.turns): each.turns for each in found}.values()
    assert sorted(number for each in turns for number in each) == list(range(3000))


def test_a_conversation_ends_after_fifty_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    users = draw_users(1, random)
    monkeypatch.setattr(random, "random", lambda: 0.9)
    found = list(islice(requests(users, random, length_divisor=1), 120))
    assert [len(turns) for turns in {id(each.turns): each.turns for each in found}.values()] == [
        50, 50, 20,
    ]  # fmt: skip


def test_a_conversation_beyond_the_last_thousand_is_forgotten() -> None:
    found = drawn(9000, users=200)
    last = {id(each.turns): each.number for each in found}
    kept = {id(each.turns) for each in found if each.turns}
    assert len(kept) == MOST_USERS < len(last)
    assert min(last[each] for each in kept) > max(last[each] for each in last.keys() - kept)
