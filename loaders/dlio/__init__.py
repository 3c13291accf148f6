"""dlio-benchmark as an outside program: it trains on our files, and its figures become ours too."""
