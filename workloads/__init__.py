"""One module per I/O pattern: what is read or written, in which order, and what counts as done."""
