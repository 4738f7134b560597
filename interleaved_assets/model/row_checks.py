"""Checks of rows: required columns, modalities and unique keys."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.columns import METADATA_POSITION, ROW_KEY
from interleaved_assets.model.errors import OptionError

_MODALITIES: Final = ("metadata", "text", "image")
"""The modalities with a meaning here; rows of others are kept as they are."""


def key_problems(table: pa.Table) -> list[str]:
    """Return the problems with the keys of rows, one sentence each, with the first sample that has the problem.

    ``table`` has :data:`ROW_KEY` with their canonical types and no nulls. Both writers refuse rows with problems.
    """
    if problem := _misspelt_modality(table):
        return [problem]
    found = []
    is_metadata = pc.equal(table["modality"], "metadata")
    misplaced = pc.xor(is_metadata, pc.equal(table["position"], METADATA_POSITION))
    if pc.any(misplaced, min_count=0).as_py():
        found.append(
            f"{pc.sum(misplaced).as_py()} rows break the rule that metadata rows, and only they, have position -1: "
            f"first {_key_of(table, pc.index(misplaced, True).as_py())}"
        )
    below = pc.less(table["position"], METADATA_POSITION)
    if pc.any(below, min_count=0).as_py():
        found.append(f"a position is below -1: first {_key_of(table, pc.index(below, True).as_py())}")
    # NumPy, since importing Arrow's engine takes longer than comparing the rows of a shard
    columns = (table[name].combine_chunks().dictionary_encode().indices for name in ("sample_id", "modality"))
    keys = np.stack([*map(np.asarray, columns), np.asarray(table["position"])])
    order = np.lexsort(keys)
    is_repeated = (np.diff(keys[:, order]) == 0).all(axis=0)
    if is_repeated.any():
        # rows with one key stay in the order of the table
        first = _key_of(table, int(order[:-1][is_repeated].min()))
        found.append(f"{is_repeated.sum()} rows repeat the key (sample_id, position, modality): first {first}")
    return found


def _key_of(table: pa.Table, row: int) -> str:
    sample_id, position, modality = (table[name][row].as_py() for name in ROW_KEY)
    return f"sample {sample_id!r}, position {position}, {modality}"


def check_present(present: Sequence[object], needed: Sequence[str], name: str) -> None:
    """Check that the columns ``present`` have all of ``needed``.

    Raises:
        OptionError: a column is missing; the message begins with ``name``, the function that needs it.
    """
    if missing := [column for column in needed if column not in present]:
        listed = ", ".join(map(str, present)) or "none"
        raise OptionError(f"{name}: no column {', '.join(missing)}; columns are {listed}")


def check_table(table: object, name: str) -> None:
    """Check that ``table`` is an Arrow table; the message begins with ``name``."""
    if not isinstance(table, pa.Table):
        hint = "batch.to_pyarrow()" if hasattr(table, "to_pyarrow") else "pyarrow.table(...) of it"
        raise OptionError(f"{name}: got {type(table).__name__}, not an Arrow table: give {hint}")


def check_rows(table: pa.Table, needed: Sequence[str], name: str) -> None:
    """Check that ``table`` has the columns of :data:`ROW_KEY`, without nulls, and all of ``needed``.

    Raises:
        OptionError: it is no table, a column is missing or null, or a modality is not in lower case; the message begins
            with ``name``, the function that needs them.
    """
    check_table(table, name)
    check_present(table.column_names, [*ROW_KEY, *needed], name)
    for column in ROW_KEY:
        if count := table[column].null_count:
            first = pc.index(table[column].is_null(), True).as_py()
            raise OptionError(f"{name}: column {column!r} is null in {count} rows: first row {first}")
    if problem := _misspelt_modality(table):
        raise OptionError(f"{name}: {problem}")


def _misspelt_modality(table: pa.Table) -> str | None:
    """Return what to do about a modality such as ``IMAGE``, whose rows would be neither scored nor filtered."""
    for modality in pc.unique(table["modality"]).to_pylist():
        if modality not in _MODALITIES and (meant := str(modality).strip().lower()) in _MODALITIES:
            row = pc.index(table["modality"], modality).as_py()
            return f"modality {modality!r} must be written {meant!r}: first {_key_of(table, row)}"
    return None
