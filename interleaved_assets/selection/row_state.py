"""The rows of a shard while filters are applied, with the reason for each dropped row: the source of the ledger."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.columns import ROW_KEY
from interleaved_assets.model.errors import OptionError, error_code
from interleaved_assets.model.ledger import SAMPLE_DROPPED, ledger_of
from interleaved_assets.model.row_checks import check_rows
from interleaved_assets.scoring.protocol.filter import SampleCounts
from interleaved_assets.scoring.protocol.values import Values
from interleaved_assets.selection.positions import with_keys

Rows = NDArray[np.int64]
"""Row numbers."""


class RowState:
    """The rows that are kept so far, and the reason for each dropped row. Arrays have one element per row.

    Attributes:
        alive: whether the row is kept so far.
        sample: number of the row's sample, from 0 in order of first appearance.
        sample_ids: the id of each sample, by that number; not one per row.
        position: the row's position.
        is_text: whether the row is a text.
        images: numbers of the image rows, in row order.
    """

    def __init__(self, rows: pa.Table) -> None:
        check_rows(rows, (), "rows")
        rows = with_keys(rows, "rows")
        self._rows = rows
        count = rows.num_rows
        samples = rows["sample_id"].combine_chunks().dictionary_encode()
        self.sample: Rows = samples.indices.to_numpy().astype(np.int64)
        self.sample_ids: pa.Array = samples.dictionary
        self.position: NDArray[np.int32] = rows["position"].to_numpy()
        self._is_image = _equals(rows["modality"], "image")
        self.is_text = _equals(rows["modality"], "text")
        self._is_content = ~_equals(rows["modality"], "metadata")
        self.images: Rows = np.flatnonzero(self._is_image)
        self.alive = np.ones(count, dtype=bool)
        self._reasons: dict[str, int] = {}
        self._reason = np.full(count, -1, dtype=np.int32)
        self._measured = np.full(count, np.nan)
        self._threshold = np.full(count, np.nan)
        self._detail = np.full(count, -1, dtype=np.int64)
        self._details: list[pa.Array] = []
        self._details_used = 0
        self._unscored: dict[int, str] = {}

    def counts(self) -> SampleCounts:
        """Count the images, texts and words left in each sample."""
        if "words" not in self._rows.column_names:
            raise OptionError("rows: no column words; it is count_words() of text_content")
        words = pc.fill_null(self._rows["words"], 0).to_numpy()
        texts = self.alive & self.is_text
        return SampleCounts(
            images=self._count(self.alive & self._is_image),
            texts=self._count(texts),
            words=np.bincount(self.sample[texts], weights=words[texts], minlength=len(self.sample_ids)).astype(
                np.int64
            ),
        )

    def with_content(self) -> NDArray[np.bool_]:
        """Return for each sample whether rows other than metadata are left."""
        return self._count(self.alive & self._is_content) > 0

    def key_of(self, row: int) -> tuple[str, int]:
        """Return the sample id and position of a row."""
        return self._rows["sample_id"][row].as_py(), int(self.position[row])

    def keys_of(self, rows: Rows) -> pa.Table:
        """Return the sample ids and positions of rows."""
        return self._rows.select(["sample_id", "position"]).take(pa.array(rows))

    def first_rows(self) -> Rows:
        """Return the number of the first row of each sample."""
        first = np.full(len(self.sample_ids), len(self.sample), dtype=np.int64)
        np.minimum.at(first, self.sample, np.arange(len(self.sample)))
        return first

    def rows_of_samples(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return the rows that are left of the samples of ``rows``, and the place in ``rows`` of each one's sample."""
        place = np.full(len(self.sample_ids), -1, dtype=np.int64)
        place[self.sample[rows]] = np.arange(len(rows))
        left = np.flatnonzero(self.alive & (place[self.sample] >= 0))
        return left, place[self.sample[left]]

    def drop(
        self,
        rows: Rows,
        reason: str,
        measured: Values | None = None,
        threshold: float | None = None,
        details: pa.Array | None = None,
    ) -> None:
        """Drop rows, with the value that a filter measured for each."""
        self._drop(rows, np.full(len(rows), self._reason_number(reason)), details)
        if measured is not None:
            self._measured[rows] = measured
        if threshold is not None:
            self._threshold[rows] = threshold

    def drop_unscored(self, rows: Rows, errors: pa.Array) -> None:
        """Drop rows without a score; ``errors`` are texts ``"<code>: <detail>"``, the code is the reason."""
        encoded = errors.dictionary_encode()
        numbers = np.array([self._reason_number(error_code(text)) for text in encoded.dictionary.to_pylist()], np.int32)
        self._drop(rows, numbers[encoded.indices.to_numpy()], errors)

    def keep_unscored(self, rows: Rows, codes: Sequence[str]) -> None:
        """Record rows kept without a score; if several filters lack one, the code of the first filter counts."""
        for row, code in zip(rows.tolist(), codes, strict=True):
            self._unscored.setdefault(row, code)

    def kept_unscored(self) -> dict[str, int]:
        """Count the rows kept without a score, by error code."""
        return dict(Counter(code for row, code in self._unscored.items() if self.alive[row]))

    def drop_samples_of(self, causes: Rows, *, kind: str = "image") -> None:
        """Drop the remaining rows of the samples of the dropped rows ``causes``, of which ``kind`` is the name."""
        self._drop_with(causes, f"dropped with its sample, for the {kind} at position ")

    def drop_emptied(self, dropped: Rows, *, kind: str = "image") -> None:
        """Drop the remaining rows of the samples that lost their last content with the rows ``dropped``.

        ``kind`` names these rows in the ledger's details.
        """
        emptied = ~self.with_content()
        self._drop_with(dropped[emptied[self.sample[dropped]]], f"no content is left after the {kind} at position ")

    def ledger(self, stage: str) -> pa.Table:
        """Return the ledger of all dropped rows, in row order."""
        dropped = np.flatnonzero(~self.alive)
        names = pa.array(list(self._reasons), pa.string())
        details = pa.chunked_array(self._details, pa.string())
        at = self._detail[dropped]
        return ledger_of(
            self._rows.select(ROW_KEY).take(dropped),
            stage,
            names.take(pa.array(self._reason[dropped])),
            measured=_null_for_nan(self._measured[dropped]),
            threshold=_null_for_nan(self._threshold[dropped]),
            details=details.take(pa.array(at, mask=at < 0)).combine_chunks(),
        )

    def _drop(self, rows: Rows, reasons: NDArray[np.int32], details: pa.Array | None) -> None:
        self.alive[rows] = False
        self._reason[rows] = reasons
        if details is not None:
            self._detail[rows] = self._details_used + np.arange(len(rows))
            self._details.append(details)
            self._details_used += len(rows)

    def _drop_with(self, causes: Rows, because: str) -> None:
        """Drop the remaining rows of the samples of ``causes``; the detail names the cause with the lowest position."""
        # the last of several assignments to a sample counts, so the lowest position is assigned last
        causes = causes[np.argsort(-self.position[causes], kind="stable")]
        cause = np.full(len(self.sample_ids), -1, dtype=np.int64)
        cause[self.sample[causes]] = causes
        cause_of_row = cause[self.sample]
        rows = np.flatnonzero(self.alive & (cause_of_row >= 0))
        because_of = cause_of_row[rows]
        reasons = pa.array(list(self._reasons), pa.string()).take(pa.array(self._reason[because_of]))
        positions = pc.cast(pa.array(self.position[because_of]), pa.string())
        details = pc.binary_join_element_wise(pa.scalar(because), positions, pa.scalar(": "), reasons, "")
        self._drop(rows, np.full(len(rows), self._reason_number(SAMPLE_DROPPED)), details)

    def _reason_number(self, reason: str) -> int:
        return self._reasons.setdefault(reason, len(self._reasons))

    def _count(self, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self.sample[rows], minlength=len(self.sample_ids))


def _equals(column: pa.ChunkedArray, value: str) -> NDArray[np.bool_]:
    return np.asarray(pc.equal(column, value).to_numpy())


def _null_for_nan(values: Values) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))
