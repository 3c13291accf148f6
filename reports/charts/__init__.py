"""The charts of a page, one module each: data in SI base units, drawn in units for reading."""
