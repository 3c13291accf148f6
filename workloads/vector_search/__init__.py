"""Vector search on a drive: an index in DiskANN's files answers queries at a known recall."""
