"""What the reports are made from: counts, scores and ledger of one shard."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from interleaved_assets.pipeline.status import COMPLETE, Status
from interleaved_assets.reporting.measures import Measure, Values


class ImageKey(NamedTuple):
    """Which image of a shard."""

    sample_id: str
    position: int


@dataclass(frozen=True)
class ShardFacts:
    """What became of one shard.

    Attributes:
        key: partition key.
        rows_in, samples_in, images_in: counts of the raw shard as normalized.
        rows_kept, samples_kept, images_kept: counts of what came out of the stage ``counted_to``.
        counted_to: the last stage that is in the counts and the ledger; later ones have not run, or are to run again,
            since their rows in are not what this stage has given since. None where nothing is counted.
        scores: stored scores, one row per image: ``sample_id``, ``position`` and a column per score, CLIP's joined by
            :func:`~interleaved_assets.selection.positions.join_scores`; None where the shard has not been scored,
            or its scores were deleted.
        ledger: every dropped row (``LEDGER_SCHEMA``), those of several stages one after the other; None where no stage
            that drops has run.
        values: what filters judged that is in no scores table, by the filter's name: float64, NaN where missing. For
            the image-to-text ratio, one per sample from :func:`~interleaved_assets.selection.what_if.judged_values`.
        not_stored: the tables of scores that were deleted since, by the folder they lay in.
        errors: rows with an error, by code.
        status: whether the shard is current, and why not.
        problem: what cannot be read of it, in one line.
    """

    key: str
    rows_in: int = 0
    samples_in: int = 0
    images_in: int = 0
    rows_kept: int = 0
    samples_kept: int = 0
    images_kept: int = 0
    counted_to: str | None = None
    scores: pa.Table | None = None
    ledger: pa.Table | None = None
    values: Mapping[str, Values] = field(default_factory=dict)
    not_stored: tuple[str, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    status: Status = COMPLETE
    problem: str = ""

    def values_of(self, measure: Measure) -> Values | None:
        """What ``measure`` says of this shard: one value per image or sample; None where nothing is stored."""
        if measure.filter in self.values:
            return self.values[measure.filter]
        return None if self.scores is None else measure.values(self.scores)

    @property
    def rows_unaccounted(self) -> int:
        """Rows that were neither kept nor entered in the ledger; 0 where nothing has dropped rows yet."""
        return 0 if self.ledger is None else self.rows_in - self.rows_kept - self.ledger.num_rows
