"""Keep connections to PostgreSQL open: a plugin of SQLAlchemy that ``deploy/postgres/dagster.yaml`` names.

Dagster opens a connection for nearly every statement, which costs more than the statement.
"""

from typing import Any

from sqlalchemy import URL
from sqlalchemy.engine import CreateEnginePlugin
from sqlalchemy.pool import QueuePool


class PooledConnections(CreateEnginePlugin):
    """Give an engine one open connection, renewed after 30 seconds and tried before each use; more while it is busy."""

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        """Replace the pool that the caller asked for."""
        super().__init__(url, kwargs)
        kwargs.update(poolclass=QueuePool, pool_size=1, max_overflow=-1, pool_recycle=30, pool_pre_ping=True)

    def update_url(self, url: URL) -> URL:
        """Return ``url`` without the parameter that names this plugin."""
        return url.difference_update_query(["plugin"])
