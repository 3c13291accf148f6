"""The native engine: io_uring in C, its plans, and what they yield."""
