"""One module or package per I/O pattern: what is read or written, in what order, and checks."""
