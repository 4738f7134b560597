"""Lineage of columns: the input columns that each column of a stage's output is made from."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from interleaved_assets.io.tar.layout import TEXT_EXTENSION, json_field
from interleaved_assets.model.columns import IMAGE_KEY
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.stages.names import CLIP_SCORES, FILTERED, IMAGE_SCORES, NORMALIZED
from interleaved_assets.scoring.protocol.registry import ERROR_COLUMN, score_columns
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.selection.filters import ImageFilter, find_filter
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings import ReadingSettings

RAW_KEY: Final = "__key__"
"""Name that webdataset gives to the common part of the member names of a sample."""


class SourceColumn(NamedTuple):
    """A column of an input; for raw shards, a field of the documents' JSON."""

    stage: str
    column: str


Lineage = Mapping[str, tuple[SourceColumn, ...]]


def column_lineage(stage: str, columns: Iterable[str], reading: ReadingSettings) -> Lineage:
    """Return, for each of ``columns`` of the output of ``stage``, the input columns that its values are made from.

    The result is empty if the output is not a table, and for stages that are not part of this package.
    """
    sources: Mapping[str, Callable[[str], tuple[SourceColumn, ...]]] = {
        NORMALIZED: lambda name: _of(RAW_SHARDS, *_json_fields(name, reading)),
        IMAGE_SCORES: lambda name: _of(NORMALIZED, *_scored(name)),
        CLIP_SCORES: lambda name: _of(NORMALIZED, *_scored_by_clip(name)),
        FILTERED: lambda name: _of(NORMALIZED, name),
    }
    return {name: sources[stage](name) for name in columns} if stage in sources else {}


def deciding_columns(
    stage: str, inputs: Collection[str], scoring: ScoringSettings, selection: SelectionSettings
) -> tuple[SourceColumn, ...]:
    """Return the columns that decide which rows ``filtered`` keeps, by filter; none for other stages."""
    found: list[SourceColumn] = []
    measured = [column.name for column in score_columns(scoring)]
    for name in selection.active_filters() if stage == FILTERED else ():
        judge = find_filter(name)
        if not isinstance(judge, ImageFilter):
            found += _of(NORMALIZED, "modality", "text_content")
        else:
            for column in judge.columns:
                source = IMAGE_SCORES if column in measured else CLIP_SCORES
                # a filter is not applied if its scores come from a stage that is turned off
                found += _of(source, column) if source in inputs else ()
    return tuple(dict.fromkeys(found))


def _of(stage: str, *columns: str) -> tuple[SourceColumn, ...]:
    return tuple(SourceColumn(stage, column) for column in columns)


def _json_fields(column: str, reading: ReadingSettings) -> tuple[str, ...]:
    """Return the JSON fields that a column of the row model is read from; none for columns that the reader adds."""
    images: tuple[str, ...] = (RAW_KEY,)
    texts: tuple[str, ...] = (TEXT_EXTENSION.removeprefix("."),)
    if reading.layout == "interleaved":
        images = (reading.images_field, *([reading.image_member_field] if reading.image_member_field else []))
        texts = (reading.texts_field,)
    match column:
        case "sample_id":
            return (reading.sample_id_field or RAW_KEY,)
        case "position" | "modality":
            return (*texts, *images[:1])
        case "text_content":
            return texts
        case "content_type" | "binary_content" | "source_ref" | "materialize_error":
            return images
        case _:
            field = json_field(column)
            return () if field is None else (field,)


def _scored(column: str) -> tuple[str, ...]:
    if column in IMAGE_KEY:
        return (column,)
    return ("binary_content", "materialize_error") if column == ERROR_COLUMN else ("binary_content",)


def _scored_by_clip(column: str) -> tuple[str, ...]:
    match column:
        case "clip_score" | "clip_text_position":
            return ("binary_content", "text_content")
        case "clip_error":
            return ("binary_content", "text_content", "materialize_error")
        case _:
            return (column,) if column in IMAGE_KEY else ("binary_content",)
