"""Documents of a shard for reading: texts and images in order, each with its scores.

A dropped row has its stage, reason, measured value and threshold.
"""

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.blocks import IMAGE_URL
from interleaved_assets.model.cells import row_values
from interleaved_assets.model.columns import METADATA_POSITION, RESERVED_COLUMNS
from interleaved_assets.model.digits import bound, measured
from interleaved_assets.model.ledger import SAMPLE_DROPPED, empty_ledger
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.lineage.contents import RowKey, row_keys
from interleaved_assets.pipeline.lineage.images import image_name
from interleaved_assets.reporting.figures.facts import ImageKey, image_keys
from interleaved_assets.reporting.figures.measures import CLIP_TEXT, SIZE_COLUMNS, Measure
from interleaved_assets.reporting.wording.prose import escaped_bytes
from interleaved_assets.rewriting.changes import CHANGED, change_text
from interleaved_assets.scoring.protocol.filter import sign_of_kept
from interleaved_assets.scoring.protocol.values import Values

LONGEST_FIELDS: Final = 3000
"""Most characters of a document's fields on a page."""
_Key = TypeVar("_Key")


class Drop(NamedTuple):
    """The reason why a row was dropped, from its ledger."""

    stage: str
    reason: str
    measured: float | None
    rule: str
    """The bound that the row was compared with, such as ``keep ≥ 100``; empty if there was none."""
    detail: str
    """The stored error, or the row for which the sample was dropped; empty if the ledger has none."""
    threshold: float | None


class Score(NamedTuple):
    """One score of an image, a text or a document."""

    name: str
    """Name of the filter that judges it."""
    label: str
    value: float
    """NaN for a string."""
    passes: bool | None
    """True if the bounds in force keep it; None without bounds."""
    rule: str
    said: str
    """The value as text, with the digits that tell it from the bounds; also a string, such as a language."""


@dataclass(frozen=True)
class ShownRow:
    """A text, an image, or another row of a document.

    Attributes:
        text: the text of a text row; also of modalities other than image, if they have one.
        name: for an image, the member, or the file, that has its bytes.
        size: for an image, its size, such as ``400×300``; empty if it is not known.
        picture: for an image, a small JPEG or WebP; None if there is none.
        nearest: for an image, the text of its document that CLIP found nearest.
        cut: number of characters of the whole text if ``text`` is only its beginning, else 0.
        drop: why it was dropped; None for a kept row.
        error: its stored error, if the ledger does not have it.
        changes: what functions changed in its text, each in words.
    """

    position: int
    modality: str
    text: str | None = None
    cut: int = 0
    name: str = ""
    size: str = ""
    picture: bytes | None = None
    scores: tuple[Score, ...] = ()
    nearest: str | None = None
    drop: Drop | None = None
    error: str | None = None
    changes: tuple[str, ...] = ()

    @cached_property
    def text_bytes(self) -> int:
        """Bytes that the text takes in the page; kept, since fitting a page adds up its rows up to seven times."""
        return escaped_bytes(self.text or "")


@dataclass(frozen=True)
class ShownDocument:
    """A sample: its rows by position, and its other fields.

    Attributes:
        items: its rows except the metadata row.
        fields: the passthrough fields of its metadata row, as JSON values by name.
        measured: its stored scores by column: numbers and strings.
        drop: why its metadata row was dropped; None if it was kept.
        left_out: number of rows that are not among ``items`` because the page would be too large.
    """

    sample_id: str
    items: tuple[ShownRow, ...]
    fields: Mapping[str, Any]
    scores: tuple[Score, ...] = ()
    drop: Drop | None = None
    left_out: int = 0
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured_text(self) -> str:
        """The stored scores, one a line."""
        return "\n".join(f"{name} = {value}" for name, value in self.measured.items())

    @property
    def fields_text(self) -> str:
        """The fields as indented JSON; a long text is cut to :data:`LONGEST_FIELDS` characters."""
        shown = json.dumps(self.fields, ensure_ascii=False, indent=1) if self.fields else ""
        whole = f"{len(shown):,} characters"
        return shown if len(shown) <= LONGEST_FIELDS else f"{shown[:LONGEST_FIELDS]}… ({whole})"

    @property
    def reasons(self) -> Counter[str]:
        """Dropped rows by reason, the metadata row included."""
        found = Counter(item.drop.reason for item in self.items if item.drop)
        if self.drop:
            found[self.drop.reason] += 1
        return found

    @property
    def is_gone(self) -> bool:
        """True if all rows of the document were dropped."""
        rows = [item.drop for item in self.items]
        rows += [self.drop] if self.fields or self.drop else []
        return bool(rows) and all(rows)

    @property
    def common_drop(self) -> Drop | None:
        """The one reason for which all rows were dropped; None if there are kept rows or several reasons."""
        drops = {item.drop for item in self.items} | ({self.drop} if self.fields or self.drop else set())
        return drops.pop() if len(drops) == 1 else None

    def extremes(self) -> dict[str, tuple[float, float]]:
        """Return the smallest and largest value of each score.

        Infinity, which JSON does not have, becomes the largest float.
        """
        values: dict[str, list[float]] = defaultdict(list)
        for score in (*self.scores, *(score for item in self.items for score in item.scores)):
            if not math.isnan(score.value):
                values[score.name].append(score.value)
        largest = sys.float_info.max
        return {name: (max(min(of_name), -largest), min(max(of_name), largest)) for name, of_name in values.items()}


def build_documents(
    sample_ids: Sequence[str],
    rows: pa.Table,
    pictures: Mapping[ImageKey, bytes],
    measures: Sequence[Measure] = (),
    *,
    scores: pa.Table | None = None,
    ledger: pa.Table | None = None,
    sample_scores: pa.Table | None = None,
    changes: pa.Table | None = None,
    contents: Mapping[RowKey, str] | None = None,
    of_texts: Mapping[ImageKey, Sequence[Score]] | None = None,
    measured: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[ShownDocument]:
    """Return the documents ``sample_ids``, in that order; a document without ``rows`` has those of the ledger.

    Args:
        rows: at least their ``sample_id``, ``position`` and ``modality``; their bytes are not needed.
        scores: one row per image, with ``sample_id``, ``position`` and a column per score.
        ledger: rows of ``LEDGER_SCHEMA``, with positions as in ``rows``.
        sample_scores: one row per sample, with ``sample_id`` and a column per filter.
        of_texts: the scores of documents, whose position is -1, and of texts.
        measured: the stored scores of each document, by column.
        changes: rows of ``CHANGES_SCHEMA``; lines of dropped rows are not shown, since the ledger has them.
        contents: texts of dropped texts that are not among ``rows``.
    """
    ledger, scores = (
        empty_ledger() if table is None else rows_of_samples(table, sample_ids) for table in (ledger, scores)
    )
    drops = _drops_by_row(ledger, measures)
    scored = scores_by_image(scores, measures)
    sizes, nearest, errors = about_images(scores)
    of_samples = _scores_by_sample(sample_scores, measures)
    changed = _changes_by_row(changes, sample_ids)
    of_texts, measured = of_texts or {}, measured or {}
    content = _content_rows(rows)
    texts = {key: row["text_content"] for key, row in content if row["text_content"] is not None}
    items: dict[str, list[ShownRow]] = defaultdict(list)
    shown: set[RowKey] = set()
    for key, row in content:
        shown.add(key)
        image, drop = ImageKey(key.sample_id, key.position), drops.get(key)
        is_image = key.modality == "image"
        error = row["materialize_error"] or (errors.get(image) if is_image else None)
        compared = nearest.get(image) if is_image else None
        items[key.sample_id].append(
            ShownRow(
                key.position,
                key.modality,
                row["text_content"],
                name=image_name(row["source_ref"], row[IMAGE_URL], row["page"]) if is_image else "",
                size=sizes.get(image, "") if is_image else "",
                picture=pictures.get(image) if is_image else None,
                scores=tuple(scored.get(image, ()) if is_image else of_texts.get(image, ())),
                nearest=texts.get(RowKey(key.sample_id, compared, "text")) if compared is not None else None,
                drop=drop,
                error=None if drop and drop.detail == error else error,
                changes=tuple(changed.get(key, ())),
            )
        )
    for key, drop in drops.items():
        # rows dropped before any output was written are only in the ledger
        if key not in shown and key.position != METADATA_POSITION:
            gone = (contents or {}).get(key) if key.modality == "text" else None
            items[key.sample_id].append(ShownRow(key.position, key.modality, gone, drop=drop))
    fields = dict(_fields(rows))
    return [
        ShownDocument(
            sample_id,
            tuple(sorted(items[sample_id], key=lambda item: item.position)),
            fields.get(sample_id, {}),
            (*of_texts.get(ImageKey(sample_id, METADATA_POSITION), ()), *of_samples.get(sample_id, ())),
            drops.get(RowKey(sample_id, METADATA_POSITION, "metadata")),
            measured=measured.get(sample_id, {}),
        )
        for sample_id in sample_ids
    ]


def sortable_scores(documents: Iterable[ShownDocument]) -> dict[str, str]:
    """Return the labels of all scores that at least one document has, by the name of their filter."""
    found: dict[str, str] = {}
    for document in documents:
        found |= {score.name: score.label for score in document.scores if not math.isnan(score.value)}
        for item in document.items:
            of = "" if item.modality == "image" else f" of a {item.modality}"
            found |= {score.name: f"{score.label}{of}" for score in item.scores if not math.isnan(score.value)}
    return found


def _content_rows(rows: pa.Table) -> list[tuple[RowKey, dict[str, Any]]]:
    content = rows.filter(pc.not_equal(rows["modality"], "metadata"))
    columns = {
        name: content[name].to_pylist() if name in content.column_names else [None] * content.num_rows
        for name in ("text_content", "source_ref", "materialize_error", IMAGE_URL, "page")
    }
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return list(zip(row_keys(content), values, strict=True))


def _fields(rows: pa.Table) -> Iterable[tuple[str, dict[str, Any]]]:
    metadata = rows.filter(pc.equal(rows["modality"], "metadata"))
    metadata = metadata.drop_columns(
        [name for name in metadata.column_names if name in RESERVED_COLUMNS - {"sample_id"}]
    )
    for row in row_values(metadata):
        sample_id = row.pop("sample_id")
        # values of types that JSON does not have, such as dates, become text
        plain = json.loads(json.dumps(row, default=str))
        yield sample_id, {name: value for name, value in plain.items() if value is not None}


def rows_of_samples(table: pa.Table, sample_ids: Collection[str]) -> pa.Table:
    """Return the rows of these samples."""
    return filter_rows(table, pc.is_in(table["sample_id"].cast(pa.string()), pa.array(sample_ids, pa.string())))


def _drops_by_row(ledger: pa.Table, measures: Sequence[Measure]) -> dict[RowKey, Drop]:
    open_maximum = {measure.filter for measure in measures if measure.judge.open_maximum}
    return {
        key: Drop(
            row["stage"],
            row["reason"],
            row["measured"],
            _rule(row, open_maximum),
            row["detail"] or "",
            row["threshold"],
        )
        for key, row in zip(row_keys(ledger), ledger.to_pylist(), strict=True)
    }


def _changes_by_row(changes: pa.Table | None, sample_ids: Collection[str]) -> dict[RowKey, list[str]]:
    """Return what functions changed in the texts of these samples, in words and in the order of the functions."""
    found: dict[RowKey, list[str]] = defaultdict(list)
    for line in rows_of_samples(changes, sample_ids).to_pylist() if changes is not None else ():
        if line["kind"] == CHANGED:
            found[RowKey(line["sample_id"], line["position"], "text")].append(change_text(line))
    return found


def _rule(drop: Mapping[str, Any], open_maximum: set[str]) -> str:
    name, _, side = drop["reason"].rpartition("_")
    if drop["threshold"] is None or drop["reason"] == SAMPLE_DROPPED:
        return ""
    sign = sign_of_kept("minimum" if side == "below" else "maximum", open_maximum=name in open_maximum)
    return f"keep {sign} {bound(drop['threshold'])}"


def scores_by_image(scores: pa.Table, measures: Sequence[Measure]) -> dict[ImageKey, list[Score]]:
    """Return the scores of each image, without unbounded ones that follow from its size."""
    found: dict[ImageKey, list[Score]] = defaultdict(list)
    keys = image_keys(scores)
    for measure in measures:
        values = measure.values(scores)
        if values is not None and (measure.has_bounds or not set(measure.columns) <= SIZE_COLUMNS):
            add_scores(found, measure, keys, values)
    return found


def _scores_by_sample(scores: pa.Table | None, measures: Sequence[Measure]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = defaultdict(list)
    for measure in measures:
        if scores is not None and measure.filter in scores.column_names:
            add_scores(found, measure, scores["sample_id"].to_pylist(), scores[measure.filter].to_numpy())
    return found


def add_scores(found: dict[_Key, list[Score]], measure: Measure, keys: Sequence[_Key], values: Values) -> None:
    """Add the values of a measure to the scores by key; NaN is no score."""
    for key, value, kept in zip(keys, values.tolist(), measure.keeps(values).tolist(), strict=True):
        if not math.isnan(value):
            said = measured(value, measure.minimum, measure.maximum)
            rule = f"{measure.shown.label}: {said}, {measure.rule}"
            passes = kept if measure.has_bounds else None
            found[key].append(Score(measure.filter, measure.shown.short, value, passes, rule, said))


def about_images(
    scores: pa.Table,
) -> tuple[dict[ImageKey, str], dict[ImageKey, int | None], dict[ImageKey, str | None]]:
    """Return, by image, its size in pixels, the position of the text that CLIP found nearest, and its error."""
    keys, rows = image_keys(scores), scores.num_rows

    def column(name: str) -> list[Any]:
        return scores[name].to_pylist() if name in scores.column_names else [None] * rows

    sizes = {
        key: f"{width}×{height}"
        for key, width, height in zip(keys, column("width"), column("height"), strict=True)
        if width and height
    }
    nearest = dict(zip(keys, column(CLIP_TEXT), strict=True))
    both = zip(column("score_error"), column("clip_error"), strict=True)
    errors = {key: score_error or clip_error for key, (score_error, clip_error) in zip(keys, both, strict=True)}
    return sizes, nearest, errors
