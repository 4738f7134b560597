"""The stage ``rewritten``: the rows after the functions of ``[rewriting]``, and the ledger of what they changed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS
from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.keys_unique import KEYS_UNIQUE
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.run.stage import (
    Stage,
    StageDisplay,
    StageOutput,
    columns_of,
    last_with_rows,
)
from interleaved_assets.pipeline.stages.names import REWRITTEN
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import CHANGES


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
    run=imported("interleaved_assets.pipeline.tasks.rewritten:rewrite_rows"),
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
