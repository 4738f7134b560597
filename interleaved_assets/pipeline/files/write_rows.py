"""Write the rows of a shard file that stay, and the ledger of those that do not."""

import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa

from interleaved_assets.io.formats.shard import read_file, write_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.storage import check_output, exists, is_local, local_path
from interleaved_assets.io.storage.filesystem import is_chain
from interleaved_assets.io.storage.options import SAME_STORAGE
from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.files.inputs import ShardFile
from interleaved_assets.pipeline.run.counts import Choose, column_facts, write_kept
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import Work
from interleaved_assets.pipeline.stages.normalized import read_options
from interleaved_assets.settings import Settings, StorageSettings

STAGE: Final = "read"
"""The stage in the ledger of rows that the error policy drops."""


def write_rows(
    file: ShardFile,
    target: str,
    ledger_uri: str,
    settings: Settings,
    choose: Choose,
    check_input: Callable[[], None] = lambda: None,
) -> Work:
    """Read a shard, apply the error policy and ``choose``, and write what stays to ``target``, by its ending.

    Args:
        choose: of the rows that the error policy leaves.
        check_input: called once all of the input was read, before an output appears; what it raises discards them.
    """

    def keep(table: pa.Table) -> tuple[pa.Table, pa.Table]:
        kept, dropped = apply_error_policy(table, settings.errors.on_materialize_error, shard=file.uri, stage=STAGE)
        kept, not_chosen = choose(kept)
        return kept, pa.concat_tables([dropped, not_chosen])

    tables = read_file(file.uri, read_options(file.uri, settings))
    first = next(tables)
    # contexts close in reverse order, so the ledger is committed first: no rows exist without their ledger
    with (
        write_shard(
            target,
            first.schema,
            storage_options=settings.storage.options_for(target),
            limits=settings.limits.for_tars(),
        ) as rows_file,
        parquet_shard(
            ledger_uri, LEDGER_SCHEMA, storage_options=settings.storage.options_for(ledger_uri)
        ) as ledger_file,
    ):
        facts, ledger = write_kept(chain([first], tables), keep, rows_file.write, file.uri)
        ledger_file.write(ledger)
        check_input()
    return Work(
        outputs={"rows": OutputFile.of(rows_file.output), "ledger": OutputFile.of(ledger_file.output)},
        **facts.model_dump(exclude={"columns", "required", "counted"}),
        **column_facts(first.schema),
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
    if not overwrite and exists(target, storage.options_for(target)):
        raise StorageError(f"cannot write {target}: the file exists. Name another one, or replace it with --overwrite.")


def identities(uri: str) -> set[str]:
    """Return the :func:`identity` of a file; for a chained URL, those of all files that it is read from."""
    return {identity(link) for link in (uri.split("::") if is_chain(uri) else [uri])}


def identity(uri: str) -> str:
    """Return the same text for all names of one file. Links are resolved, and local files are told apart by inode."""
    if not is_local(uri):
        scheme, sign, path = uri.partition("://")
        return f"{SAME_STORAGE.get(scheme.lower(), scheme.lower())}{sign}{path.rstrip('/')}"
    real = os.path.realpath(local_path(uri))  # not Path.resolve, which raises for a loop of links
    try:
        found = Path(real).stat()
    except OSError:
        return real
    return f"{found.st_dev}:{found.st_ino}"
