"""Output formats of reports.

The HTML page, the index of a folder of runs, JSON, CSV and Markdown, written atomically.
"""
