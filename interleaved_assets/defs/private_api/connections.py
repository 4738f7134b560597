"""Private API of Dagster: a run's connections to PostgreSQL and SQLite are kept, and events stored in one transaction.

Apart from ``events.py``, because SQLAlchemy takes 0.5 s to import: a run needs it, the definitions do not.
"""

from contextlib import AbstractContextManager, nullcontext
from select import POLLIN, poll
from typing import Any, Final
from weakref import WeakSet

import dagster as dg
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import Engine
from sqlalchemy.event import listens_for
from sqlalchemy.exc import DisconnectionError

from interleaved_assets.defs.private_api.sqlite_events import SqliteEvents

__all__ = ["events_together", "keep_connections"]

_STATEMENT_MS: Final = 60_000
RENEWED_AFTER_S: Final = 30
"""Age at which a connection to a server is renewed: one that was idle for longer may have been closed on the way."""
_EXTRA_CONNECTIONS: Final = 4  # besides the pooled one, for threads

_kept: Final[WeakSet[dg.DagsterInstance]] = WeakSet()


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Let ``instance`` reuse its connections to PostgreSQL, and to the SQLite files of events.

    By default a new connection is opened for every statement, and an event takes several. An instance with Dagster's
    own storage in SQLite, as without our ``dagster.yaml``, gets :class:`SqliteEvents` for its events.
    """
    if instance in _kept:
        return
    _kept.add(instance)
    instance.optimize_for_webserver(
        statement_timeout=_STATEMENT_MS, pool_recycle=RENEWED_AFTER_S, max_overflow=_EXTRA_CONNECTIONS
    )
    events = instance.event_log_storage
    for storage in (instance.run_storage, instance.schedule_storage, events):
        engine = getattr(storage, "_engine", None)
        if isinstance(engine, Engine) and engine.dialect.name == "postgresql":
            renew_cut_connections(engine)
    if type(events) is SqliteEventLogStorage:
        instance._event_storage = SqliteEvents(events._base_dir, events.inst_data)
        instance._event_storage.register_instance(instance)


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
    transaction = getattr(instance.event_log_storage, "transaction", nullcontext)
    return transaction()
