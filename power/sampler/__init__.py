"""The sampler: a process that reads power during a run and restores power settings after it."""
