"""The results of random reads of blocks."""
