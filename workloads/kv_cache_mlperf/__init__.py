"""The request loop of MLPerf Storage v3.0's kv_cache_benchmark, for comparison with its results."""
