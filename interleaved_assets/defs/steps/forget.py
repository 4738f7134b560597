"""Forgetting shards: the removal of stored files together with the partition."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import dagster as dg

from interleaved_assets.defs.interrupts import interrupts_deferred
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.progress import progress
from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.pipeline.forget import files_to_forget, remove_files
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, StorageSettings

_HOME_OF_MAKE: Final = ".dagster_home"


def forgettable(
    keys: Collection[str], settings: Settings, instance: dg.DagsterInstance | None
) -> dict[str, dict[str, int]]:
    """By shard, URI and size in bytes of every file that is stored for it, in the order in which to remove them.

    Raises:
        OptionError: a key cannot be that of a shard, its raw tar is still there, or a run works on it.
        StorageError: the storage refuses to list or to look at files.
    """
    files = files_to_forget(keys, settings.storage)
    with interrupts_deferred():
        busy = progress(instance, stage_dag(settings), list(files)).busy if instance else set()
    if busy:
        raise OptionError(f"shard {min(busy)} is not forgotten: a run is working on it. Wait for its end.")
    return files


def forget_shards(
    files: Mapping[str, Mapping[str, int]], storage: StorageSettings, instance: dg.DagsterInstance | None
) -> None:
    """Remove the files that :func:`forgettable` has found, then the partitions.

    Raises:
        StorageError: a file cannot be removed; partitions are kept then, and the call can be repeated.
    """
    remove_files(files, storage)
    if instance:
        for key in files:
            with interrupts_deferred():
                instance.delete_dynamic_partition(SHARDS, key)


@contextmanager
def present_instance() -> Iterator[dg.DagsterInstance | None]:
    """The Dagster instance of ``DAGSTER_HOME``, else the one that ``make`` uses in this folder; None without either.

    Raises:
        StorageError: the folder cannot be searched.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or _HOME_OF_MAKE)
    try:
        is_there = (home / "dagster.yaml").is_file()
    except PermissionError as error:
        raise StorageError(f"cannot look for a Dagster instance in {home.absolute()}: {error.strerror}") from error
    if not is_there:
        yield None
        return
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance
