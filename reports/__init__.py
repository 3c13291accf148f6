"""Run records read from disk to statistics, sections and one HTML page."""
