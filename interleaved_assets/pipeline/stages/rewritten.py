"""The stage ``rewritten``: the rows after the functions of ``[rewriting]``, and the ledger of what they changed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.reader import parquet_shard_schema
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.model.columns import INTERLEAVED_COLUMNS
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.checks.keys_unique import KEYS_UNIQUE
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.run.counts import column_facts, counts_of_raw, write_kept
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import (
    ShardTask,
    Stage,
    StageDisplay,
    StageOutput,
    Work,
    columns_of,
    last_with_rows,
)
from interleaved_assets.pipeline.stages.names import REWRITTEN
from interleaved_assets.rewriting.changes import CHANGED, CHANGES_SCHEMA
from interleaved_assets.rewriting.functions import load_function
from interleaved_assets.rewriting.rewrite import rewrite
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import CHANGES


def rewrite_rows(shard: ShardTask) -> Work:
    """Write the rows after all functions, the ledger of the dropped rows, and the ledger of changes."""
    (before,) = shard.read
    functions = {name: load_function(name) for name in shard.settings.rewriting.functions}
    schema = parquet_shard_schema(shard.paths.output(before), storage_options=shard.options)
    changed = Counter[str]()
    with (
        parquet_shard(shard.paths.ledger(REWRITTEN), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.other(CHANGES), CHANGES_SCHEMA, storage_options=shard.options) as changes_file,
        parquet_shard(shard.paths.output(REWRITTEN), schema, storage_options=shard.options) as rows_file,
    ):

        def choose(table: pa.Table) -> tuple[pa.Table, pa.Table]:
            result = rewrite(table, functions, stage=REWRITTEN, shard=shard.key)
            changed.update(_changed_rows(result.changes))
            changes_file.write(result.changes)
            return result.rows, result.ledger

        name = f"shard {shard.key}, {REWRITTEN}"
        facts, dropped = write_kept(prefetch(shard.rows_of(before, with_bytes=False)), choose, rows_file.write, name)
        ledger_file.write(dropped)
    return Work(
        outputs={
            "rows": OutputFile.of(rows_file.output),
            "ledger": OutputFile.of(ledger_file.output),
            CHANGES: OutputFile.of(changes_file.output),
        },
        **facts.model_dump(include={"counts_in", "counts_out", "dropped"}),
        **column_facts(rows_file.schema),
        counted=facts.counted | counts_of_raw(shard.read[before]),
        notes={f"rows_changed/{function}": changed[function] for function in functions},
    )


def _changed_rows(changes: pa.Table) -> dict[str, int]:
    functions = changes.filter(pc.equal(changes["kind"], CHANGED))["function"]
    return {line["values"]: line["counts"] for line in pc.value_counts(functions).to_pylist()}


def _connect(stage: Stage, settings: Settings, before: Sequence[Stage]) -> Stage | None:
    if not settings.rewriting.functions:
        return None
    rows = last_with_rows(before)
    return replace(
        stage,
        inputs=(rows,),
        made_from=lambda column, _: columns_of(rows, column),
        decided_by=lambda _: columns_of(rows, "modality", "text_content"),
    )


STAGE: Final = Stage(
    REWRITTEN,
    version=1,
    settings=lambda settings: settings.rewriting.model_dump(mode="json"),
    run=rewrite_rows,
    checks=(ROWS_ACCOUNTED_FOR, SCHEMA_CANONICAL, KEYS_UNIQUE),
    columns=lambda _: INTERLEAVED_COLUMNS,
    connect=_connect,
    output=StageOutput("rows", (CHANGES,), hides_dropped_texts=True, keeps_images=True),
    display=StageDisplay(
        "The rows of normalized after the functions of [rewriting]: texts are changed or dropped, images and other "
        "rows are as before. One ledger lists each change with its reason and the hash and length of the text "
        "before and after, another the dropped rows.",
        "ingest",
        frozenset({"parquet"}),
    ),
)
