"""Private API of Dagster: what our storages of events in SQLite and PostgreSQL share, in part with Dagster's own."""

from select import POLLIN, poll
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from sqlalchemy import Engine
from sqlalchemy.event import listens_for
from sqlalchemy.exc import DisconnectionError

UNCHANGED: Final = "unchanged"
"""Metadata key of an evaluation about a shard that was not made anew. Our storages store it in the table of
evaluations, from which the UI shows checks, and not as an event too."""
LOST_EVENTS: Final = "events are not stored: a statement of their transaction failed, and its error was caught"
RENEWED_AFTER_S: Final = 30
"""Age at which a connection to a server is renewed: one that was idle for longer may have been closed on the way."""


def unchanged_target(event: dg.EventLogEntry) -> int | None:
    """The id of the materialization that an evaluation marked with ``UNCHANGED`` is about; None for other events."""
    if not event.is_dagster_event or event.dagster_event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    evaluation = event.get_dagster_event().asset_check_evaluation_data
    target = evaluation.target_materialization_data
    return target.storage_id if target and UNCHANGED in evaluation.metadata else None


class FewStatements(SqlEventLogStorage):
    """A storage that does not ask again for a table that it has found, and stores short rows of planned checks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._found: set[str] = set()  # tables and columns
        super().__init__(*args, **kwargs)

    def has_table(self, table_name: str) -> bool:
        """Whether a table exists. Dagster asks several times for an event; a table that was found stays."""
        if table_name not in self._found and super().has_table(table_name):  # type: ignore[safe-super]
            self._found.add(table_name)
        return table_name in self._found

    def _store_asset_check_evaluation_planned(self, event: dg.EventLogEntry, event_id: int | None) -> None:
        """A row for each partition of a planned check. By default each row also holds the names of all of its run's."""
        of_run = event.get_dagster_event()
        planned = of_run.event_specific_data
        assert isinstance(planned, AssetCheckEvaluationPlanned)
        subset = planned.partitions_subset
        of_rows = of_run._replace(
            event_specific_data=AssetCheckEvaluationPlanned(asset_key=planned.asset_key, check_name=planned.check_name)
        )
        row = {
            "asset_key": planned.asset_key.to_string(),
            "check_name": planned.check_name,
            "run_id": event.run_id,
            "execution_status": AssetCheckExecutionRecordStatus.PLANNED.value,
            "evaluation_event": dg.serialize_value(event._replace(dagster_event=of_rows)),
            "evaluation_event_timestamp": self._event_insert_timestamp(event),
            "evaluation_event_storage_id": event_id,
        }
        rows = [row | {"partition": key} for key in (subset.get_partition_keys() if subset else [None])]
        with self.index_connection() as connection:
            connection.execute(AssetCheckExecutionsTable.insert(), rows)


def renew_cut_connections(engine: Engine) -> None:
    """Let ``engine``, of PostgreSQL, open a connection anew that the server has closed, as where it was restarted.

    Otherwise the first statement fails, and the event is lost. Only a connection at which something has arrived that
    was not asked for is tried with a statement.
    """

    @listens_for(engine, "checkout")
    def look(connection: Any, _: object, __: object) -> None:
        try:
            arrived = poll()  # unlike select(), also where the process has opened more than 1,024 files
            arrived.register(connection.fileno(), POLLIN)
            if arrived.poll(0):
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error
