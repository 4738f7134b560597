"""Counting what goes through a stage, batch by batch."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.errors import error_code
from interleaved_assets.pipeline.record import Counts


class Tally:
    """Counts over batches of whole samples; a sample is counted once, since no sample is split over batches."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def add(self, table: pa.Table) -> None:
        """Count the rows of ``table``: ``sample_id`` and ``modality``, and bytes and errors where it has them."""
        is_image = pc.equal(table["modality"], "image")
        self._counts["rows"] += table.num_rows
        self._counts["samples"] += pc.count_distinct(table["sample_id"]).as_py()
        self._counts["images"] += pc.sum(is_image, min_count=0).as_py()
        self._counts["texts"] += pc.sum(pc.equal(table["modality"], "text"), min_count=0).as_py()
        if "binary_content" in table.column_names:
            # lengths first: filtering the column itself would copy every image
            sizes = pc.binary_length(table["binary_content"]).filter(is_image)
            self._counts["image_bytes"] += pc.sum(sizes, min_count=0).as_py()
        if "materialize_error" in table.column_names:
            for error in table["materialize_error"].drop_null().to_pylist():
                self.errors[error_code(error)] += 1

    @property
    def counts(self) -> Counts:
        return Counts(**self._counts)
