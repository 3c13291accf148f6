"""The reference engine in Python: threads, pread and pwrite; slower, and labelled so."""
