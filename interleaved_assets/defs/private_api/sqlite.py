"""Dagster's storage in SQLite with open files; ``dagster.yaml`` names it.

It has the files and contents of Dagster's own storage, and either can follow the other in one folder.
"""

from pathlib import Path
from typing import Any, Final

import dagster as dg
from dagster._config import StringSource
from dagster._config.config_schema import UserConfigSchema
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._core.storage.sqlite_storage import (
    DagsterSqliteStorage,
    _event_logs_directory,
    _runs_directory,
    _schedule_directory,
)
from dagster._serdes import ConfigurableClassData

from interleaved_assets.defs.private_api.connections import keep_files_open, one_process, remove_leftovers

_INDEX: Final = f"{INDEX_SHARD_NAME}.db"


class SqliteStorage(DagsterSqliteStorage):
    """Runs and schedules as Dagster stores them in SQLite, and events with connections that stay open.

    By default Dagster opens and closes a connection for each statement, also in the daemon, which stores an event for
    each shard and asset of a run that it puts into the queue.

    Without ``base_dir`` the files are in the folder of the instance, as with Dagster's default storage: the one that
    ``DAGSTER_HOME`` names, also where that begins with ``~``, or the temporary one that ``dagster dev`` and ``dagster
    definitions validate`` make without ``DAGSTER_HOME``.
    """

    def __init__(self, base_dir: str | None = None, inst_data: ConfigurableClassData | None = None) -> None:
        if base_dir is not None:
            folder = Path(_event_logs_directory(base_dir))
            with one_process(folder):
                remove_leftovers(folder / _INDEX)
                super().__init__(base_dir, inst_data)
            keep_files_open(self._event_log_storage)
            return
        self._run_storage = SqliteRuns()
        self._event_log_storage = SqliteEvents()
        self._schedule_storage = SqliteSchedules()
        self._inst_data = inst_data

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """``base_dir``, which may be left out."""
        return {"base_dir": dg.Field(StringSource, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "SqliteStorage":
        """The storage below the folder ``base_dir``, or without it below that of the instance."""
        if "base_dir" not in config_value:
            return cls(inst_data=inst_data)
        return cls.from_local(str(Path(config_value["base_dir"]).expanduser()), inst_data)


# Dagster takes the three storages from the unified one before there is an instance, and registers the instance with
# each of them before it uses it.


class SqliteEvents(SqliteEventLogStorage):
    def __init__(self) -> None:
        """Is opened below the folder of the instance that is registered."""

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        if not self.has_instance:
            folder = Path(_event_logs_directory(instance.root_directory))
            with one_process(folder):  # the folder of connections.py, which makes files that were deleted
                remove_leftovers(folder / _INDEX)
                super().__init__(str(folder))
            keep_files_open(self)
        super().register_instance(instance)


class SqliteRuns(SqliteRunStorage):
    def __init__(self) -> None:
        """Is opened below the folder of the instance that is registered."""

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        if not self.has_instance:
            with one_process(Path(instance.root_directory)):
                opened = SqliteRunStorage.from_local(_runs_directory(instance.root_directory))
            vars(self).update(vars(opened))
        super().register_instance(instance)


class SqliteSchedules(SqliteScheduleStorage):
    def __init__(self) -> None:
        """Is opened below the folder of the instance that is registered."""

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        if not self.has_instance:
            with one_process(Path(instance.root_directory)):
                opened = SqliteScheduleStorage.from_local(_schedule_directory(instance.root_directory))
            vars(self).update(vars(opened))
        super().register_instance(instance)
