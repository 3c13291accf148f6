"""A cache of keys and values on a drive: blocks of prefixes are stored and restored."""
