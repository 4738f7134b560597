"""Dagster's storage in PostgreSQL with open connections, and one transaction for an event or a batch of events.

``deploy/postgres/dagster.yaml`` names :class:`PostgresStorage`. It has the configuration, tables and contents of
``storage: postgres``, and either can follow the other on one database. It extends classes of Dagster, which offers no
public way to do this.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, NamedTuple

import dagster as dg
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqlEventLogStorageTable
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage, PostgresEventLogStorage
from dagster_postgres.utils import create_pg_connection, get_token_provider_from_config, pg_url_from_config
from psycopg2.extensions import TRANSACTION_STATUS_INERROR  # type: ignore[import-untyped]
from sqlalchemy import Connection, bindparam, text
from sqlalchemy.dialects import postgresql

from interleaved_assets.defs.private_api.stored_events import (
    LOST_EVENTS,
    RENEWED_AFTER_S,
    FewStatements,
    renew_cut_connections,
    unchanged_target,
)

_NO_LIMIT: Final = 0
_ANY_NUMBER: Final = -1
_EVALUATED: Final = ("asset_key", "check_name", "run_id", "partition")
"""What no two rows of evaluations have in common."""

_OPEN: Final = 1_768_842_350
"""Number of the advisory lock that transactions share; nothing else of Dagster takes one with it."""
_LOOK_EVERY_S: Final = 0.01
_LOOK_BACK: Final = 1_000
"""Ids: those of a batch of planned events, the largest transaction."""
# A client that vanishes inside of a transaction would hold its locks until the operating system ends the connection,
# which takes hours. The limit is below the time for which statements of steps wait for such locks, 60 s.
_BEGIN: Final = text(
    "SET LOCAL idle_in_transaction_session_timeout = 30000; SELECT pg_advisory_xact_lock_shared(:open)"
).bindparams(open=_OPEN)
_LOCK_ASSETS: Final = text(
    "SELECT 1 FROM asset_keys WHERE asset_key IN :assets ORDER BY asset_key FOR UPDATE"
).bindparams(bindparam("assets", expanding=True))
_TRANSACTIONS: Final = text(
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND classid = 0"
    " AND objid = :open AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
).bindparams(open=_OPEN)


class _Block(NamedTuple):
    """The transaction of a thread."""

    connection: Connection
    events: list[dg.EventLogEntry]
    """Not stored yet."""
    locked: set[dg.AssetKey]


class PostgresEvents(FewStatements, PostgresEventLogStorage):
    """The event log, with one connection kept open, more while threads need them, and fewer statements.

    By default Dagster opens three connections for an event of an asset, each of which costs both sides the check of
    the password; it commits several times for an event, stores the planned events of a run one by one, and sends a
    ``NOTIFY`` with each event, to which nothing listens.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(*args, **kwargs)
        self.optimize_for_webserver(_NO_LIMIT, RENEWED_AFTER_S, _ANY_NUMBER)

    def optimize_for_webserver(self, statement_timeout: int, pool_recycle: int, max_overflow: int) -> None:
        """Open connections anew, with other limits, as the webserver and steps ask for."""
        self._engine.dispose()
        super().optimize_for_webserver(statement_timeout, pool_recycle, max_overflow)
        renew_cut_connections(self._engine)

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store one event and what is derived from it; in a block of :meth:`transaction`, with the others of it."""
        if block := self._block():
            block.events.append(event)
        else:
            self.store_event_batch([event])

    def store_event_batch(self, events: Sequence[dg.EventLogEntry]) -> None:
        """Store events and what is derived from them in one transaction.

        Dagster calls this for the planned events of a run where ``DAGSTER_EVENT_BATCH_SIZE`` is set.
        """
        # the class that this one extends leaves those out too
        if stored := [event for event in events if not _is_failure_to_materialize(event)]:
            with self.transaction() as block:
                self._store(block, stored)

    def _store(self, block: "_Block", events: Sequence[dg.EventLogEntry]) -> None:
        connection = block.connection
        table = SqlEventLogStorageTable
        insert = table.insert().returning(table.c.id, sort_by_parameter_order=True)
        _lock_assets(block, events)
        logged = [event for event in events if not unchanged_target(event)]
        rows = [self._event_to_row(event) for event in logged]
        ids = connection.execute(insert, rows).scalars() if rows else ()
        stored = list(zip(logged, ids, strict=True))
        stored += [(event, target) for event in events if (target := unchanged_target(event))]
        of_assets = [
            (event, number)
            for event, number in stored
            if event.is_dagster_event
            and event.dagster_event_type in ASSET_EVENTS
            and event.get_dagster_event().asset_key
        ]
        if of_assets:
            self._store_asset_event_tags(connection, *zip(*of_assets, strict=True))
        last = {key: (event, number) for event, number in of_assets if (key := _asset(event))}
        for asset in sorted(last, key=dg.AssetKey.to_string):  # as they are locked: the row of an asset may be new
            self._store_asset_event(connection, *last[asset])  # it holds the asset's last event
        evaluations = []
        for event, number in stored:
            if event.is_dagster_event and event.dagster_event_type in ASSET_CHECK_EVENTS:
                data = event.get_dagster_event().event_specific_data
                if isinstance(data, dg.AssetCheckEvaluation) and data.partition is not None and event.run_id:
                    evaluations.append(self._evaluation_row(event, number, data))
                else:
                    self.store_asset_check_event(event, number)
        if evaluations:
            self._store_evaluations(connection, evaluations)

    def _evaluation_row(
        self, event: dg.EventLogEntry, event_id: int, evaluation: dg.AssetCheckEvaluation
    ) -> dict[str, Any]:
        status, target = AssetCheckExecutionRecordStatus, evaluation.target_materialization_data
        return {
            "asset_key": evaluation.asset_key.to_string(),
            "check_name": evaluation.check_name,
            "run_id": event.run_id,
            "partition": evaluation.partition,
            "execution_status": (status.SUCCEEDED if evaluation.passed else status.FAILED).value,
            "evaluation_event": dg.serialize_value(event),
            "evaluation_event_timestamp": self._event_insert_timestamp(event),
            "evaluation_event_storage_id": event_id,
            "materialization_event_storage_id": target.storage_id if target else None,
        }

    def _store_evaluations(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """The evaluations of partitions, each in place of the row of its planned evaluation, where there is one."""
        last = {tuple(row[name] for name in _EVALUATED): row for row in rows}
        insert = postgresql.insert(AssetCheckExecutionsTable).values(list(last.values()))
        others = {name: insert.excluded[name] for name in rows[0] if name not in _EVALUATED}
        connection.execute(insert.on_conflict_do_update(index_elements=_EVALUATED, set_=others))

    @contextmanager
    def transaction(self) -> Iterator["_Block"]:
        """A transaction in which all statements of this thread take part, those of inner transactions included.

        Its events are stored together, when the block ends or when this thread reads.
        """
        if block := self._block():
            yield block
            return
        with create_pg_connection(self._engine) as opened:
            connection = opened.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                connection.execute(_BEGIN)
                self._of_thread.block = block = _Block(connection, [], set())
                try:
                    yield block
                    self._store_waiting(block)
                    driver: Any = opened.connection.dbapi_connection
                    if driver.info.transaction_status == TRANSACTION_STATUS_INERROR:
                        # PostgreSQL would answer the commit with a rollback, and psycopg2 with nothing
                        raise dg.DagsterInvariantViolationError(LOST_EVENTS)
                finally:
                    del self._of_thread.block

    def _block(self) -> "_Block | None":
        return getattr(self._of_thread, "block", None)

    def _store_waiting(self, block: "_Block") -> None:
        if block.events:
            events = block.events.copy()
            block.events.clear()
            self._store(block, events)

    def _connect(self) -> AbstractContextManager[Connection]:
        block = self._block()
        if block is None:
            return create_pg_connection(self._engine)
        self._store_waiting(block)
        return nullcontext(block.connection)

    def get_maximum_record_id(self) -> int | None:
        """The highest id of an event, once no event with a lower id is still to come.

        Daemons look for events above the id that they were given before. An event has its id from when it is inserted,
        but others see it from the end of the transaction only, which for a batch is up to a second later.
        """
        highest = super().get_maximum_record_id()
        if self._block() is None:
            begun = before = self._transactions()
            while before:
                time.sleep(_LOOK_EVERY_S)
                before = begun & self._transactions()
        return highest

    def default_run_scoped_event_tailer_offset(self) -> int:
        """How many ids executors look back for events of their steps, whose transaction may end after later ids."""
        return _LOOK_BACK

    def _transactions(self) -> set[str]:
        """Those that store events at present, in all processes."""
        with self._connect() as connection:
            return set(connection.execute(_TRANSACTIONS).scalars())

    def has_asset_key_col(self, column_name: str) -> bool:
        """Whether the table of assets has a column. Dagster asks three times for each record of an asset."""
        if column_name not in self._found and super().has_asset_key_col(column_name):
            self._found.add(column_name)
        return column_name in self._found

    def dispose(self) -> None:
        """Close all connections."""
        super().dispose()
        self._engine.dispose()


def _lock_assets(block: _Block, events: Sequence[dg.EventLogEntry]) -> None:
    """Let other transactions with events of these assets wait for the end of this one.

    The ids of an asset's events then have the order of the commits: the UI keeps, for each asset and check, up to
    which id it has seen their events. Several assets are locked in one order everywhere, without deadlocks.
    """
    assets = {asset for event in events if (asset := _asset(event))} - block.locked
    if assets:
        block.connection.execute(_LOCK_ASSETS, {"assets": sorted(key.to_string() for key in assets)})
        block.locked.update(assets)


def _is_failure_to_materialize(event: dg.EventLogEntry) -> bool:
    return event.is_dagster_event and event.get_dagster_event().is_asset_failed_to_materialize


def _asset(event: dg.EventLogEntry) -> dg.AssetKey | None:
    if not event.is_dagster_event:
        return None
    if event.dagster_event_type in ASSET_CHECK_EVENTS:
        return event.get_dagster_event().event_specific_data.asset_key  # type: ignore[union-attr]  # these have one
    return event.get_dagster_event().asset_key


class PostgresStorage(DagsterPostgresStorage):
    """Runs and schedules as Dagster stores them in PostgreSQL, and :class:`PostgresEvents`."""

    def __init__(self, postgres_url: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(postgres_url, *args, **kwargs)
        self._event_log_storage = PostgresEvents(
            postgres_url, self.should_autocreate_tables, token_provider=kwargs.get("token_provider")
        )

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "PostgresStorage":
        """The storage that a section ``storage: custom: config:`` describes, with the keys of ``storage: postgres``."""
        return cls(
            pg_url_from_config(config_value),
            config_value.get("should_autocreate_tables", True),
            inst_data,
            token_provider=get_token_provider_from_config(config_value),
        )
