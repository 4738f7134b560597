"""Write the rows of a shard file that stay, and the ledger of those that do not."""

import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from interleaved_assets.io.formats.shard import write_shard
from interleaved_assets.io.parquet.writer import ParquetShard, parquet_shard
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.storage import check_output, clear_leftovers, exists, is_local, local_path
from interleaved_assets.io.storage.filesystem import is_chain
from interleaved_assets.io.storage.options import SAME_STORAGE
from interleaved_assets.io.tar.writer import TarShard
from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance, drop_reasons, empty_ledger
from interleaved_assets.pipeline.files.inputs import ShardFile, read_file, storage_options
from interleaved_assets.pipeline.run.counts import RowCounter
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.settings import Settings, StorageSettings

STAGE: Final = "read"
"""The stage in the ledger of rows that the error policy drops."""

Choose = Callable[[pa.Table], tuple[pa.Table, pa.Table]]
"""Returns the rows of whole samples that stay, and the ledger of the others."""


class Stopped(Exception):
    """The caller wants the work to end; nothing was written."""


class WrittenRows(NamedTuple):
    rows: TarShard | ParquetShard
    ledger: ParquetShard
    schema: pa.Schema
    counts_in: Counts
    counts_out: Counts
    errors: dict[str, int]
    """Rows of the input with an error, by code."""
    dropped: dict[str, int]
    """Rows in the ledger, by reason."""


def write_rows(
    file: ShardFile,
    target: str,
    ledger_uri: str,
    settings: Settings,
    choose: Choose | None,
    stopped: Callable[[], bool] = lambda: False,
    check_input: Callable[[], None] = lambda: None,
) -> WrittenRows:
    """Read a shard, apply the error policy and ``choose``, and write what stays to ``target``, by its ending.

    Args:
        choose: None keeps all rows that the error policy leaves.
        stopped: asked before each part of the input; then :class:`Stopped` is raised.
        check_input: called once all of the input was read, before an output appears; what it raises discards them.
    """
    for uri in (target, ledger_uri):
        clear_leftovers(uri, storage_options(uri, settings.storage))
    seen, written = RowCounter(), RowCounter()
    ledgers = [empty_ledger()]
    tables = read_file(file.uri, settings)
    first = next(tables)
    with (
        parquet_shard(
            ledger_uri, LEDGER_SCHEMA, storage_options=storage_options(ledger_uri, settings.storage)
        ) as ledger_file,
        write_shard(
            target,
            first.schema,
            storage_options=storage_options(target, settings.storage),
            limits=settings.limits.for_tars(),
        ) as rows_file,
    ):
        for table in chain([first], tables):
            if stopped():
                raise Stopped
            seen.add(table)
            kept, dropped = apply_error_policy(table, settings.errors.on_materialize_error, shard=file.uri, stage=STAGE)
            ledgers.append(dropped)
            if choose is not None:
                kept, dropped = choose(kept)
                ledgers.append(dropped)
            written.add(kept)
            rows_file.write(kept)
        ledger = pa.concat_tables(ledgers)
        check_balance(file.uri, seen.counts.rows, written.counts.rows, ledger)
        ledger_file.write(ledger)
        check_input()
    return WrittenRows(
        rows_file, ledger_file, first.schema, seen.counts, written.counts, dict(seen.errors), drop_reasons(ledger)
    )


def check_target(target: str, inputs: Sequence[str], storage: StorageSettings, *, overwrite: bool) -> None:
    """Refuse a file to write that is one of the ``inputs``, or that exists, unless ``overwrite`` allows replacing it.

    Raises:
        OptionError: it is an input, or nothing can be written there.
        StorageError: it exists, or is no regular file.
    """
    if any(identity(target) in identities(source) for source in inputs):
        raise OptionError(f"{target} is the input: name another file to write")
    check_output(target)
    if not overwrite and exists(target, storage_options(target, storage)):
        raise StorageError(f"cannot write {target}: the file exists. Name another one, or replace it with --overwrite.")


def is_same_file(uri: str, other: str) -> bool:
    """Whether two names are of one file, as far as names, links and inodes show it."""
    return identity(uri) == identity(other)


def identities(uri: str) -> set[str]:
    """The :func:`identity` of a file; of a chained URL, of each file that it is read from."""
    return {identity(link) for link in (uri.split("::") if is_chain(uri) else [uri])}


def identity(uri: str) -> str:
    """The same text for all names of one file: links are resolved, and of a local file its inode counts."""
    if not is_local(uri):
        scheme, sign, path = uri.partition("://")
        return f"{SAME_STORAGE.get(scheme.lower(), scheme.lower())}{sign}{path.rstrip('/')}"
    real = os.path.realpath(local_path(uri))  # not Path.resolve, which raises for a loop of links
    try:
        found = Path(real).stat()
    except OSError:
        return real
    return f"{found.st_dev}:{found.st_ino}"
