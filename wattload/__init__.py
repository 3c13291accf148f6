"""wattload: which SSD feeds my AI jobs faster, and for how many joules?"""

__version__ = "0.1.0"
