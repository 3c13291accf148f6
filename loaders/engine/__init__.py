"""The I/O engine: io_uring in C, its plans and what they yield."""
