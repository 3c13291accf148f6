"""Tables of plain data as tables of a page."""

from __future__ import annotations

from wattload.reports.blocks import Cell, Table, columns, row
from wattload.results.shapes import Grid


def table_of(grid: Grid) -> Table:
    return Table(
        columns=columns(*grid.columns),
        rows=[
            row(
                *(
                    cell if isinstance(cell, str) else Cell(cell.text, cell.tone, "", cell.remark)
                    for cell in cells
                )
            )
            for cells in grid.rows
        ],
        caption=grid.caption,
        note=grid.note,
    )
