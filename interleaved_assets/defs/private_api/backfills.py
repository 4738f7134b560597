"""Private API of Dagster: what open backfills have left to do.

Apart from ``events.py``, because Dagster takes 0.1 s to import its backfills: a tick needs them, the definitions
do not.
"""

from collections.abc import Sequence

import dagster as dg
from dagster._core.errors import DagsterDefinitionChangedDeserializationError
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

__all__ = ["shards_awaiting_backfill"]


def shards_awaiting_backfill(
    context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, registered: Sequence[str]
) -> set[str]:
    """Shards of ``registered`` that an open backfill has not finished, including those that are not in a run yet: a
    backfill queues its runs one after another, which takes minutes.
    """
    waiting: set[str] = set()
    for backfill in context.instance.get_backfills(filters=BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED])):
        if not backfill.is_asset_backfill:
            waiting.update(backfill.partition_names or ())
            continue
        try:
            assert context.repository_def is not None  # the daemon sets it
            data = backfill.get_asset_backfill_data(context.repository_def.asset_graph)
        except DagsterDefinitionChangedDeserializationError:
            continue  # its assets no longer exist: it ends as failed
        left = data.target_subset - data.materialized_subset - data.failed_and_downstream_subset
        waiting.update(item.partition_key for item in left.iterate_asset_partitions() if item.partition_key is not None)
    return waiting & set(registered)
