"""Data on a target.

Its folders and their lock, the formats of its files, Criteo's logs, and the page cache.
"""
