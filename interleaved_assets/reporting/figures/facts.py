"""The input of the reports: counts, scores and ledger of one shard."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.pipeline.status.status import COMPLETE, Status
from interleaved_assets.reporting.figures.measures import Measure
from interleaved_assets.reporting.wording import text
from interleaved_assets.scoring.images.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.scoring.protocol.values import Values


class ImageKey(NamedTuple):
    """The key of an image within its shard."""

    sample_id: str
    position: int


def image_keys(table: pa.Table) -> list[ImageKey]:
    """Return the key of each row of ``table``, such as a table of scores."""
    return [ImageKey(*key) for key in zip(*(table[name].to_pylist() for name in ImageKey._fields), strict=True)]


def has_key(table: pa.Table, keys: Collection[ImageKey]) -> pa.BooleanArray:
    """Return which rows of ``table`` have one of ``keys``."""
    return pa.array([key in keys for key in image_keys(table)], pa.bool_())


def pictures_by_key(table: pa.Table, pictures: Iterable[bytes | None]) -> dict[ImageKey, bytes]:
    """Return the picture of each row of ``table``; none for an image that could not be decoded."""
    return {key: picture for key, picture in zip(image_keys(table), pictures, strict=True) if picture is not None}


def thumbnails_in(scores: pa.Table | None) -> dict[ImageKey, bytes]:
    """Return the thumbnails in a table of scores."""
    if scores is None or THUMBNAIL_COLUMN not in scores.column_names:
        return {}
    return pictures_by_key(scores, scores[THUMBNAIL_COLUMN].to_pylist())


@dataclass(frozen=True)
class ShardFacts:
    """Counts, scores, ledger and status of one shard.

    Attributes:
        counts_in: counts of the raw shard as normalized.
        counts_out: counts of the output of the stage ``counted_to``.
        counted_to: the last stage in the counts and the ledger. Later stages have not run, or must run again because
            their input rows are not the present output of this stage. None if nothing is counted.
        rows_stage: the stage whose rows were selected: the last one with rows before ``filtered``.
        published: content versions under which the shard is published: that of its raw shard, and that of its final tar
            if it has rows; empty if there is no final tar.
        scores: stored scores, one row per image: ``sample_id``, ``position`` and a column per score, CLIP's joined by
            :func:`~interleaved_assets.selection.positions.join_scores`; None if the shard has not been scored, or its
            scores were deleted.
        ledger: every dropped row (``LEDGER_SCHEMA``), stage by stage; None if no stage that drops has run.
        sample_scores: the values that filters on samples compared, one row per sample: ``sample_id`` and a column per
            filter; None if there are none, or they were deleted.
        documents: stored scores of documents and texts, with the columns that filters compare; None if there are none.
        not_stored: the folders of tables of scores that were deleted.
        problem: the error, in one line, if the shard failed or cannot be read.
    """

    key: str
    counts_in: Counts = field(default_factory=Counts)
    counts_out: Counts = field(default_factory=Counts)
    counted_to: str | None = None
    rows_stage: str = NORMALIZED
    published: tuple[str, ...] = ()
    scores: pa.Table | None = None
    ledger: pa.Table | None = None
    sample_scores: pa.Table | None = None
    documents: pa.Table | None = None
    not_stored: tuple[str, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    status: Status = COMPLETE
    problem: str = ""

    def values_of(self, measure: Measure) -> Values | None:
        """Return the values of ``measure`` in this shard, one per image, text or sample; None if none are stored."""
        if measure.unit in ("document", "text") and self.documents is not None:
            values = measure.values_of_texts(self.documents)
            if values is not None:
                return values
        if self.sample_scores is not None and measure.filter in self.sample_scores.column_names:
            return self.sample_scores[measure.filter].to_numpy()
        return None if self.scores is None else measure.values(self.scores)

    @property
    def rows_unaccounted(self) -> int:
        """Number of rows that were neither kept nor entered in the ledger; 0 if no stage that drops has run."""
        return 0 if self.ledger is None else self.counts_in.rows - self.counts_out.rows - self.ledger.num_rows


def explained_errors(errors: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Return code, meaning and number of rows of each error, the most frequent first."""
    return [(code, ROW_ERROR_CODES.get(code, ""), number) for code, number in text.most_frequent(errors)]


class Tally(NamedTuple):
    """Numbers of samples, images or rows, before and after."""

    name: str
    before: int
    after: int

    @property
    def text(self) -> str:
        """The numbers in words, such as ``16 of 17 samples``."""
        return f"{self.after:,} of {self.before:,} {self.name}"


def tallies(counts_in: Counts, counts_out: Counts) -> list[Tally]:
    """Return the tallies of samples, images and rows."""
    return [Tally(name, getattr(counts_in, name), getattr(counts_out, name)) for name in ("samples", "images", "rows")]


def shard_counts(facts: ShardFacts) -> list[tuple[str, str, str, str, str]]:
    """Return samples, images and rows: in, kept, dropped, and the share kept, as texts."""
    return [
        (name, text.count(before), text.count(after), text.count(before - after), text.share(after, before))
        for name, before, after in tallies(facts.counts_in, facts.counts_out)
    ]
