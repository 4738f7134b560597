"""Private API of Dagster: its connections to PostgreSQL and SQLite are kept, and events stored in one transaction.

Apart from ``events.py``, because SQLAlchemy takes 0.5 s to import: a run needs it, the definitions do not.
"""

import fcntl
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from select import POLLIN, poll
from threading import Lock, get_ident
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.legacy_storage import LegacyEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import serialize_value
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.event import listens_for
from sqlalchemy.exc import DisconnectionError, OperationalError
from sqlalchemy.pool import NullPool, StaticPool

__all__ = ["events_together", "keep_connections"]

_STATEMENT_MS: Final = 60_000
RENEWED_AFTER_S: Final = 30
"""Age at which a connection to a server is renewed: one that was idle for longer may have been closed on the way."""
_EXTRA_CONNECTIONS: Final = 4  # besides the pooled one, for threads
_KEPT_FILES: Final = 4  # of SQLite; a step uses the index and the file of its run

_WAITS: Final = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}
LOST_EVENTS: Final = "events are not stored: a statement of their transaction failed, and its error was caught"

_Transaction = Callable[[], AbstractContextManager[object]]
_transactions: Final[WeakKeyDictionary[dg.DagsterInstance, _Transaction]] = WeakKeyDictionary()
"""Of the instances with kept connections."""


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Let ``instance`` reuse its connections to PostgreSQL, and to the SQLite files of events.

    By default a new connection is opened for every statement, and an event takes several. For SQLite, Dagster also
    compiles every statement again, and SQLite writes its log back into the file whenever the last connection closes.
    """
    if instance in _transactions:
        return
    instance.optimize_for_webserver(
        statement_timeout=_STATEMENT_MS, pool_recycle=RENEWED_AFTER_S, max_overflow=_EXTRA_CONNECTIONS
    )
    events = instance.event_log_storage
    if isinstance(events, LegacyEventLogStorage):  # of an instance with ``storage:`` in its dagster.yaml
        events = events._storage.event_log_storage
    for storage in {instance.run_storage, instance.schedule_storage, events}:
        engine = getattr(storage, "_engine", None)
        if isinstance(engine, Engine) and engine.dialect.name == "postgresql":
            renew_cut_connections(engine)
    if isinstance(events, SqliteEventLogStorage) and not hasattr(events, "transaction"):
        keep_files_open(events)
    _transactions[instance] = getattr(events, "transaction", nullcontext)  # Dagster's own in PostgreSQL has none


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


def events_together(instance: dg.DagsterInstance) -> AbstractContextManager[object]:
    """A block whose events are stored in one transaction: all of them or, where it raises, none.

    After :func:`keep_connections`, and except with Dagster's own storage in PostgreSQL, which commits each statement.
    Other threads and runs that store events wait until the block ends.
    """
    return _transactions.get(instance, nullcontext)()


def keep_files_open(storage: SqliteEventLogStorage) -> None:
    """Let ``storage`` keep its connections to the files of events, and store events in transactions of several."""
    files = _SqliteFiles(storage)
    storage._connect = files.connect  # type: ignore[method-assign]
    storage.has_table = files.has_table  # type: ignore[method-assign]
    storage.store_event = files.store_event  # type: ignore[method-assign]
    storage.store_event_batch = files.store_event_batch  # type: ignore[method-assign]
    storage.dispose = files.dispose  # type: ignore[method-assign]
    storage._store_asset_check_evaluation_planned = partial(store_planned_checks, storage)  # type: ignore[method-assign]
    storage.transaction = files.transaction  # type: ignore[attr-defined]


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


class _Kept(NamedTuple):
    engine: Engine
    file: int | None


class _SqliteFiles:
    """The SQLite files of ``storage`` with one open connection each: the index of all runs, and the runs used last."""

    def __init__(self, storage: SqliteEventLogStorage) -> None:
        self._storage = storage
        self._look_for_table = storage.has_table
        self._store_event = storage.store_event
        self._dispose_storage = storage.dispose
        self._tables: set[str] = set()
        self._engines: OrderedDict[str, _Kept] = OrderedDict()
        self._changes: dict[str, int] = {}  # by file, rows changed by its connection
        self._transactions = Lock()  # held by a thread during its transaction
        self._thread: int | None = None  # that has a transaction open
        self._in_transaction: dict[str, Connection] = {}  # by file, in the order in which it was used first
        self._has_failed = False  # a statement of the transaction
        self._messages: list[dg.EventLogEntry] = []  # that other threads have logged during the transaction
        self._messages_lock = Lock()

    @contextmanager
    def connect(self, shard: str) -> Iterator[Connection]:
        """Does what ``SqliteEventLogStorage._connect`` does: a transaction, of one thread at a time."""
        if self._thread == get_ident():
            if shard not in self._in_transaction:
                connection = self._open(shard).connect()
                connection.begin()
                self._in_transaction[shard] = connection
            try:
                yield self._in_transaction[shard]
            except OperationalError:  # the disk is full: SQLite has rolled back, and would commit what follows
                self._has_failed = True
                raise
        else:
            with self._storage._db_lock, self._open(shard).connect() as connection:
                with connection.begin():
                    yield connection
                self._show(shard, connection)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction for each file that this thread uses in the block."""
        if self._thread == get_ident():
            yield  # inside of another one
            return
        with self._transactions:
            with self._messages_lock:
                self._thread = get_ident()
            try:
                with self._storage._db_lock:
                    yield from self._commit_or_roll_back()
            finally:
                with self._messages_lock:
                    self._thread = None
                    messages, self._messages = self._messages, []
                    for message in messages:
                        self._store_event(message)

    def _commit_or_roll_back(self) -> Iterator[None]:
        self._has_failed = False
        try:
            yield
            if self._has_failed:
                raise dg.DagsterInvariantViolationError(LOST_EVENTS)
            for shard, connection in self._in_transaction.items():
                connection.commit()
                self._show(shard, connection)
        finally:
            for connection in self._in_transaction.values():
                connection.close()  # rolls back what is not committed
            self._in_transaction.clear()

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Does what ``SqliteEventLogStorage.store_event`` does; log messages do not wait for another thread's block.

        A thread that logs holds the lock of Dagster's log handler, for which the events of the block wait. Therefore
        the thread of the block stores such messages when it ends, and Dagster's that a message could not be stored.
        """
        if event.is_dagster_event and event.dagster_event_type != dg.DagsterEventType.ENGINE_EVENT:
            self._store_event(event)
            return
        with self._messages_lock:  # no block begins before the message is stored
            if self._thread in (None, get_ident()):
                self._store_event(event)
            else:
                self._messages.append(event)

    def _show(self, shard: str, connection: Connection) -> None:
        """Change the file's time where the connection has changed its content since the last call.

        Who watches a run, as its page in the UI does, waits for a change of the file; SQLite itself writes to another
        one while a connection is open.
        """
        changes = connection.connection.dbapi_connection.total_changes  # type: ignore[union-attr]
        if changes != self._changes.get(shard, 0):  # a connection that only reads leaves the time
            self._changes[shard] = changes
            os.utime(self._storage.path_for_shard(shard))

    def store_event_batch(self, events: Sequence[dg.EventLogEntry]) -> None:
        """Store events in one transaction for each file; of planned ones where ``DAGSTER_EVENT_BATCH_SIZE`` is set."""
        with self.transaction():
            for event in events:
                self._storage.store_event(event)

    def _open(self, shard: str) -> Engine:
        kept = self._engines.pop(shard, None)
        file = self._file(shard)
        if kept is not None and kept.file != file:  # it was deleted, as by ``dagster run wipe``
            kept.engine.dispose()
            self._changes.pop(shard, None)
            kept = None
            file = None
        if file is None:
            self._storage._initialized_dbs.discard(shard)
        url = self._storage.conn_string_for_shard(shard)
        if shard not in self._storage._initialized_dbs:  # makes the tables of a new run
            path = Path(self._storage.path_for_shard(shard))
            with one_process(path.parent):
                remove_leftovers(path)
                engine = create_engine(url, poolclass=NullPool, connect_args=_WAITS)
                self._storage._initdb(engine, for_index_shard=shard == INDEX_SHARD_NAME)
            self._storage._initialized_dbs.add(shard)
        self._engines[shard] = kept = kept or _Kept(_engine(url), self._file(shard))
        while len(self._engines) > _KEPT_FILES and not self._in_transaction:
            oldest, unused = self._engines.popitem(last=False)
            unused.engine.dispose()
            self._changes.pop(oldest, None)
        return kept.engine

    def dispose(self) -> None:
        """Close all files. Otherwise they stay open until Python's garbage collector finds the storage."""
        self._dispose_storage()
        with self._storage._db_lock:
            for kept in self._engines.values():
                kept.engine.dispose()
            self._engines.clear()
            self._changes.clear()

    def _file(self, shard: str) -> int | None:
        """The number of the file on its disk; None where there is none."""
        try:
            return Path(self._storage.path_for_shard(shard)).stat().st_ino
        except FileNotFoundError:
            return None

    def has_table(self, table_name: str) -> bool:
        """Whether the index has a table. Dagster asks several times for an event; a table that was found stays."""
        if table_name not in self._tables and self._look_for_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Let others wait that make files of a storage in this folder at the same time.

    Services that make a new storage together have damaged it: Dagster's own code makes the tables of one of them twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # also gives the lock back


def remove_leftovers(file: Path) -> None:
    """Remove SQLite's log and its index where ``file`` itself was deleted, as by hand, while a process had it open.

    SQLite takes them for those of a new file, which is then damaged.
    """
    left = [part for part in (Path(f"{file}-wal"), Path(f"{file}-shm")) if part.exists()]
    if not file.exists():
        for part in left:
            part.unlink(missing_ok=True)


def _engine(url: str) -> Engine:
    engine = create_engine(
        url,
        poolclass=StaticPool,
        connect_args=_WAITS | {"check_same_thread": False},
    )

    @listens_for(engine, "connect")
    def begin(connection: sqlite3.Connection, _: object) -> None:
        # With SQLite's log, a commit need not wait for the disk: what a power failure takes is the last events, whole
        # ones. Outputs and their records do wait.
        connection.execute("PRAGMA synchronous = NORMAL")

    return engine
