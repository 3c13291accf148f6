"""Random reads of mapped files, by page faults."""
