"""Vector indexes on a drive: DiskANN's files, how they are built and how they are searched."""
