from __future__ import annotations

from dataclasses import dataclass

from wattload.results.identity_cache import cache_by_identity


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Thing:
    number: int


def test_an_object_is_asked_once_and_an_equal_one_for_itself() -> None:
    requested: list[Thing] = []

    @cache_by_identity
    def double(thing: Thing) -> int:
        requested.append(thing)
        return 2 * thing.number

    first, equal = Thing(2), Thing(2)
    assert [double(first), double(first), double(equal)] == [4, 4, 4]
    assert len(requested) == 2


def test_an_answer_is_let_go_with_its_object() -> None:
    @cache_by_identity
    def double(thing: Thing) -> int:
        return 2 * thing.number

    for number in range(100):  # later things lie where earlier ones lay
        assert double(Thing(number)) == 2 * number
