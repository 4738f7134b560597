"""Write the rows that stay, or scores, and count them: the error policy, balance, losses, range of score columns.

The names are those of the counts in a record besides its rows, from which checks draw their conclusions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import sample_starts
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.rows.raw_versions import image_bytes
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.model.columns import IMAGE_KEY, ROW_KEY
from interleaved_assets.model.errors import NOT_COMPARED, NOT_IN_SOURCE, ROW_ERROR_CODES, IncompleteShard, error_code
from interleaved_assets.model.ledger import check_balance, drop_reasons, empty_ledger
from interleaved_assets.pipeline.run.record import Counts, Extent, Facts, OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Work

SAMPLES_WITH_CONTENT: Final = "samples_with_content"
CONTENT_BYTES: Final = "content_bytes"
UNREFERENCED: Final = "unreferenced_members"
UNREFERENCED_BYTES: Final = "unreferenced_bytes"
UNREFERENCED_IMAGES: Final = "unreferenced_images"
IMAGE_MEMBERS: Final = "image_members"
"""Number of images that a shard has, named by a document or not; for the stages after ``normalized``."""
REPEATED_KEYS: Final = "repeated_keys"
REPEATED_SAMPLES: Final = "repeated_samples"
UNEXPLAINED: Final = "rows_without_score_or_reason"
SAMPLES_READ: Final = "samples_read_back"
IMAGES_READ: Final = "images_read_back"
BYTES_READ: Final = "bytes_read_back"

_ERRORS: Final = sorted(ROW_ERROR_CODES.keys() - {*NOT_COMPARED, *NOT_IN_SOURCE})

Choose = Callable[[pa.Table], tuple[pa.Table, pa.Table]]
"""Returns the rows of whole samples that stay, and the ledger of the others."""


def count_errors(errors: pa.ChunkedArray) -> Counter[str]:
    """Count each error code in a column of errors, in the order of their first rows.

    Nulls and the codes in :data:`.NOT_IN_SOURCE` do not count.
    """
    counts = Counter(map(error_code, errors.drop_null().to_pylist()))
    return Counter({code: count for code, count in counts.items() if code not in NOT_IN_SOURCE})


class RowCounter:
    """Counts rows over batches. Every batch holds whole samples, so that each sample is counted once."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def add(self, table: pa.Table) -> None:
        """Count the rows of ``table`` by ``sample_id`` and ``modality``, and image bytes and errors if it has them."""
        is_image = pc.equal(table["modality"], "image")
        self._counts["rows"] += table.num_rows
        self._counts["samples"] += pc.count_distinct(table["sample_id"]).as_py()
        self._counts["images"] += pc.sum(is_image, min_count=0).as_py()
        self._counts["texts"] += pc.sum(pc.equal(table["modality"], "text"), min_count=0).as_py()
        if "binary_content" in table.column_names:
            # the lengths are filtered, because filtering the column itself would copy every image
            self._counts["image_bytes"] += pc.sum(image_bytes(table).filter(is_image), min_count=0).as_py()
        if "materialize_error" in table.column_names:
            self.errors.update(count_errors(table["materialize_error"]))

    @property
    def counts(self) -> Counts:
        return Counts(**self._counts)


class UniqueKeys:
    """Counts repeated row keys and sample ids over batches of whole samples.

    Keys are compared within a batch and sample ids over all batches. Together this covers all keys, because a key can
    be in two batches only if its sample id is. All sample ids are held in memory.
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._repeated: Counter[str] = Counter({REPEATED_KEYS: 0, REPEATED_SAMPLES: 0})

    def add(self, table: pa.Table) -> None:
        """Count repetitions in ``table``, whose columns ``sample_id``, ``position`` and ``modality`` have no nulls."""
        keys = table.select(ROW_KEY)
        distinct = keys.group_by(list(ROW_KEY)).aggregate([]).num_rows
        self._repeated[REPEATED_KEYS] += keys.num_rows - distinct
        # the rows of a sample are consecutive, so an id that returns after another id belongs to a second sample
        runs, before = len(sample_starts(table["sample_id"])), len(self._ids)
        self._ids.update(pc.unique(table["sample_id"]).to_pylist())
        self._repeated[REPEATED_SAMPLES] += runs - (len(self._ids) - before)

    @property
    def counted(self) -> dict[str, int]:
        """Number of rows with the key of an earlier row, and of samples with an earlier id."""
        return dict(self._repeated)


def column_facts(schema: pa.Schema) -> dict[str, Any]:
    """Return ``columns`` and ``required`` of :class:`.Facts`, for a file of ``schema``."""
    return {
        "columns": {field.name: str(field.type) for field in schema},
        "required": tuple(field.name for field in schema if not field.nullable),
    }


def extents(scores: pa.Table) -> dict[str, Extent]:
    """Return the range of each column of numbers except the keys; for vectors of floats, of their Euclidean lengths."""
    found: dict[str, Extent] = {}
    for field in scores.schema:
        if field.name in IMAGE_KEY:
            continue
        column = scores[field.name]
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            found[field.name] = _extent(column.drop_null().cast(pa.float64(), safe=False).to_numpy())
        elif pa.types.is_fixed_size_list(field.type) and pa.types.is_floating(field.type.value_type):
            found[field.name] = _extent(_lengths(column, field.type.list_size))
    return found


def unexplained(scores: pa.Table, error_column: str, groups: Mapping[str, Sequence[str]]) -> int:
    """Return the number of rows without an error that are null in all columns of a group."""
    lacking = pa.chunked_array([pa.repeat(pa.scalar(False), scores.num_rows)])
    for columns in groups.values():
        empty = pa.chunked_array([pa.repeat(pa.scalar(True), scores.num_rows)])
        for name in columns:
            empty = pc.and_(empty, scores[name].is_null())
        lacking = pc.or_(lacking, empty)
    return int(pc.sum(pc.and_(lacking, scores[error_column].is_null()), min_count=0).as_py())


def _lengths(vectors: pa.ChunkedArray, width: int) -> np.ndarray:
    """Return the Euclidean length of each vector that is not null, as float32."""
    parts = [chunk.drop_null().flatten().to_numpy(zero_copy_only=False) for chunk in vectors.chunks]
    flat = np.concatenate(parts) if parts else np.zeros(0)
    return np.linalg.norm(flat.astype(np.float32).reshape(-1, width), axis=1)


def _extent(values: np.ndarray) -> Extent:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Extent(values=len(values), not_finite=len(values))
    return Extent(
        values=len(values), not_finite=len(values) - len(finite), low=float(finite.min()), high=float(finite.max())
    )


def counts_of_raw(rows: Facts) -> dict[str, int]:
    """Return the counts of the raw shard in the record of ``rows``, which a stage that stores rows passes on.

    ``filtered`` reads them from the record of the rows that it selects from.
    """
    members = {name: rows.counted.get(name, 0) for name in (UNREFERENCED, UNREFERENCED_IMAGES)}
    return {**members, IMAGE_MEMBERS: image_members(rows)}


def image_members(rows: Facts) -> int:
    """Return the number of images of the raw shard, by the record of ``normalized`` or ``rewritten``.

    Images count whether a document names them or not, and whether they were dropped or not.
    """
    return rows.counted.get(IMAGE_MEMBERS, rows.counts_in.images + rows.counted.get(UNREFERENCED_IMAGES, 0))


def write_kept(
    batches: Iterable[pa.Table], choose: Choose, write: Callable[[pa.Table], None], name: str
) -> tuple[Facts, pa.Table]:
    """Write the rows of each batch that ``choose`` keeps; return counts, and the ledger of the other rows.

    Raises LedgerError, with ``name``, if a row is neither kept nor in the ledger.
    """
    seen, written, keys = RowCounter(), RowCounter(), UniqueKeys()
    ledgers = [empty_ledger()]
    for table in batches:
        kept, ledger = choose(table)
        check_balance(name, table.num_rows, kept.num_rows, ledger)
        seen.add(table)
        written.add(kept)
        keys.add(kept)
        ledgers.append(ledger)
        write(kept)
    dropped = pa.concat_tables(ledgers)
    facts = Facts(
        counts_in=seen.counts,
        counts_out=written.counts,
        errors=dict(seen.errors),
        dropped=drop_reasons(dropped),
        counted=keys.counted,
    )
    return facts, dropped


def write_by_error_policy(
    batches: Iterable[pa.Table], shard: ShardTask, stage: str, write: Callable[[pa.Table], None]
) -> tuple[Facts, pa.Table]:
    """Return :func:`write_kept` of the rows that the error policy keeps.

    Raises IncompleteShard if too many samples lost rows to errors.
    """
    policy = shard.settings.errors.on_materialize_error
    choose = partial(apply_error_policy, policy=policy, shard=shard.key, stage=stage)
    facts, dropped = write_kept(batches, choose, write, f"shard {shard.key}, {stage}")
    check_losses(shard, stage, facts.counts_in.samples, dropped)
    return facts, dropped


def check_losses(shard: ShardTask, stage: str, samples: int, ledger: pa.Table) -> None:
    """Raise IncompleteShard if more of ``samples`` samples than allowed lost a row to an error, by ``ledger``."""
    lost = ledger.filter(pc.is_in(ledger["reason"], value_set=pa.array(_ERRORS)))
    count = pc.count_distinct(lost["sample_id"]).as_py()
    bound = shard.settings.publish.max_lost_samples
    if count <= bound * samples:
        return
    first = lost.slice(0, 1).to_pylist()[0]
    codes = ", ".join(f"{rows:,} {code}" for code, rows in drop_reasons(lost).items())
    raise IncompleteShard(
        f"shard {shard.key}: {count:,} of {samples:,} samples lost rows to errors in {stage}, more than "
        f"publish.max_lost_samples {bound:g}: {codes}. The first is sample {first['sample_id']!r}, position "
        f"{first['position']}: {first['detail'] or first['reason']}. Fix the shard, or raise publish.max_lost_samples."
    )


def write_scores(
    scores: pa.Table, uri: str, options: StorageOptions, error_column: str, groups: Mapping[str, Sequence[str]]
) -> Work:
    """Write the scores of a shard's images, one row an image; ``groups`` are the columns of each scorer."""
    with parquet_shard(uri, scores.schema, storage_options=options) as out:
        out.write(scores)
    return Work(
        outputs={"rows": OutputFile.of(out.output)},
        counts_out=Counts(rows=scores.num_rows, images=scores.num_rows),
        errors=dict(count_errors(scores[error_column])),
        **column_facts(out.schema),
        extents=extents(scores),
        counted={UNEXPLAINED: unexplained(scores, error_column, groups)},
    )
