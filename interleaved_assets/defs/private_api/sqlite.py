"""Dagster's storage in SQLite with open files; ``dagster.yaml`` names it.

It has the files and contents of Dagster's own storage, and either can follow the other in one folder.
"""

from pathlib import Path
from typing import Any

import dagster as dg
from dagster._config import StringSource
from dagster._config.config_schema import UserConfigSchema
from dagster._core.instance import MayHaveInstanceWeakref
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._core.storage.sqlite_storage import (
    DagsterSqliteStorage,
    _event_logs_directory,
    _runs_directory,
    _schedule_directory,
)
from dagster._serdes import ConfigurableClassData

from interleaved_assets.defs.private_api.sqlite_events import SqliteEvents, one_process


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
    def config_type(cls) -> UserConfigSchema:
        """``base_dir``, which may be left out."""
        return {"base_dir": dg.Field(StringSource, is_required=False)}

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
        SqliteEvents.__init__(self, _event_logs_directory(root))


class _Runs(_OpenedWithInstance, SqliteRunStorage):
    def open(self, root: str) -> None:
        vars(self).update(vars(SqliteRunStorage.from_local(_runs_directory(root))))


class _Schedules(_OpenedWithInstance, SqliteScheduleStorage):
    def open(self, root: str) -> None:
        vars(self).update(vars(SqliteScheduleStorage.from_local(_schedule_directory(root))))
