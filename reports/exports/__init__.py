"""The figures of a report for machines and for issues: JSON, CSV, Markdown."""
