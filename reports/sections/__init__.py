"""The sections of a page, one module each: from runs to blocks, or ``None`` to be left out."""
