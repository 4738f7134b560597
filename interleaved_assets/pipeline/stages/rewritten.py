"""The stage ``rewritten``: the rows after the functions of ``[rewriting]``, and the ledger of what they changed."""

from collections.abc import Sequence
from typing import Final

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS
from interleaved_assets.pipeline.checks.keys_unique import KEYS_UNIQUE
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.run.stage import Stage, StageDisplay, StageOutput, columns_of, work
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.pipeline.stages.names import REWRITTEN as NAME
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import CHANGES

WORK: Final = "interleaved_assets.pipeline.tasks.rewritten:rewrite_rows"
OUTPUT: Final = StageOutput("rows", (CHANGES,))


def declare(settings: Settings, _: Sequence[Stage]) -> Stage | None:
    """Return the stage, if ``rewriting.functions`` names one, else None."""
    if not settings.rewriting.functions:
        return None
    return Stage(
        NAME,
        (NORMALIZED,),
        version=1,
        settings=lambda settings: settings.rewriting.model_dump(mode="json"),
        run=work(WORK),
        checks=(ROWS_ACCOUNTED_FOR, SCHEMA_CANONICAL, KEYS_UNIQUE),
        columns=lambda _: INTERLEAVED_COLUMNS,
        made_from=lambda column, _: columns_of(NORMALIZED, column),
        decided_by=lambda _: columns_of(NORMALIZED, "modality", "text_content"),
        output=OUTPUT,
        display=StageDisplay(
            "The rows of normalized after the functions of [rewriting]: texts are changed or dropped, images and other "
            "rows are as before. One ledger lists each change with its reason and the hash and length of the text "
            "before and after, another the dropped rows.",
            "ingest",
            frozenset({"parquet"}),
        ),
    )
