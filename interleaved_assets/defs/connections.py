"""Connections to Dagster's database, kept open while a run logs.

PostgreSQL storage opens a new connection for every statement, and an event takes several: that is most of what an event
costs. Dagster keeps connections open for its webserver; a run that logs hundreds of events has the same need.
"""

from typing import Final
from weakref import WeakSet

import dagster as dg

_STATEMENT_MS: Final = 60_000
_RENEWED_AFTER_S: Final = 30  # a connection that idled while a long shard was worked on may have been dropped
_EXTRA: Final = 4  # besides the one that is kept, for threads

_kept: Final[WeakSet[dg.DagsterInstance]] = WeakSet()


def keep_connections(instance: dg.DagsterInstance) -> None:
    """From here on ``instance`` uses its connections again; a storage without connections takes no notice."""
    if instance not in _kept:
        instance.optimize_for_webserver(
            statement_timeout=_STATEMENT_MS, pool_recycle=_RENEWED_AFTER_S, max_overflow=_EXTRA
        )
        _kept.add(instance)
