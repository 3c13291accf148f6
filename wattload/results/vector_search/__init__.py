"""The results of vector search on a drive."""
