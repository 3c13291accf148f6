"""Training batches by DGL: its own sampler, and features by page faults of mapped files."""
