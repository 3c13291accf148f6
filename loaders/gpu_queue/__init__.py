"""Reads that the threads of a GPU ask for, through queue pairs in host memory."""
