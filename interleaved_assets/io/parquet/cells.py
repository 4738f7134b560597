"""Single cells of a Parquet file, named by their column and the number of their row."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.model.errors import row_error

_STEP_BYTES: Final = 2**25


def cell_part(column: str, row: int) -> str:
    """Return the part of a locator that names a cell; rows count from 0."""
    return f"{row}:{column}"


def fetch_cells(
    uri: str, parts: Sequence[str], storage_options: StorageOptions, limits: TarLimits
) -> Iterator[tuple[str, bytes | str]]:
    """Yield the bytes of cells, or row errors. Only row groups with a wanted cell are read, in steps of 32 MiB.

    Raises:
        StorageError: the file is missing or unreadable.
        ShardError: it is damaged.
    """
    wanted: dict[str, dict[int, str]] = defaultdict(dict)
    for part in parts:
        number, _, column = part.partition(":")
        if re.fullmatch(r"[0-9]{1,18}", number):
            wanted[column][int(number)] = part
        else:
            yield part, row_error("invalid_source_ref", f"part {part[:40]!r} is no cell of {uri}")
    with open_parquet(uri, storage_options) as source:
        firsts = [0, *accumulate(group.rows for group in source.row_groups)]
        for column, rows in wanted.items():
            has_bytes = column in source.schema.names and is_bytes(source.schema.field(column).type)
            for group, first in enumerate(firsts[:-1]):
                if not has_bytes or not any(first <= row < firsts[group + 1] for row in rows):
                    continue
                for table in source.rows([column], _STEP_BYTES, [group]):
                    for row in range(first, first + table.num_rows):
                        if row in rows:
                            yield rows[row], _content(table[column][row - first], uri, rows[row], limits)
                    first += table.num_rows


def _content(cell: pa.Scalar, uri: str, part: str, limits: TarLimits) -> bytes | str:
    if not cell.is_valid:
        return row_error("missing_member", f"cell {part} of {uri} is null")
    if (size := len(cell.as_buffer())) > limits.max_member_bytes:
        return row_error("member_too_large", f"cell {part} of {uri}: {size} bytes, over {limits.max_member_bytes}")
    return bytes(cell.as_buffer())


def is_bytes(dtype: pa.DataType) -> bool:
    """Return whether cells of the type are bytes, which :func:`fetch_cells` reads."""
    return pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype)
