"""Trace tables: the Parquet files of a workload, declared once for writing and reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["int64", "float64", "bool", "string"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; its name ends in its unit. Where nothing counts, a value is null."""

    name: str
    kind: Kind
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTable:
    """A table in the run's folder.

    ``drawn`` are the columns that pages draw. They are read together, and a table without one of
    them is not drawn. ``interval`` are the columns of the start and the end of a row, in whole ns;
    each row of a table that ``is_gapless`` starts where the one before ends. Rows of a table
    ``of_operations`` are single operations: a page of many runs does not read them.
    """

    name: str
    row: str
    columns: tuple[Column, ...]
    drawn: tuple[str, ...] = ()
    interval: tuple[()] | tuple[str, str] = ()
    is_gapless: bool = False
    of_operations: bool = False

    def table(self, values: Mapping[str, Sequence[Any]]) -> pa.Table:
        """Return the table of values by column; raises ``KeyError`` for a column without any."""
        import pyarrow as pa

        kinds = {
            "int64": pa.int64(),
            "float64": pa.float64(),
            "bool": pa.bool_(),
            "string": pa.string(),
        }
        schema = pa.schema([(column.name, kinds[column.kind]) for column in self.columns])
        return pa.table({column.name: values[column.name] for column in self.columns}, schema)

    def kind(self, name: str) -> Kind:
        return next(column.kind for column in self.columns if column.name == name)
