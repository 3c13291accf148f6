"""Random reads of small blocks that a GPU asks for."""
