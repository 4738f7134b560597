"""Checks of columns: names, order, types, and which columns can be null."""

import re
from typing import Final

import pyarrow as pa

from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.checks.verdict import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.record import Record
from interleaved_assets.scoring.clip.samples import clip_schema
from interleaved_assets.scoring.registry import scores_schema

_NAME: Final = "schema_canonical"
_SHOWN: Final = 5


def judge_row_schema(record: Record, _: Basis) -> Verdict:
    """The reserved columns come first, as in the row model; passthrough columns of any type follow."""
    return _judge(record, INTERLEAVED_SCHEMA, passthrough=True)


def judge_image_schema(record: Record, basis: Basis) -> Verdict:
    return _judge(record, scores_schema(basis.settings.scoring), passthrough=False)


def judge_clip_schema(record: Record, basis: Basis) -> Verdict:
    """The columns are those that the settings name; the width of embeddings depends on the model and is not checked."""
    width = re.search(r"\[(\d+)\]$", record.columns.get("embedding", ""))
    expected = clip_schema(basis.settings.clip, int(width[1]) if width else 1)
    return _judge(record, expected, passthrough=False)


def _judge(record: Record, expected: pa.Schema, *, passthrough: bool) -> Verdict:
    if not record.columns:
        return lacking("columns")
    found = list(record.columns)
    others = len(found) - len(expected) if passthrough else 0
    problems = [
        *_missing_and_surplus(found, expected, passthrough=passthrough),
        *(problem for field in expected if (problem := _difference(record, field)) is not None),
    ]
    if not problems and found[: len(expected)] != expected.names:
        problems = [f"order is {', '.join(found[: len(expected)])}"]
    summary = f"{len(expected)} columns as expected" + (f", {others} passthrough" if passthrough else "")
    return Verdict(
        not problems,
        "ERROR",
        cut_list(problems, _SHOWN, "; ") or summary,
        {"columns": len(found), "columns_expected": len(expected), "column_problems": len(problems)},
    )


def _missing_and_surplus(found: list[str], expected: pa.Schema, *, passthrough: bool) -> list[str]:
    missing = [name for name in expected.names if name not in found]
    surplus = [] if passthrough else [name for name in found if name not in expected.names]
    return [f"{name} is missing" for name in missing] + [f"{name} is not expected" for name in surplus]


def _difference(record: Record, field: pa.Field) -> str | None:
    dtype = record.columns.get(field.name)
    if dtype is None:
        return None
    if dtype != str(field.type):
        return f"{field.name} is {dtype}, not {field.type}"
    if (field.name in record.required) == field.nullable:
        return f"{field.name} {'may not' if field.name in record.required else 'may'} be null"
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
CLIP_SCORE_SCHEMA: Final = ShardCheck(
    _NAME,
    "The score table has exactly the columns that [clip] asks for, one for each head and the embedding where it is "
    f"kept, in their order and with their types; sample_id and position cannot be null. {_EXACTLY}",
    judge_clip_schema,
)
