"""Conversion of Criteo's logs by pyarrow."""
