"""Conversion of Criteo's logs in C, through the I/O engine."""
