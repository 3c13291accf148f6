"""loader=direct: planned I/O that bypasses the page cache."""
