"""Dagster's storage in SQLite with open files, and transactions of several events; ``dagster.yaml`` names it.

It has the files and contents of Dagster's own storage, and either can follow the other in one folder.
"""

import errno
import fcntl
import os
import sqlite3
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, Final

import dagster as dg
from dagster._core.instance import MayHaveInstanceWeakref
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.event import listens_for
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from interleaved_assets.defs.private_api.stored_events import LOST_EVENTS, FewStatements, unchanged_target

_KEPT_FILES: Final = 4  # a step uses the index and the file of its run
_WAITS: Final[dict[str, Any]] = {"timeout": 30.0}  # seconds, as in Dagster's own storage
# without SQLite's own, such as what ANALYZE leaves, which no statement may make
_TABLES: Final = r"SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"
_NO_LOCKS: Final = (errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # EBADF: of what is open for reading


@dataclass
class _OpenFile:
    engine: Engine
    """With one connection."""
    number: int | None
    """Of the file on its disk."""
    changes: int = 0
    """Rows that the connection had changed when the file's time was last set."""


class SqliteEvents(FewStatements, SqliteEventLogStorage):
    """Dagster's events in SQLite, with one open connection to the index of all runs, and to the runs used last.

    By default Dagster opens and closes a connection for each statement and compiles it again, and SQLite writes its log
    back into the file whenever the last connection closes.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()  # the one used last at the end
        self._transactions = Lock()  # held by a thread during its transaction
        self._thread: int | None = None  # that has a transaction open
        self._in_transaction: dict[str, Connection] = {}  # by file, in the order in which it was used first
        self._has_failed = False  # a statement of the transaction
        self._messages: list[dg.EventLogEntry] = []  # that other threads have logged during the transaction
        self._messages_lock = Lock()
        super().__init__(base_dir, inst_data)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        """A transaction of one thread at a time, in the file ``shard``."""
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
            with self._db_lock, self._open(shard).connect() as connection:
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
            try:  # an interrupt may be raised anywhere in it
                with self._messages_lock:
                    self._thread = get_ident()
                with self._db_lock:
                    yield from self._commit_or_roll_back()
            finally:
                with self._messages_lock:
                    self._thread = None
                    messages, self._messages = self._messages, []
                    for message in messages:
                        try:
                            super().store_event(message)
                        # raised, the events of the block would be stored again; without a message Dagster goes on too
                        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
                            sys.stderr.write(f"Exception while writing a log message to event log: {error}\n")

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
        """Store an event; log messages do not wait for another thread's block.

        A thread that logs holds the lock of Dagster's log handler, for which the events of the block wait. Therefore
        the thread of the block stores such messages when it ends, and Dagster's that a message could not be stored.
        """
        if materialization := unchanged_target(event):
            self.store_asset_check_event(event, materialization)
            return
        if event.is_dagster_event and event.dagster_event_type != dg.DagsterEventType.ENGINE_EVENT:
            super().store_event(event)
            return
        with self._messages_lock:  # no block begins before the message is stored
            if self._thread in (None, get_ident()):
                super().store_event(event)
            else:
                self._messages.append(event)

    def store_event_batch(self, events: Sequence[dg.EventLogEntry]) -> None:
        """Store events in one transaction for each file; of planned ones where ``DAGSTER_EVENT_BATCH_SIZE`` is set."""
        with self.transaction():
            for event in events:
                self.store_event(event)

    def dispose(self) -> None:
        """Close all files. Otherwise they stay open until Python's garbage collector finds the storage."""
        super().dispose()
        with self._db_lock:
            for file in self._files.values():
                file.engine.dispose()
            self._files.clear()

    def _open(self, shard: str) -> Engine:
        path = Path(self.path_for_shard(shard))
        file = self._files.pop(shard, None)
        number = _number(path)
        if file is not None and file.number != number:  # it was deleted, as by ``dagster run wipe``
            file.engine.dispose()
            file = number = None
        if number is None:
            self._initialized_dbs.discard(shard)
        url = self.conn_string_for_shard(shard)
        if shard not in self._initialized_dbs:
            if shard != INDEX_SHARD_NAME:
                self._open(INDEX_SHARD_NAME)  # makes that file, where it was deleted
            engine = create_engine(url, poolclass=NullPool, connect_args=_WAITS)
            self._initdb(engine, for_index_shard=shard == INDEX_SHARD_NAME)
            self._initialized_dbs.add(shard)
        self._files[shard] = file = file or _OpenFile(_engine(url), _number(path))
        while len(self._files) > _KEPT_FILES and not self._in_transaction:
            _, unused = self._files.popitem(last=False)
            unused.engine.dispose()
        return file.engine

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        """Make the tables of a file, by one process at a time: several have damaged it, or made it in two versions."""
        file = Path(self.path_for_shard(INDEX_SHARD_NAME) if for_index_shard else str(engine.url.database))
        with one_process(file.parent):
            _remove_leftovers(file)
            if for_index_shard:
                super()._initdb(engine, for_index_shard=True)
            else:
                _make_tables(file, Path(self.path_for_shard(INDEX_SHARD_NAME)))

    def _show(self, shard: str, connection: Connection) -> None:
        """Change the file's time where the connection has changed its content since the last call.

        Who watches a run, as its page in the UI does, waits for a change of the file; SQLite itself writes to another
        one while a connection is open.
        """
        changes = connection.connection.dbapi_connection.total_changes  # type: ignore[union-attr]
        if changes != self._files[shard].changes:  # a connection that only reads leaves the time
            self._files[shard].changes = changes
            os.utime(self.path_for_shard(shard))


def _number(file: Path) -> int | None:
    """The number of ``file`` on its disk; None where there is none."""
    try:
        return file.stat().st_ino
    except FileNotFoundError:
        return None


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Let others wait that make files of a storage in this folder at the same time.

    A file system without locks of folders, as NFS is, is used as Dagster's own storage uses it: without.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)  # also gives the lock back


def _make_tables(run: Path, index: Path) -> None:
    """Make the file of a new run with the tables of the index, which are the same.

    Dagster's own way loads all of its migrations for it, which takes a tenth of a second.
    """
    with closing(sqlite3.connect(index, **_WAITS)) as connection:
        made = connection.execute(_TABLES).fetchall()
        stamped = any(name == "alembic_version" for name, _ in made)  # not by Dagster of 2024 and before
        revisions = connection.execute("SELECT version_num FROM alembic_version").fetchall() if stamped else []
    with closing(sqlite3.connect(run, isolation_level=None, **_WAITS)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            return  # it is made; to look at a run does not wait for the process that writes to it
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")  # others that open the file wait
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            for _, statement in made:
                connection.execute(statement)
            for revision in revisions:
                connection.execute("INSERT INTO alembic_version VALUES (?)", revision)
        connection.execute("COMMIT")


def _remove_leftovers(file: Path) -> None:
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


class SqliteStorage(DagsterSqliteStorage):
    """Runs and schedules as Dagster stores them in SQLite, and :class:`SqliteEvents`, in the daemon too.

    Without ``base_dir`` the files are in the folder of the instance, as with Dagster's default storage: the one that
    ``DAGSTER_HOME`` names, also where that begins with ``~``, or the temporary one that ``dagster dev`` and ``dagster
    definitions validate`` make without ``DAGSTER_HOME``.
    """

    def __init__(self, base_dir: str | None = None, inst_data: ConfigurableClassData | None = None) -> None:
        self._run_storage = _Runs(base_dir)
        self._event_log_storage = _Events(base_dir)
        self._schedule_storage = _Schedules(base_dir)
        self._inst_data = inst_data

    @classmethod
    def config_type(cls) -> dict[str, dg.Field]:
        """``base_dir``, which may be left out."""
        return {"base_dir": dg.Field(dg.StringSource, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "SqliteStorage":
        """The storage below the folder ``base_dir``, or without it below that of the instance."""
        base_dir = config_value.get("base_dir")
        return cls(base_dir and str(Path(base_dir).expanduser()), inst_data)


class _OpenedWithInstance(MayHaveInstanceWeakref[dg.DagsterInstance]):
    """A storage that opens its files when the instance is registered.

    Dagster takes the three storages from the unified one before there is an instance, and registers the instance with
    each of them before it uses it.
    """

    def __init__(self, base_dir: str | None) -> None:
        self._root = base_dir

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        root = self._root or instance.root_directory
        with one_process(Path(root)):
            self.open(root)
        super().register_instance(instance)

    def open(self, root: str) -> None:
        raise NotImplementedError


class _Events(_OpenedWithInstance, SqliteEvents):
    def open(self, root: str) -> None:
        SqliteEvents.__init__(self, f"{root}/history/runs")


class _Runs(_OpenedWithInstance, SqliteRunStorage):
    def open(self, root: str) -> None:
        vars(self).update(vars(SqliteRunStorage.from_local(f"{root}/history")))


class _Schedules(_OpenedWithInstance, SqliteScheduleStorage):
    def open(self, root: str) -> None:
        vars(self).update(vars(SqliteScheduleStorage.from_local(f"{root}/schedules")))
