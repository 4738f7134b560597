"""One case, read in every way and compared with independent readers; gives its outcome."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzz.child import WrongRead
from benchmarks.fuzz.oracles import check_against_tarfile, check_rows_equal
from interleaved_assets.io import (
    ShardLayout,
    materialize,
    parquet_shard,
    read_parquet_shard,
    read_tar_shard,
    tar_shard,
)
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.model import InterleavedBatch
from interleaved_assets.model.errors import InterleavedError, OptionError, error_code
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

MAX_BATCH_BYTES: Final = 2**20
_MAX_SAMPLE_BYTES: Final = 64 * 2**20
_MAX_UNPACKED_BYTES: Final = 64 * 2**20
_MAX_MEMBER_BYTES: Final = 2**20
_LAYOUTS: Final = (
    ShardLayout(),
    ShardLayout(),
    ShardLayout(sample_id_field="sample_id"),
    ShardLayout(image_member_field="url", per_text_fields=("url",)),
)


def check_tar(content: bytes, dice: random.Random, folder: Path) -> str:
    """Read with and without bytes, write as tar and as Parquet, read those back."""
    path = folder / "case.tar"
    path.write_bytes(content)
    layout = dice.choice(_LAYOUTS)
    codes: set[str] = set()
    with _names_the_shard("case.tar"):
        lazy = _read_tar(path, layout, materialized=False)
        codes |= _check_errors(lazy)
        rows = _read_tar(path, layout, materialized=True)
    codes |= _check_errors(rows)
    if rows is None:
        return outcome_of(codes)
    # what is too large with its bytes may be a row without them
    if lazy is None or (not codes and lazy.num_rows != rows.num_rows):
        raise WrongRead(f"{lazy and lazy.num_rows} rows without bytes, {rows.num_rows} with them")
    check_against_tarfile(rows, path, plain_layout=layout == _LAYOUTS[0])
    _write_and_read_back(rows, folder)
    return outcome_of(codes)


def check_parquet(path: Path, folder: Path) -> tuple[str, pa.Table | None]:
    """Read, and write as both forms; the outcome, and what was read."""
    with _names_the_shard(path.name):
        tables = list(read_parquet_shard(str(path), max_batch_bytes=MAX_BATCH_BYTES))
    table = pa.concat_tables(tables) if tables else None
    if table is None:
        return "read", None
    table.validate(full=True)
    InterleavedBatch(table, (str(path),)).validate()
    # a foreign file may hold what the forms have no place for; what the writers refuse they name
    with contextlib.suppress(OptionError):
        _write_and_read_back(table, folder, from_parquet=True)
    return "read", table


def check_same_or_refused(content: bytes, expected: pa.Table, folder: Path) -> str:
    """A file of ours that was damaged: the same rows, or an error."""
    path = folder / "case.parquet"
    path.write_bytes(content)
    outcome, found = check_parquet(path, folder)
    if found is None:
        raise WrongRead("no rows, and no error")
    check_rows_equal(expected, found, "a damaged file of ours")
    return outcome


def check_other_columns(content: bytes, expected: pa.Table, damaged: str, folder: Path) -> str:
    """A foreign file whose column ``damaged`` was changed: all others are as they were."""
    path = folder / "case.parquet"
    path.write_bytes(content)
    columns = [name for name in expected.column_names if name != damaged]
    if "sample_id" in columns:
        with contextlib.suppress(InterleavedError):
            found = pa.concat_tables(read_parquet_shard(str(path), columns=columns))
            check_rows_equal(expected.select(columns), found, f"column {damaged} was damaged")
    return check_parquet(path, folder)[0]


def check_against_pyarrow(content: bytes, folder: Path) -> str:
    """A sound Parquet file with odd columns: values are those that pyarrow reads."""
    path = folder / "case.parquet"
    path.write_bytes(content)
    outcome, found = check_parquet(path, folder)
    if found is not None:
        plain = pq.read_table(path)
        if plain["sample_id"].to_pylist() == found["sample_id"].to_pylist():
            columns = [
                column.cast(found[name].type) for name, column in zip(plain.column_names, plain.columns, strict=True)
            ]
            check_rows_equal(
                pa.table(columns, plain.column_names), found.select(plain.column_names), "as pyarrow reads it"
            )
        elif sorted(plain["sample_id"].cast(pa.string()).to_pylist()) != sorted(found["sample_id"].to_pylist()):
            raise WrongRead("other sample ids than pyarrow reads")
    return outcome


def check_locators(locators: list[str | None], secret: bytes, root: Path) -> str:
    """Fetch from below ``root``: bytes from there, or an error code; never ``secret``, which lies beside it."""
    count = len(locators)
    columns = {
        "sample_id": pa.array([f"s{at}" for at in range(count)]),
        "position": pa.array([0] * count, pa.int32()),
        "modality": pa.array(["image"] * count),
        "source_ref": pa.array(locators, pa.string()),
    }
    table = materialize(
        pa.table(columns),
        allowed_roots=[str(root)],
        limits=TarLimits(max_member_bytes=_MAX_MEMBER_BYTES, max_unpacked_bytes=_MAX_UNPACKED_BYTES),
    )
    for row in table.to_pylist():
        if row["binary_content"] is not None and (
            secret in row["binary_content"] or len(row["binary_content"]) > 2**20
        ):
            raise WrongRead(
                f"{row['source_ref']} gives {len(row['binary_content'])} bytes from outside or over the limit"
            )
        if (row["binary_content"] is None) != bool(row["materialize_error"]):
            raise WrongRead(f"{row['source_ref']}: bytes {row['binary_content']!r}, error {row['materialize_error']!r}")
    return outcome_of(_check_errors(table))


def _read_tar(path: Path, layout: ShardLayout, *, materialized: bool) -> pa.Table | None:
    tables = list(
        read_tar_shard(
            str(path),
            layout=layout,
            materialize=materialized,
            max_batch_bytes=MAX_BATCH_BYTES,
            limits=TarLimits(max_sample_bytes=_MAX_SAMPLE_BYTES, max_unpacked_bytes=_MAX_UNPACKED_BYTES),
        )
    )
    return pa.concat_tables(tables) if tables else None


def _check_errors(table: pa.Table | None) -> set[str]:
    """The error codes of a table whose Arrow data are sound."""
    if table is None:
        return set()
    table.validate(full=True)
    if "materialize_error" not in table.column_names:
        return set()
    return {known_code(error) for error in table["materialize_error"].drop_null().unique().to_pylist()}


def known_code(error: str) -> str:
    """The code of a row error.

    Raises:
        WrongRead: it has none that is known.
    """
    code = error_code(error)
    if code == "unknown":
        raise WrongRead(f"an error without a code: {error[:300]}")
    return code


def outcome_of(codes: set[str]) -> str:
    """The outcome of a case whose rows have errors of these codes."""
    return f"row error {' '.join(sorted(codes))}" if codes else "read"


@contextlib.contextmanager
def _names_the_shard(name: str) -> Iterator[None]:
    try:
        yield
    except InterleavedError as error:
        if name not in str(error):
            raise WrongRead(f"an error without the shard's name: {error}") from error
        raise


def _write_and_read_back(table: pa.Table, folder: Path, *, from_parquet: bool = False) -> None:
    """Both forms give back the rows that went in, or their writer refuses them.

    Types of passthrough columns of a Parquet file may be others in a tar, where JSON decides: those are not compared.
    """
    tar, parquet = str(folder / "back.tar"), str(folder / "back.parquet")
    with _names_the_shard("back."):
        with parquet_shard(parquet, table.schema) as shard:
            shard.write(table)
        found = list(read_parquet_shard(parquet))
        check_rows_equal(table, pa.concat_tables(found) if found else table.schema.empty_table(), "back from Parquet")
        with tar_shard(tar) as written:
            written.write(table)
    try:
        back = list(read_tar_shard(tar, materialize=True))
    except InterleavedError as error:
        raise WrongRead(f"a tar of ours is refused: {error}") from error
    rows = pa.concat_tables(back) if back else table.schema.empty_table()
    if from_parquet:
        names = [name for name in INTERLEAVED_SCHEMA.names if name in table.column_names]
        # a tar has a sample's rows together, by position
        keys = [("sample_id", "ascending"), ("position", "ascending"), ("modality", "ascending")]
        table, rows = (side.select(names).sort_by(keys) for side in (table, rows))
    check_rows_equal(table, rows, "back from a tar")
