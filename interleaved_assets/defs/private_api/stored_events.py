"""Private API of Dagster: what its storages of events in SQLite and PostgreSQL share."""

from typing import Final

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._serdes import serialize_value

from interleaved_assets.defs.private_api.events import UNCHANGED

LOST_EVENTS: Final = "events are not stored: a statement of their transaction failed, and its error was caught"


def unchanged_target(event: dg.EventLogEntry) -> int | None:
    """The id of the materialization that an evaluation marked with ``UNCHANGED`` is about; None for other events."""
    if not event.is_dagster_event or event.dagster_event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    evaluation = event.get_dagster_event().asset_check_evaluation_data
    target = evaluation.target_materialization_data
    return target.storage_id if target and UNCHANGED in evaluation.metadata else None


def store_planned_checks(storage: SqlEventLogStorage, event: dg.EventLogEntry, event_id: int | None) -> None:
    """A row for each partition of a planned check. By default each row also holds the names of all of its run's."""
    of_run = event.get_dagster_event()
    planned = of_run.event_specific_data
    assert isinstance(planned, AssetCheckEvaluationPlanned)
    subset = planned.partitions_subset
    of_rows = AssetCheckEvaluationPlanned(asset_key=planned.asset_key, check_name=planned.check_name)
    row = {
        "asset_key": planned.asset_key.to_string(),
        "check_name": planned.check_name,
        "run_id": event.run_id,
        "execution_status": AssetCheckExecutionRecordStatus.PLANNED.value,
        "evaluation_event": serialize_value(event._replace(dagster_event=of_run._replace(event_specific_data=of_rows))),
        "evaluation_event_timestamp": storage._event_insert_timestamp(event),
        "evaluation_event_storage_id": event_id,
    }
    rows = [row | {"partition": key} for key in (subset.get_partition_keys() if subset else [None])]
    with storage.index_connection() as connection:
        connection.execute(AssetCheckExecutionsTable.insert(), rows)
