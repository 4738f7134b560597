"""Check of columns: names, order, types, and which columns can be null."""

import re
from typing import Final

from interleaved_assets.model.columns import Column
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.record import Record

_SHOWN: Final = 5


def judge_schema(record: Record, basis: Basis) -> Verdict:
    """Check that the columns are those that the stage declares; in a table of rows, passthrough columns may follow."""
    if not record.columns:
        return lacking("columns")
    expected, passthrough = basis.stage.columns(basis.settings), basis.stage.output.kind == "rows"
    found, names = list(record.columns), [column.name for column in expected]
    others = len(found) - len(expected) if passthrough else 0
    surplus = [] if passthrough else [name for name in found if name not in names]
    problems = [
        *(f"{name} is missing" for name in names if name not in found),
        *(f"{name} is not expected" for name in surplus),
        *(problem for column in expected if (problem := _difference(record, column)) is not None),
    ]
    if not problems and found[: len(expected)] != names:
        problems = [f"order is {', '.join(found[: len(expected)])}"]
    summary = f"{len(expected)} columns as expected" + (f", {others} passthrough" if passthrough else "")
    return Verdict(
        not problems,
        "ERROR",
        cut_list(problems, _SHOWN, "; ") or summary,
        {"columns": len(found), "columns_expected": len(expected), "column_problems": len(problems)},
    )


def _difference(record: Record, column: Column) -> str | None:
    dtype = record.columns.get(column.name)
    if dtype is None:
        return None
    if dtype != column.dtype and not _is_wide(column, dtype):
        return f"{column.name} is {dtype}, not {column.dtype}"
    if (column.name in record.required) == column.nullable:
        return f"{column.name} {'may not' if column.name in record.required else 'may'} be null"
    return None


def _is_wide(column: Column, dtype: str) -> bool:
    """Return whether ``dtype`` is the column's type ``fixed_size_list<…>[*]`` with any width, such as a model's."""
    return column.dtype.endswith("[*]") and re.sub(r"\[\d+\]$", "[*]", dtype) == column.dtype


SCHEMA_CANONICAL: Final = ShardCheck(
    "schema_canonical",
    "The table has the columns that its stage and settings name, in their order and with their types; keys cannot be "
    "null. Passthrough columns follow in tables of rows, and nowhere else. Judged from the schema that the file was "
    "written with.",
    judge_schema,
)
