"""wattload: which SSD feeds my AI jobs faster, and for how many joules?"""

from __future__ import annotations

__version__ = "0.1.0"
