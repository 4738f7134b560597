"""Forgetting shards: the removal of stored files together with the partition."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.progress import progress
from interleaved_assets.model.errors import OptionError
from interleaved_assets.pipeline.forget import files_to_forget, remove_files
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, StorageSettings


def forgettable(
    keys: Collection[str], settings: Settings, instance: dg.DagsterInstance | None
) -> dict[str, dict[str, int]]:
    """By shard, URI and size in bytes of every file that is stored for it, in the order in which to remove them.

    Raises:
        OptionError: a key cannot be that of a shard, its raw tar is still there, or a run works on it.
        StorageError: the storage refuses to list or to look at files.
    """
    files = files_to_forget(keys, settings.storage)
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
            instance.delete_dynamic_partition(SHARDS, key)


def forget_in(
    home: Path, find: Callable[[], Collection[str]], settings: Settings, *, remove: bool
) -> dict[str, dict[str, int]]:
    """What :func:`forgettable` finds of the shards that ``find`` returns, with the Dagster instance in ``home``.

    With ``remove`` it is removed as by :func:`forget_shards`.
    """
    with dg.DagsterInstance.from_config(str(home)) as instance:
        files = forgettable(find(), settings, instance)
        if remove:
            forget_shards(files, settings.storage, instance)
    return files
