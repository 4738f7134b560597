"""Dagster's storage in SQLite with open files; ``dagster.yaml`` names it.

It has the files and contents of Dagster's own storage, and either can follow the other in one folder.
"""

from typing import Any

from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData

from interleaved_assets.defs.private_api import keep_files_open


class SqliteStorage(DagsterSqliteStorage):
    """Runs and schedules as Dagster stores them in SQLite, and events with connections that stay open.

    By default Dagster opens and closes a connection for each statement, also in the daemon, which stores an event for
    each shard and asset of a run that it puts into the queue.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        keep_files_open(self._event_log_storage)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "SqliteStorage":
        """The storage below the folder ``base_dir``."""
        return cls.from_local(config_value["base_dir"], inst_data)
