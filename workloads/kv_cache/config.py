"""The settings of the kv_cache workload."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from wattload.core.errors import ConfigError
from wattload.core.settings import check_settings, setting
from wattload.results.kv_cache.facts import Admission, Arrivals, Layout, Source

MAX_BLOCK_TOKENS = 512
TRACE_BLOCK_TOKENS = 512
"""Tokens of a hashed block in Mooncake's traces."""
MAX_QUEUE_DEPTH = 1024
MAX_SIGMA = 4.0


@dataclass(slots=True, kw_only=True)
class Spread:
    """How a quantity varies: uniform from ``low`` to ``high``, or log-normal by ``median``.

    ``sigma`` is the standard deviation of the logarithm, 0 to 4; 0 gives a constant.
    """

    low: float = 0.0
    high: float = 0.0
    median: float | None = None
    sigma: float = 0.0

    @property
    def is_valid(self) -> bool:
        if self.median is None:
            return 0 <= self.low <= self.high < math.inf and self.sigma == 0
        return (
            0 < self.median < math.inf
            and 0 <= self.sigma <= MAX_SIGMA
            and self.low == self.high == 0
        )


@dataclass(slots=True, kw_only=True)
class UserType:
    """A share of the users: tokens of new text and of output a turn, and pauses between turns.

    With ``is_drawn_once`` each quantity is drawn once a user, as in MLPerf Storage: a turn then has
    a quarter of that length to all of it, and 0.8 to 1.2 of that pause.
    """

    share: float = 1.0
    is_drawn_once: bool = True
    new_tokens: Spread = field(default_factory=Spread)
    output_tokens: Spread = field(default_factory=Spread)
    think_s: Spread = field(default_factory=Spread)


@dataclass(slots=True, kw_only=True)
class Scale:
    """The size of the model, of the cache and of the run at one scale."""

    model: str = "llama3.1-8b"
    bytes_per_token: int | None = None
    capacity_bytes: int | None = 20 << 30
    duration_s: float = 180.0
    users: int = 12
    length_factor: float = 1.0
    most_input_tokens: int = 32768


@dataclass(slots=True, kw_only=True)
class Config:
    """Requests to a server that keeps blocks of prefixes on a drive."""

    _target_: str = "wattload.workloads.kv_cache.workload.KvCache"
    model: str = setting("llama3.1-8b", "Model that sets the bytes of a token.")
    bytes_per_token: int | None = setting(
        None, "Bytes of keys and values of a token, in place of a model's.", least=1, unset="model"
    )
    kv_dtype_bytes: int = setting(2, "Bytes of a number: 2, or 1 for FP8.", least=1, most=2)
    block_tokens: int = setting(
        256, "Tokens of a block.", least=16, most=MAX_BLOCK_TOKENS, multiple=16
    )
    layout: Layout = setting(
        Layout.block_file, "A file for each block, or a file for each layer's keys and values."
    )
    tp: int = setting(
        1, "Ranks of tensor parallelism; each has a file of its own.", least=1, most=64
    )
    mla_shards: str = setting(
        "replicated",
        "Whether each rank stores the latent vectors of an MLA model, or one rank.",
        choices=("replicated", "once"),
    )
    requests: Source = setting(Source.users, "Where requests come from.")
    trace: str | None = setting(
        None, "Trace file with Mooncake's fields; requests=trace only.", unset="none"
    )
    speed: float = setting(1.0, "Factor on the speed of a trace.", above=0, most=1e6)
    jitter: bool = setting(
        False, "Spread the requests of a trace evenly over the time to the next time stamp."
    )
    arrivals: Arrivals = setting(
        Arrivals.closed, "When users ask: after the previous answer, or at a rate."
    )
    request_rate: float | None = setting(
        None, "Requests a second; arrivals=open only.", above=0, most=1e6, unset="none"
    )
    users: int = setting(12, "Users of the closed loop.", least=1, most=1 << 16)
    user_types: dict[str, UserType] = setting(dict, "Kinds of users, by name.")
    system_prompts: int = setting(4, "System prompts that requests share.", least=0, most=1 << 16)
    system_prompt_tokens: int = setting(512, "Tokens of a system prompt.", least=0)
    zipf: float = setting(1.0, "Exponent of the popularity of system prompts.", least=0, most=10)
    turns: float = setting(5.0, "Mean turns of a conversation.", least=1, most=1000)
    length_factor: float = setting(
        1.0, "Factor on the tokens of new text and of output.", above=0, most=1000
    )
    most_input_tokens: int = setting(
        32768, "Longest input; a conversation ends before it.", least=16, most=131072
    )
    prefill_tokens_per_s: float | None = setting(
        None, "Emulated rate of computing missed tokens.", above=0, unset="unpaced"
    )
    decode_ms_per_token: float | None = setting(
        None, "Emulated time of an output token, in ms.", above=0, unset="unpaced"
    )
    memory_tier_bytes: int = setting(
        0, "Cache in memory before the drive: its hits are counted, no memory is taken.", least=0
    )
    capacity_bytes: int | None = setting(
        None, "Size of the cache on the drive.", least=1, unset="80 % of the file system"
    )
    admission: Admission = setting(
        Admission.all, "Blocks that are stored: all, those missed a second time, or none."
    )
    queue_depth: int = setting(
        32, "Operations in flight, of reads and of writes each.", least=1, most=MAX_QUEUE_DEPTH
    )
    request_bytes: int = setting(
        1 << 20, "Most bytes of an operation.", multiple=4096, least=4096, most=1 << 30
    )
    max_backlog: int = setting(
        1024, "Requests in the system that end the run as overloaded.", least=1, most=1 << 20
    )
    target_p99_ms: float | None = setting(
        None, "p99 of what the drive may add to the first token, in ms.", above=0, unset="none"
    )
    duration_s: float = setting(180.0, "Time of the mix of requests.", above=0)
    warm_up_s: float = setting(
        10.0, "Time of the mix before it is timed: what the fill stored is then that old.", least=0
    )
    saturation_s: float = setting(30.0, "Time of restores alone, and of stores alone.", above=0)
    prefill_j_per_token: float | None = setting(
        None,
        "Declared energy of computing a token, in J, for the break-even.",
        above=0,
        unset="none",
    )
    prefill_j_source: str = setting("", "Where that energy is from; the page prints it.")
    scales: dict[str, Scale] = setting(dict, "Model, capacity and time by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range, or settings that do not fit."""
        check_settings(self, "workload")
        if self.requests is Source.trace and self.trace is None:
            raise ConfigError(
                "workload.requests=trace needs workload.trace=FILE.jsonl, a trace with Mooncake's "
                "fields timestamp, input_length, output_length and hash_ids"
            )
        if self.trace is not None and self.requests is not Source.trace:
            raise ConfigError(
                f"workload.trace={self.trace} needs workload.requests=trace; with "
                f"requests={self.requests.value} no trace is read"
            )
        if self.requests is Source.users and (self.speed != 1 or self.jitter):
            name = "jitter" if self.jitter else f"speed={self.speed:g}"
            raise ConfigError(
                f"workload.{name} belongs to a trace, and workload.requests=users has none; users "
                "have workload.request_rate"
            )
        if self.is_closed and self.users > self.max_backlog:
            raise ConfigError(
                f"workload.users={self.users} may all wait at once, which is more than "
                f"workload.max_backlog={self.max_backlog}; set that to {self.users} or more"
            )
        if self.requests is Source.trace and self.request_rate is not None:
            raise ConfigError(
                "a trace has its own times; use workload.speed in place of workload.request_rate"
            )
        if self.requests is Source.trace and TRACE_BLOCK_TOKENS % self.block_tokens:
            raise ConfigError(
                f"workload.block_tokens={self.block_tokens} does not divide the trace's blocks of "
                f"{TRACE_BLOCK_TOKENS} tokens; use 16, 32, 64, 128, 256 or 512"
            )
        if self.requests is Source.users:
            self._check_users()
        is_open = self.requests is Source.users and self.arrivals is Arrivals.open
        if self.request_rate is not None and not is_open:
            raise ConfigError(
                f"workload.request_rate={self.request_rate:g} needs workload.arrivals=open: in a "
                "closed loop users ask when the previous request is done"
            )
        if is_open and self.request_rate is None:
            raise ConfigError("workload.arrivals=open needs workload.request_rate=REQUESTS_PER_S")
        if self.prefill_j_per_token is not None and not self.prefill_j_source:
            raise ConfigError(
                "workload.prefill_j_per_token needs workload.prefill_j_source, a few words that "
                "say where it is from"
            )

    def _check_users(self) -> None:
        for name, kind in self.user_types.items():
            if not 0 <= kind.share < math.inf:
                raise ConfigError(
                    f"workload.user_types.{name}.share must be 0 or more, got {kind.share}"
                )
            for what in ("new_tokens", "output_tokens", "think_s"):
                spread: Spread = getattr(kind, what)
                if not spread.is_valid:
                    raise ConfigError(
                        f"workload.user_types.{name}.{what} must have 0 <= low <= high, or a "
                        f"median above 0 with sigma 0 to {MAX_SIGMA:g}, got low={spread.low} "
                        f"high={spread.high} median={spread.median} sigma={spread.sigma}"
                    )
        if not any(kind.share for kind in self.user_types.values()):
            raise ConfigError(
                "workload.user_types has no type with a share above 0; set "
                "workload.user_types.NAME.share=1"
            )
        if self.system_prompts and self.system_prompt_tokens >= self.most_input_tokens:
            raise ConfigError(
                f"workload.system_prompt_tokens={self.system_prompt_tokens} must be less than "
                f"workload.most_input_tokens={self.most_input_tokens}"
            )

    @property
    def is_closed(self) -> bool:
        return self.requests is Source.users and self.arrivals is Arrivals.closed
