"""The results of training on whole records, with emulated accelerators."""
