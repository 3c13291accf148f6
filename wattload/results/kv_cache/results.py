"""The results of a cache of keys and values."""

from wattload.results.kv_cache.facts import KvFacts
from wattload.results.registry import Results

RESULTS = Results(name="kv_cache", facts=KvFacts)
