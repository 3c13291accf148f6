"""Training of graph neural networks whose features are read from storage."""
