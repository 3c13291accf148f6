"""loader=dali: NVIDIA DALI's own readers, threads and prefetching; its shuffling is off."""
