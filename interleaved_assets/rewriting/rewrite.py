"""Apply functions to rows one after the other, check what each returns, and account for every change."""

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.columns import BINARY_SIZE, ROW_KEY
from interleaved_assets.model.errors import ShardError
from interleaved_assets.model.ledger import SAMPLE_DROPPED, ledger_of
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.rewriting.changes import CHANGED, CHANGES_SCHEMA, DROPPED, change_lines
from interleaved_assets.rewriting.functions import RewriteFunction
from interleaved_assets.rewriting.texts import with_texts

_TEXT: Final = "text_content"
_HIDDEN: Final = ("binary_content", BINARY_SIZE)
"""Columns that functions do not get: image bytes, and their size if rows name them."""


class Rewritten(NamedTuple):
    """The rows after all functions, the ledger of the dropped rows, and the ledger of changes."""

    rows: pa.Table
    ledger: pa.Table
    changes: pa.Table


class _Step(NamedTuple):
    """The result of one function: the rows of its input that it kept and dropped, the texts of the former, reasons."""

    kept: NDArray[np.int64]
    dropped: NDArray[np.int64]
    texts: pa.ChunkedArray
    reasons: Sequence[str | None]
    """By row of the input; empty if the function gave none."""


def rewrite(rows: pa.Table, functions: Mapping[str, RewriteFunction], *, stage: str, shard: str) -> Rewritten:
    """Apply ``functions``, by name and in their order, to ``rows`` of whole samples.

    Only texts of text rows can change, and only text rows can be dropped. A sample that thereby loses all of its
    content is dropped too. Image bytes are not copied.

    Raises:
        ShardError: a function raised an exception, or returned anything else.
    """
    seen = rows.select([name for name in rows.column_names if name not in _HIDDEN])
    left = np.arange(rows.num_rows)
    changes, ledgers = [CHANGES_SCHEMA.empty_table()], [ledger_of(rows.slice(0, 0), stage, [])]
    for name, function in functions.items():
        step = _checked(seen, function, f"shard {shard}: the function {name}")
        gone = _taken(seen, step.dropped)
        reasons = _reasons(step, step.dropped, function, name)
        changes.append(change_lines(gone, name, DROPPED, reasons, [None] * gone.num_rows))
        ledgers.append(ledger_of(gone, stage, [name] * gone.num_rows, details=reasons))
        before = _taken(seen, step.kept)
        differs = pc.fill_null(pc.not_equal(before[_TEXT], step.texts), False)
        other = np.flatnonzero(np.asarray(differs, dtype=bool))
        texts = step.texts.take(pa.array(other)).to_pylist()
        reasons = _reasons(step, step.kept[other], function, name)
        changes.append(change_lines(_taken(before, other), name, CHANGED, reasons, texts))
        seen, left = with_texts(before, step.texts), left[step.kept]
    emptied = _emptied(rows, seen)
    gone = _taken(seen, emptied)
    details = ["all of its texts were dropped"] * len(emptied)
    ledgers.append(ledger_of(gone, stage, [SAMPLE_DROPPED] * len(emptied), details=details))
    left, seen = np.delete(left, emptied), _taken(seen, np.delete(np.arange(seen.num_rows), emptied))
    keep = np.zeros(rows.num_rows, bool)
    keep[left] = True
    result = with_texts(filter_rows(rows, pa.array(keep)), seen[_TEXT])
    return Rewritten(result, _in_order(ledgers, rows), _in_order(changes, rows))


def _checked(before: pa.Table, function: RewriteFunction, who: str) -> _Step:
    """Call ``function`` and return its result; ``who`` names shard and function in messages."""
    problem = ""
    try:
        returned = function(before)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a user's function raises exceptions of any type
        problem = _problem(error)
    if problem:  # raised here, without the exception as its context, whose message may repeat a text
        first, last = (before["sample_id"][row].as_py() for row in (0, -1)) if before.num_rows else ("", "")
        raise ShardError(f"{who} failed on the samples {first!r} to {last!r}: {problem}")
    after, given = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, [])
    if not isinstance(after, pa.Table):
        raise ShardError(f"{who} returned {type(after).__name__}, and not a pyarrow table with the rows that it keeps")
    _check_columns(before, after, who)
    kept = _kept_rows(before, after, who)
    same = _taken(before, kept)
    dropped = np.setdiff1d(np.arange(before.num_rows), kept)
    if len(lost := dropped[~_is_text(before)[dropped]]):
        row = int(lost[0])
        raise ShardError(f"{who} dropped a row that is no text: {_place(before, row)}, {before['modality'][row]}")
    for name in before.column_names:
        if name != _TEXT:
            _check_same(same, after, name, who)
    others = np.flatnonzero(~_is_text(same))
    _check_same(_taken(same, others), _taken(after, others), _TEXT, who)
    appeared = np.flatnonzero(np.asarray(same[_TEXT].is_null()) != np.asarray(after[_TEXT].is_null()))
    if len(appeared):
        row = int(appeared[0])
        what = "a text to a row that has none" if after[_TEXT][row].is_valid else "a null for a text; drop the row"
        raise ShardError(f"{who} returned {what}: {_place(same, row)}")
    try:
        reasons = list(given)
    except TypeError:
        raise ShardError(f"{who} returned {type(given).__name__} as reasons, and not a list") from None
    if reasons and len(reasons) != before.num_rows:
        raise ShardError(f"{who} returned {len(reasons)} reasons for the {before.num_rows} rows that it was given")
    return _Step(kept, dropped, after[_TEXT], reasons)


def _problem(error: BaseException) -> str:
    """Return the type of a function's exception and its place in the function, without its message.

    The message may repeat a text with personal data; failures are logged and shown.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:  # it could not be called
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__} in {Path(frames[0].filename).name}, line {frames[0].lineno}"


def _check_columns(before: pa.Table, after: pa.Table, who: str) -> None:
    wanted, found = ({field.name: str(field.type) for field in table.schema} for table in (before, after))
    if list(wanted.items()) != list(found.items()) or len(found) != after.num_columns:
        problems = [f"without {name}" for name in wanted if name not in found]
        problems += [f"with {name}, which it was not given" for name in found if name not in wanted]
        problems += [
            f"with {name} as {found[name]} in place of {dtype}"
            for name, dtype in wanted.items()
            if found.get(name, dtype) != dtype
        ]
        raise ShardError(f"{who} returned a table {'; '.join(problems) or 'with its columns in another order'}")
    try:
        after.validate()
        after[_TEXT].validate(full=True)
    except pa.ArrowInvalid as error:
        raise ShardError(f"{who} returned an invalid table: {error}") from error


def _kept_rows(before: pa.Table, after: pa.Table, who: str) -> NDArray[np.int64]:
    """Return the rows of ``before`` that ``after`` has; raise if it has others, or has them in another order."""
    if all(before[name].equals(after[name]) for name in ROW_KEY):
        return np.arange(before.num_rows)
    keys = _key_numbers(before, after)
    own, kept = keys[: before.num_rows], keys[before.num_rows :]
    order = np.argsort(own, kind="stable")
    rows = np.append(order, -1)[np.searchsorted(own[order], kept)] if len(kept) else kept
    invented = np.flatnonzero(np.append(own, -1)[rows] != kept)
    if len(invented):
        raise ShardError(f"{who} returned a row that it was not given: {_place(after, int(invented[0]))}")
    moved = np.flatnonzero(np.diff(rows) <= 0)
    if len(moved):
        raise ShardError(f"{who} returned rows twice or in another order, from {_place(after, int(moved[0]) + 1)}")
    return rows


def _key_numbers(*tables: pa.Table) -> NDArray[np.int64]:
    """Return a number for each row of ``tables``, the same for the same key; -1 for a key with a null."""
    columns = [pa.chunked_array([chunk for table in tables for chunk in table[name].chunks]) for name in ROW_KEY]
    number, lacking = np.zeros(len(columns[0]), np.int64), np.zeros(len(columns[0]), bool)
    for column in columns:
        values = pc.unique(column.drop_null())
        codes = pc.fill_null(pc.index_in(column, value_set=values), 0).to_numpy()
        number, lacking = number * len(values) + codes, lacking | np.asarray(column.is_null())
    return np.where(lacking, -1, number)


def _check_same(before: pa.Table, after: pa.Table, name: str, who: str) -> None:
    if before[name].equals(after[name]):
        return
    # the same NaN is not equal to itself
    for row, (own, returned) in enumerate(zip(before[name].to_pylist(), after[name].to_pylist(), strict=True)):
        if repr(own) != repr(returned):
            raise ShardError(
                f"{who} changed {name} of a row: {_place(before, row)}, {before['modality'][row]}. Only text_content "
                "of text rows may change"
            )


def _reasons(step: _Step, rows: NDArray[np.int64], function: RewriteFunction, name: str) -> list[str]:
    """Return the reason for each of ``rows``: the function's own, else the first line of its docstring, or its name."""
    about = next(iter((function.__doc__ or "").strip().splitlines()), name).rstrip(".")
    return [str((step.reasons[row] if step.reasons else "") or about) for row in rows.tolist()]


def _emptied(before: pa.Table, after: pa.Table) -> NDArray[np.int64]:
    """Return the rows of ``after`` whose samples had content and have none any more."""
    with_content = [
        pc.unique(rows["sample_id"].filter(pc.not_equal(rows["modality"], "metadata"))) for rows in (before, after)
    ]
    had, has = (pc.is_in(after["sample_id"], value_set=samples) for samples in with_content)
    return np.flatnonzero(np.asarray(pc.and_(had, pc.invert(has)), dtype=bool))


def _is_text(rows: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(pc.equal(rows["modality"], "text"), dtype=bool)


def _taken(rows: pa.Table, numbers: NDArray[np.int64]) -> pa.Table:
    return rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers, pa.int64()))


def _in_order(tables: Sequence[pa.Table], rows: pa.Table) -> pa.Table:
    """Return the lines of ``tables`` in the order of the samples in ``rows`` and of their positions."""
    lines = pa.concat_tables(tables)
    samples = pc.index_in(lines["sample_id"], value_set=pc.unique(rows["sample_id"]))
    order: Any = pc.sort_indices(
        pa.table({"sample": samples, "position": lines["position"], "line": np.arange(lines.num_rows)}),
        sort_keys=[("sample", "ascending"), ("position", "ascending"), ("line", "ascending")],
    )
    return lines.take(order)


def _place(rows: pa.Table, row: int) -> str:
    return f"sample {rows['sample_id'][row].as_py()!r}, position {rows['position'][row].as_py()}"
