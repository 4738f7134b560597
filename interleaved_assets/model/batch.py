"""A batch of whole samples, one row per item."""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.casting import cast_named, concat_unified, plain_type, with_columns
from interleaved_assets.model.columns import METADATA_POSITION, REQUIRED_COLUMNS, RESERVED_COLUMNS, ROW_KEY
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.row_checks import check_present, key_problems
from interleaved_assets.model.rows import bool_values, filter_rows
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA, reconcile_schema
from interleaved_assets.model.source_ref import SourceRef, build_source_ref, parse_source_ref

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

_NO_ARROW_TYPE: Final = (ValueError, TypeError, NotImplementedError, OverflowError)
"""Errors of Arrow for values that it has no type for; its own are among them."""

# pandas takes half a second to load, and only users of DataFrames need it
Mask: TypeAlias = Union["pd.Series", pa.Array, pa.ChunkedArray, np.ndarray, Sequence[bool]]
"""One bool for each row, without nulls."""


@dataclass(frozen=True)
class InterleavedBatch:
    """Rows of whole samples, as an Arrow table or a DataFrame.

    Attributes:
        data: the rows; reserved columns as in ``INTERLEAVED_SCHEMA``, any other column is passthrough. Columns of an
            Arrow table that are dictionaries, runs or views become plain.
        source_files: the files these rows were read from, also after a split by ``max_batch_bytes``.

    Raises:
        OptionError: ``data`` is neither a table nor a DataFrame, ``source_files`` is one string, or a column is stored
            as a dictionary, runs or a view, and is damaged or does not fit the row model.
    """

    data: "pa.Table | pd.DataFrame" = field(default_factory=INTERLEAVED_SCHEMA.empty_table)
    source_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the arguments, and give columns that are dictionaries, runs or views plain types."""
        if not isinstance(self.data, pa.Table):
            _check_data(self.data)
        # each letter would be a file, and "/" a folder that locators may point below
        if isinstance(self.source_files, str | os.PathLike):
            raise OptionError(f"source_files must be a tuple of paths, got {self.source_files!r}: write (path,)")
        object.__setattr__(self, "source_files", tuple(map(os.fspath, self.source_files)))
        if isinstance(self.data, pa.Table) and any(plain_type(dtype) != dtype for dtype in self.data.schema.types):
            pairs = zip(self.data.schema, reconcile_schema(self.data.schema), strict=True)
            fields = [own if plain_type(own.type) == own.type else plain for own, plain in pairs]
            try:
                # by place: problems() reports columns that share a name
                columns = list(map(cast_named, self.data.columns, fields))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise OptionError(f"the rows cannot be a batch: {error}") from error
            schema = pa.schema(fields, self.data.schema.metadata)
            object.__setattr__(self, "data", pa.Table.from_arrays(columns, schema=schema))

    build_source_ref = staticmethod(build_source_ref)
    parse_source_ref = staticmethod(parse_source_ref)

    def to_pyarrow(self) -> pa.Table:
        """Return the rows as an Arrow table; it is not copied if the batch holds one.

        Raises:
            OptionError: a column of the DataFrame has no Arrow type, or does not fit the row model.
        """
        if isinstance(self.data, pa.Table):
            return self.data
        table = _frame_table(self.data)
        # pandas lacks most Arrow types, so reserved columns are cast to the types of the row model
        fields = [field.with_nullable(True) for field in reconcile_schema(table.schema)]
        try:
            return with_columns(table, pa.schema([self._usual_type(field) for field in fields]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OptionError(f"the rows do not form an Arrow table: {error}") from error

    def _usual_type(self, field: pa.Field) -> pa.Field:
        """Return ``field``, as ``string`` for a reserved column of pandas strings: Arrow makes it ``large_string``."""
        import pandas as pd

        is_large = field.name in RESERVED_COLUMNS and field.type == pa.large_string()
        if is_large and not isinstance(self.data.dtypes[field.name], pd.ArrowDtype):
            return INTERLEAVED_SCHEMA.field(field.name).with_nullable(True)
        return field

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a DataFrame of Arrow-backed columns, so that integers with nulls stay integers."""
        import pandas as pd

        if isinstance(self.data, pd.DataFrame):
            return self.data
        return self.data.to_pandas(types_mapper=pd.ArrowDtype)

    def with_table(self, table: pa.Table) -> "InterleavedBatch":
        """Return the same batch with other rows."""
        return replace(self, data=table)

    @property
    def num_items(self) -> int:
        """Number of samples."""
        check_present(self.get_columns(), ("sample_id",), "num_items")
        if isinstance(self.data, pa.Table):
            return pc.count_distinct(self.data["sample_id"]).as_py()
        return int(self.data["sample_id"].nunique())

    def count(self, *, modality: str | None = None) -> int:
        """Return the number of rows, or of those of one modality if one is given."""
        if modality is None:
            return len(self.data)
        check_present(self.get_columns(), ("modality",), "count")
        if isinstance(self.data, pa.Table):
            return pc.sum(pc.equal(self.data["modality"], modality), min_count=0).as_py()
        return int((self.data["modality"] == modality).sum())

    def get_columns(self) -> list[str]:
        """Return the column names, in order."""
        return list(self.data.column_names if isinstance(self.data, pa.Table) else self.data.columns)

    def problems(self) -> list[str]:
        """Return the reasons why these rows are not a valid batch, one sentence each; empty if the batch is valid.

        A valid batch has at least one sample, the required columns without nulls, the canonical types in reserved
        columns, position -1 on metadata rows and no others, and each (sample_id, position, modality) once.
        """
        names = self.get_columns()
        missing = [name for name in REQUIRED_COLUMNS if name not in names]
        if missing:
            return [f"required columns are missing: {', '.join(missing)}"]
        if repeated := _repeated(names):
            return [f"column {name!r} occurs more than once" for name in repeated]
        try:
            table = self.to_pyarrow()
        except OptionError as error:
            return [str(error)]
        if table.num_rows == 0:
            return ["the batch has no rows"]
        found = [
            f"column {name!r} is null in {table[name].null_count} rows"
            for name in REQUIRED_COLUMNS
            if table[name].null_count
        ]
        reconciled = reconcile_schema(table.schema)
        found += [
            f"column {name!r} has type {table.schema.field(name).type}, not {reconciled.field(name).type}"
            for name in INTERLEAVED_SCHEMA.names
            if name in table.column_names and table.schema.field(name).type != reconciled.field(name).type
        ]
        if found:
            return found
        return key_problems(table)

    def validate(self) -> bool:
        """Return whether the batch is valid, and log each of :meth:`problems` as a warning."""
        found = self.problems()
        for problem in found:
            logger.warning("batch of %s: %s", ", ".join(self.source_files) or "no file", problem)
        return not found

    def add_rows(
        self,
        rows: "pa.Table | pd.DataFrame | Sequence[Mapping[str, object]]",
        sample_id: str | None = None,
        auto_position: bool = True,
    ) -> "InterleavedBatch":
        """Append ``rows``; a column that only one side has is null in the rows of the other.

        Args:
            rows: rows to add. Need ``modality``, ``sample_id`` unless given, ``position`` unless ``auto_position``.
            sample_id: put every new row into this sample.
            auto_position: number content rows from their sample's highest position + 1 (0 for a new sample), in the
                order given; metadata rows get -1. Positions in ``rows`` are replaced.

        Raises:
            OptionError: a required column is missing or null in ``rows``, a column's type does not fit
                the batch's, or the result would not be a valid batch.
        """
        if hasattr(rows, "__len__") and len(rows) == 0:
            return self
        present = self.to_pyarrow()
        check_present(present.column_names, REQUIRED_COLUMNS, "add_rows")
        added = _as_table(rows)
        if sample_id is not None:
            added = _with_column(added, "sample_id", pa.repeat(pa.scalar(sample_id), added.num_rows))
        needed = [name for name in REQUIRED_COLUMNS if not (auto_position and name == "position")]
        for name in needed:
            if name not in added.column_names or added[name].null_count:
                raise OptionError(f"add_rows: column {name!r} is missing or null in the new rows")
        if auto_position:
            added = _with_column(added, "position", _next_positions(present, added))
        try:
            joined = concat_unified([present, with_columns(added, reconcile_schema(added.schema))])
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise OptionError(f"add_rows: the new rows do not fit the types of the batch: {error}") from error
        result = self.with_table(with_columns(joined, reconcile_schema(joined.schema)))
        if found := result.problems():
            raise OptionError(f"add_rows: {'; '.join(found)}")
        return result

    def delete_rows(self, mask: Mask) -> "InterleavedBatch":
        """Remove the rows whose ``mask`` is True; positions and order stay, image bytes are not copied.

        Raises:
            OptionError: ``mask`` is not one bool per row, or a Series with the rows' labels in another order.
        """
        table = self.to_pyarrow()
        array = bool_values(mask, table.num_rows, "delete_rows")
        self._check_order(mask)
        return self.with_table(filter_rows(table, pc.invert(array)))

    def _check_order(self, mask: Any) -> None:
        """Refuse a Series whose labels are those of the rows in another order, as after ``sort_values``."""
        if not hasattr(mask, "iloc"):
            return
        labels = list(mask.index)
        own = list(range(len(self.data)) if isinstance(self.data, pa.Table) else self.data.index)
        if labels != own and set(labels) == set(own):
            raise OptionError(
                "delete_rows: the index of mask has the labels of the rows in another order: give mask.to_numpy() if "
                "its values are in the order of the rows, else bring it into that order"
            )

    def with_parsed_source_ref_columns(self, prefix: str = "_src_") -> "pd.DataFrame":
        """Return a DataFrame with the parts of ``source_ref`` in columns ``<prefix>path`` to ``<prefix>part``.

        Raises:
            ValueError: a ``source_ref`` is not a JSON locator; the message names its row.
        """
        import pandas as pd

        frame = self.to_pandas().copy()
        column = frame["source_ref"] if "source_ref" in frame.columns else [None] * len(frame)
        refs = []
        for row, value in enumerate(column):
            try:
                refs.append(parse_source_ref(None if value is None or value is pd.NA or value != value else value))
            except ValueError as error:
                key = ", ".join(f"{name} {frame[name].iloc[row]}" for name in ROW_KEY if name in frame.columns)
                raise ValueError(f"row {row} ({key}): {error}") from error
        for number, name in enumerate(SourceRef._fields):
            dtype = pa.string() if name in ("path", "member", "part") else pa.int64()
            values = pa.array([ref[number] for ref in refs], dtype)
            frame[prefix + name] = pd.Series(values.to_pandas(types_mapper=pd.ArrowDtype).array, index=frame.index)
        return frame


def check_batch(batch: object, name: str) -> None:
    """Check that ``batch`` is an :class:`InterleavedBatch`; the message begins with ``name``."""
    if not isinstance(batch, InterleavedBatch):
        raise OptionError(f"{name}: got {type(batch).__name__}, not a batch: give InterleavedBatch(rows)")


def _check_data(data: object) -> "pd.DataFrame":
    """Return ``data`` if it is a DataFrame."""
    import pandas as pd

    if not isinstance(data, pd.DataFrame):
        raise OptionError(
            f"the rows of a batch must be an Arrow table or a pandas DataFrame, got {type(data).__name__}: make a "
            "table with pyarrow.table(...), or pyarrow.Table.from_pylist(...) from a list of rows"
        )
    return data


def _repeated(names: Sequence[object]) -> list[str]:
    """Return the names that more than one column has, as Arrow writes them: 7 and "7" are one."""
    return sorted(name for name, times in Counter(map(str, names)).items() if times > 1)


def _frame_table(frame: "pd.DataFrame") -> pa.Table:
    """Return a DataFrame as a table, without its index.

    Raises:
        OptionError: two columns share a name, or a column has no Arrow type; the message names it.
    """
    if repeated := _repeated(list(frame.columns)):
        raise OptionError(f"column {repeated[0]!r} occurs more than once: rename one")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except _NO_ARROW_TYPE as error:
        column = next(name for name in frame.columns if not _has_arrow_type(frame[[name]]))
        reason = error.args[0] if isinstance(error, pa.ArrowException) else error
        raise OptionError(
            f"the rows do not form an Arrow table: column {column!r}, {frame[column].dtype}: {reason}. "
            "Give all its values one type that Arrow has, such as str in UTF-8."
        ) from error


def _has_arrow_type(frame: "pd.DataFrame") -> bool:
    try:
        pa.Table.from_pandas(frame, preserve_index=False)
    except _NO_ARROW_TYPE:
        return False
    return True


def _as_table(rows: "pa.Table | pd.DataFrame | Sequence[Mapping[str, object]]") -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        return _frame_table(_check_data(rows))
    # from_pylist takes the column names from the first row only
    names = list(dict.fromkeys(name for row in rows for name in row))
    if odd := [name for name in names if not isinstance(name, str)]:
        raise OptionError(f"add_rows: the name of a column must be a string, got {odd[0]!r}")
    return pa.table({name: _values(name, [row.get(name) for row in rows]) for name in names})


def _values(name: str, values: list[object]) -> pa.Array:
    try:
        # in a column of text or bytes NaN is a missing value, as in a DataFrame
        return pa.array(values, from_pandas=name in RESERVED_COLUMNS)
    except _NO_ARROW_TYPE as error:
        raise OptionError(f"add_rows: the values of {name!r} have no one Arrow type: {error}") from error


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, values)
    return table.append_column(name, values)


def _next_positions(present: pa.Table, added: pa.Table) -> pa.Array:
    highest = present.group_by("sample_id").aggregate([("position", "max")])
    ends = pc.add(highest["position_max"], 1).to_pylist()
    following = dict(zip(highest["sample_id"].to_pylist(), ends, strict=True))
    positions = []
    for sample_id, modality in zip(added["sample_id"].to_pylist(), added["modality"].to_pylist(), strict=True):
        if modality == "metadata":
            positions.append(METADATA_POSITION)
        else:
            position = following.get(sample_id, 0)
            positions.append(position)
            following[sample_id] = position + 1
    if positions and max(positions) >= 2**31:
        raise OptionError("add_rows: there is no position after 2147483647: give positions, with auto_position=False")
    return pa.array(positions, pa.int32())
