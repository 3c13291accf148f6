"""dlio-benchmark as an outside program: it trains on our files, and its figures become ours too.

The program runs in processes of its own. In them ``launch`` stands in for two packages that it
imports and does not need; the stand-in for its tracer tells the ``conductor``, on our side, when an
epoch begins and ends, and waits there until the page cache is cold.
"""

from wattload.loaders.dlio.config import Config

__all__ = ["Config"]
