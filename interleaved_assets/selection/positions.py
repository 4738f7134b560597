"""Matching of images with stored scores by ``sample_id`` and ``position``, and renumbering of positions after drops."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.columns import IMAGE_KEY
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.row_checks import check_present, check_rows, check_table
from interleaved_assets.scoring.protocol.values import score_column

_KEY_TYPES: Final = ((pa.string(), pa.large_string()), (pa.int32(),))
"""The types that the columns of a key may have; other types are cast to the first."""


def match_scores(images: pa.Table, scores: pa.Table, *, name: str = "scores") -> NDArray[np.int64]:
    """Return for each row of ``images`` the row of ``scores`` with its ``sample_id`` and ``position``, -1 without one.

    Raises:
        OptionError: ``scores`` lacks a key column, or has one of another type or an image twice; the message calls the
            table ``name``.
    """
    images, scores = with_keys(images, "rows"), with_keys(scores, name)
    pairs = [(images[column], scores[column]) for column in IMAGE_KEY]
    if all(left.type == right.type and left.equals(right) for left, right in pairs):
        # the usual case: scores are written in the order of the rows
        return np.arange(images.num_rows)
    sample_ids = pc.unique(images["sample_id"])
    wanted, stored = _keys(images, sample_ids), _keys(scores, sample_ids)
    order = np.argsort(stored, kind="stable")
    stored = stored[order]
    twice = np.flatnonzero((stored[1:] == stored[:-1]) & (stored[1:] >= 0))
    if len(twice):
        sample_id, position = (scores[column][int(order[twice[0]])].as_py() for column in IMAGE_KEY)
        raise OptionError(f"{name}: sample {sample_id!r}, position {position} occurs twice")
    place = np.searchsorted(stored, wanted)
    # searchsorted returns len(stored) for a key above the last one
    found = np.append(stored, -1)[place] == wanted
    return np.where(found, np.append(order, -1)[place], -1)


def with_keys(scores: pa.Table, name: str) -> pa.Table:
    """Return ``scores`` with key columns of the types of the row model.

    Raises:
        OptionError: a key column is missing, or does not fit its type; the message calls the table ``name``.
    """
    check_table(scores, name)
    check_present(scores.column_names, IMAGE_KEY, name)
    for column, types in zip(IMAGE_KEY, _KEY_TYPES, strict=True):
        if scores.schema.field(column).type not in types:
            place = scores.column_names.index(column)
            scores = scores.set_column(place, column, score_column(scores, column, types[0], name))
    return scores


def join_scores(scores: pa.Table, added: pa.Table) -> pa.Table:
    """Return ``scores`` with the columns of ``added`` appended; null for an image that ``added`` lacks.

    It joins the image scores and the CLIP scores of one shard for ``select``.

    Raises:
        OptionError: the tables share a column besides the keys, or ``added`` has an image twice.
    """
    check_table(added, "added scores")
    columns = [name for name in added.column_names if name not in IMAGE_KEY]
    if shared := [name for name in columns if name in scores.column_names]:
        raise OptionError(f"both score tables have the column {', '.join(shared)}")
    matched = match_scores(scores, added, name="added scores")
    taken = added.select(columns).take(pa.array(matched, mask=matched < 0))
    for name in columns:
        scores = scores.append_column(added.schema.field(name).with_nullable(True), taken[name])
    return scores


def _keys(table: pa.Table, sample_ids: pa.Array) -> NDArray[np.int64]:
    """Return one number per (sample_id, position); negative if the sample is not in ``sample_ids``."""
    codes = pc.index_in(table["sample_id"].cast(sample_ids.type), value_set=sample_ids)
    codes = pc.fill_null(codes, -1).to_numpy().astype(np.int64)
    # positions are 32-bit numbers from -1; a row without a position is not an image's
    keys = codes * 2**33 + pc.fill_null(table["position"], -1).to_numpy() + 1
    return np.where(table["position"].is_null().to_numpy(), -1, keys)


def reindex_positions(rows: pa.Table) -> pa.Table:
    """Renumber positions within each sample from 0 without gaps, in the order of the old positions.

    Rows of one sample that share a position share the new one. Metadata rows stay at -1; order and other columns stay.

    Args:
        rows: ``sample_id``, ``position``, ``modality`` and anything else.

    Raises:
        OptionError: one of these three columns is missing or null.
    """
    check_rows(rows, (), "reindex_positions")
    samples = rows["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    old = rows["position"].to_numpy()
    content = np.flatnonzero(pc.not_equal(rows["modality"], "metadata").to_numpy())
    new = old.copy()
    order = content[np.lexsort((old[content], samples[content]))]
    if len(order):
        first = np.diff(samples[order], prepend=-1) != 0
        step = first | (np.diff(old[order], prepend=-1) != 0)
        counted = np.cumsum(step)
        # for each row, the count at the first row of its sample
        start = np.repeat(counted[first], np.diff(np.append(np.flatnonzero(first), len(order))))
        new[order] = counted - start
    place = rows.column_names.index("position")
    return rows.set_column(place, rows.schema.field(place).with_type(pa.int32()), pa.array(new, pa.int32()))
