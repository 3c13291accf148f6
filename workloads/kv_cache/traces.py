"""Requests of a recorded trace with the fields of Mooncake's, read line by line.

A line is a JSON object: ``timestamp`` in ms, ``input_length`` and ``output_length`` in tokens, and
``hash_ids``, one for each 512 tokens of the input. Equal ids are equal blocks after equal blocks.
Source: Qin et al., Mooncake, FAST 2025, and the traces published with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wattload.core.base_models import first_fault
from wattload.core.errors import ConfigError, DataError
from wattload.core.settings import shown
from wattload.workloads.kv_cache.config import TRACE_BLOCK_TOKENS
from wattload.workloads.kv_cache.requests import BLOCK_ID_LIMIT, Request

LINE_LIMIT_BYTES = 1 << 20
_LEAST_BLOCK_TOKENS = 16
_HASH_LIMIT = BLOCK_ID_LIMIT * _LEAST_BLOCK_TOKENS // TRACE_BLOCK_TOKENS

_Count = Annotated[int, Field(ge=0, lt=1 << 53)]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True)

    timestamp: _Count
    input_length: Annotated[int, Field(ge=1, lt=1 << 53)]
    output_length: _Count
    hash_ids: list[Annotated[int, Field(ge=0, lt=_HASH_LIMIT)]]


class Trace:
    """The requests of a trace file, ``speed`` times as fast.

    Published times are rounded, so requests come in bursts; with ``jitter`` those of one time stamp
    are evenly spread over the time to the next one, and only those of the last stay together.

    Each line is checked when it is read. For that the parent and the length of every id are kept:
    about 11 bytes an id if ids are numbered in order, at most 1 kB if they are scattered.
    """

    is_closed = False

    def __init__(self, path: Path, *, block_tokens: int, speed: float, jitter: bool) -> None:
        if not path.is_file():
            raise ConfigError(
                f"workload.trace={path} is not a file; name a trace with Mooncake's fields"
            )
        self._path = path
        self._block_tokens = block_tokens
        self._speed = speed
        self._jitter = jitter
        self._requests: Iterator[Request] = iter(())

    def first(self) -> Iterable[Request]:
        """Return the first request of the trace.

        Raises:
            DataError: a line is wrong; also raised by ``following``.
        """
        self._requests = self._spread() if self._jitter else self._read()
        request = next(self._requests, None)
        if request is None:
            raise DataError(f"{self._path} is empty; a trace has a JSON object a line")
        return [request]

    def following(self, request: Request, time_s: float) -> Request | None:
        """Return the next request of the trace, ``None`` at its end."""
        return next(self._requests, None)

    def _spread(self) -> Iterator[Request]:
        burst: list[Request] = []
        for request in self._read():
            if burst and request.arrival_s > burst[0].arrival_s:
                step_s = (request.arrival_s - burst[0].arrival_s) / len(burst)
                for index, each in enumerate(burst):
                    each.arrival_s += index * step_s
                yield from burst
                burst = []
            burst.append(request)
        yield from burst

    def _read(self) -> Iterator[Request]:
        seen = _SeenBlocks()
        start_ms = last_ms = None
        factor = TRACE_BLOCK_TOKENS // self._block_tokens
        for number, content in self._lines():
            line = self._parsed(number, content)
            if last_ms is not None and line.timestamp < last_ms:
                raise self._error(number, f"timestamp must not be before {last_ms}", line.timestamp)
            fault = seen.fault(line.hash_ids, line.input_length)
            if fault:
                raise self._error(number, *fault)
            last_ms = line.timestamp
            start_ms = last_ms if start_ms is None else start_ms
            blocks = chain.from_iterable(
                range(each * factor, (each + 1) * factor) for each in line.hash_ids
            )
            yield Request(
                arrival_s=(last_ms - start_ms) / 1000 / self._speed,
                blocks=list(blocks)[: line.input_length // self._block_tokens],
                input_tokens=line.input_length,
                output_tokens=line.output_length,
            )

    def _parsed(self, number: int, content: bytes) -> _Line:
        try:
            line = _Line.model_validate_json(content)
        except ValidationError as error:
            place, fault, value = first_fault(error)
            raise self._error(number, f"{place or 'JSON'}: {fault}", value) from None
        count = -(-line.input_length // TRACE_BLOCK_TOKENS)
        if len(line.hash_ids) != count:
            raise self._error(
                number,
                f"hash_ids must have an id for each {TRACE_BLOCK_TOKENS} tokens, {count} for "
                f"input_length {line.input_length}",
                len(line.hash_ids),
            )
        return line

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self._path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT_BYTES), b""), 1):
                if len(line) == LINE_LIMIT_BYTES:
                    raise self._error(
                        number,
                        f"a line must be shorter than {LINE_LIMIT_BYTES} bytes",
                        line[:100],
                    )
                yield number, line

    def _error(self, number: int, what: str, value: object) -> DataError:
        return DataError(f"{self._path}, line {number}: {what}, got {shown(str(value))}")


class _SeenBlocks:
    """The parent and the length of each id so far, in pages: dense ids take 11 bytes each."""

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}

    def fault(self, ids: list[int], input_tokens: int) -> tuple[str, str] | None:
        """Add the ids of an input; return what must be true and is not, and what is instead."""
        parent = -1
        rest = input_tokens
        for each in ids:
            page = self._pages.get(each >> 6)
            if page is None:
                page = self._pages[each >> 6] = array("Q", bytes(8 << 6))
            length = min(rest, TRACE_BLOCK_TOKENS)
            word = parent + 1 << 10 | length
            known = page[each & 63]
            if not known:
                page[each & 63] = word
            elif known != word:
                known_parent, known_length = (known >> 10) - 1, known & 1023
                if known_parent != parent:
                    return (
                        f"hash_ids: id {each} must follow {_parent(known_parent)}, as before",
                        _parent(parent),
                    )
                return (
                    f"hash_ids: id {each} must have {known_length} tokens, as before",
                    f"{length}",
                )
            parent = each
            rest -= TRACE_BLOCK_TOKENS
        return None


def _parent(number: int) -> str:
    return "nothing" if number < 0 else f"id {number}"
