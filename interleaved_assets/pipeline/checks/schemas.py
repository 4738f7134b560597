"""Checks of columns: names, order, types, and which columns can be null."""

import re
from collections.abc import Sequence
from typing import Final

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, Column
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.scoring.clip.columns import clip_columns
from interleaved_assets.scoring.protocol.registry import score_columns
from interleaved_assets.scoring.scores.clip import EMBEDDING

_NAME: Final = "schema_canonical"
_SHOWN: Final = 5


def judge_row_schema(record: Record, _: Basis) -> Verdict:
    """Check that the reserved columns come first, as in the row model. Passthrough columns of any type may follow."""
    return _judge(record, INTERLEAVED_COLUMNS, passthrough=True)


def judge_image_schema(record: Record, basis: Basis) -> Verdict:
    return _judge(record, score_columns(basis.settings.scoring), passthrough=False)


def judge_document_schema(record: Record, basis: Basis) -> Verdict:
    return _judge(record, score_columns(basis.settings.documents), passthrough=False)


def judge_clip_schema(record: Record, basis: Basis) -> Verdict:
    """Check that the columns are those that the settings name.

    The width of embeddings depends on the model and is not checked.
    """
    width = re.search(r"\[\d+\]$", record.columns.get(EMBEDDING, ""))
    expected = [
        column._replace(dtype=f"fixed_size_{column.dtype}{width[0] if width else '[1]'}")
        if column.name == EMBEDDING
        else column
        for column in clip_columns(basis.settings.clip)
    ]
    return _judge(record, expected, passthrough=False)


def _judge(record: Record, expected: Sequence[Column], *, passthrough: bool) -> Verdict:
    if not record.columns:
        return lacking("columns")
    found, names = list(record.columns), [column.name for column in expected]
    others = len(found) - len(expected) if passthrough else 0
    problems = [
        *_missing_and_surplus(found, names, passthrough=passthrough),
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


def _missing_and_surplus(found: list[str], expected: list[str], *, passthrough: bool) -> list[str]:
    missing = [name for name in expected if name not in found]
    surplus = [] if passthrough else [name for name in found if name not in expected]
    return [f"{name} is missing" for name in missing] + [f"{name} is not expected" for name in surplus]


def _difference(record: Record, column: Column) -> str | None:
    dtype = record.columns.get(column.name)
    if dtype is None:
        return None
    if dtype != column.dtype:
        return f"{column.name} is {dtype}, not {column.dtype}"
    if (column.name in record.required) == column.nullable:
        return f"{column.name} {'may not' if column.name in record.required else 'may'} be null"
    return None


_EXACTLY: Final = "Judged from the schema that the file was written with."
ROW_SCHEMA: Final = ShardCheck(
    _NAME,
    "The reserved columns of the row model come first, in their order, with their types, and sample_id, position and "
    f"modality cannot be null; passthrough columns follow. {_EXACTLY}",
    judge_row_schema,
)
IMAGE_SCORE_SCHEMA: Final = ShardCheck(
    _NAME,
    "The score table has exactly the columns of the scorers in scoring.scorers, in their order and with their types; "
    f"sample_id and position cannot be null. {_EXACTLY}",
    judge_image_schema,
)
DOCUMENT_SCORE_SCHEMA: Final = ShardCheck(
    _NAME,
    "The score table has exactly the columns of the scorers in documents.scorers, in their order and with their types; "
    f"sample_id and position cannot be null. {_EXACTLY}",
    judge_document_schema,
)
CLIP_SCORE_SCHEMA: Final = ShardCheck(
    _NAME,
    "The score table has exactly the columns that [clip] asks for, one for each head and the embedding where it is "
    f"kept, in their order and with their types; sample_id and position cannot be null. {_EXACTLY}",
    judge_clip_schema,
)
