"""The charts of a page: data in SI base units, drawn in units for reading."""
