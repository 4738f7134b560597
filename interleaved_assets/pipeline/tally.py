"""Counting what goes through a stage, batch by batch."""

from collections import Counter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.batches import sample_starts
from interleaved_assets.model.errors import error_code
from interleaved_assets.pipeline.record import Counts

REPEATED_KEYS: Final = "repeated_keys"
REPEATED_SAMPLES: Final = "repeated_samples"
_KEY_COLUMNS: Final = ("sample_id", "position", "modality")


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


class UniqueKeys:
    """Counts keys and ids that come more than once, over batches of whole samples.

    Keys are compared within a batch and sample ids over all of them, which together is over all keys: a key can come
    in two batches only where its sample does. The ids are what is held in memory.
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._repeated: Counter[str] = Counter({REPEATED_KEYS: 0, REPEATED_SAMPLES: 0})

    def add(self, table: pa.Table) -> None:
        """Look at the rows of ``table``: ``sample_id``, ``position``, ``modality``, none of them null."""
        keys = table.select(list(_KEY_COLUMNS))
        distinct = keys.group_by(list(_KEY_COLUMNS)).aggregate([]).num_rows
        self._repeated[REPEATED_KEYS] += keys.num_rows - distinct
        # rows of a sample stand together: an id that comes back after another one is that of a second sample
        runs, before = len(sample_starts(table["sample_id"])), len(self._ids)
        self._ids.update(pc.unique(table["sample_id"]).to_pylist())
        self._repeated[REPEATED_SAMPLES] += runs - (len(self._ids) - before)

    @property
    def counted(self) -> dict[str, int]:
        """Rows whose key came before (``repeated_keys``), and samples whose id did (``repeated_samples``)."""
        return dict(self._repeated)
