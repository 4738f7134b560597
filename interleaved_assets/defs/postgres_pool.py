"""A plugin of SQLAlchemy that keeps connections to PostgreSQL open; ``deploy/postgres/dagster.yaml`` names it.

Dagster opens a connection for nearly every statement, which costs more than the statement.
"""

from typing import Any

from sqlalchemy import URL
from sqlalchemy.engine import CreateEnginePlugin
from sqlalchemy.pool import QueuePool


class PooledConnections(CreateEnginePlugin):
    """A plugin that gives an engine one open connection, renewed after 30 seconds and tested before each use.

    While the connection is busy, more are opened.
    """

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        """Replace the pool that the caller asked for."""
        super().__init__(url, kwargs)
        kwargs.update(poolclass=QueuePool, pool_size=1, max_overflow=-1, pool_recycle=30, pool_pre_ping=True)

    def update_url(self, url: URL) -> URL:
        """Return ``url`` without the parameter that names this plugin."""
        return url.difference_update_query(["plugin"])
