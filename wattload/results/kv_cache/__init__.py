"""The results of a cache of keys and values on a drive."""
