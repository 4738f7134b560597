"""The job ``forget_shards``, which removes the stored files of shards together with their partitions."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import dagster as dg
from pydantic import Field

from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.model.errors import InterleavedError, OptionError
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files, vanished_shards
from interleaved_assets.reporting.wording.text import counted
from interleaved_assets.settings import Settings, StorageSettings

FORGET_SHARDS: Final = "forget_shards"


class ForgetConfig(dg.Config):
    """The shards that the job forgets; by default nothing is removed."""

    shards: list[str] = Field(default=[], description="Keys of the shards to forget, whose raw shards are gone.")
    vanished: bool = Field(default=False, description="Instead of shards: all that have outputs but no raw shard.")
    dry_run: bool = Field(default=True, description="Only log what would be removed.")


def build_forget_job(settings: Settings) -> dg.JobDefinition:
    """Return the job that removes all stored files of shards whose raw shard is gone, and their partitions."""

    @dg.op(description="Removes partition, records and outputs of shards whose raw shard is gone.")
    def forget(context: dg.OpExecutionContext, config: ForgetConfig) -> None:
        try:
            keys = vanished_shards(settings.storage) if config.vanished else config.shards
            files = forgettable(keys, settings, context.instance)
            if not config.dry_run:
                forget_shards(files, settings.storage, context.instance)
        except InterleavedError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        for key, uris in files.items():
            context.log.info("\n".join([f"shard {key}: {counted(len(uris), 'file')}", *uris]))
        if not (config.shards or config.vanished):
            context.log.warning("no shard was named: set shards, or vanished to true, in the Launchpad")
        done = "nothing was removed, because dry_run is set" if config.dry_run else "removed, with their partitions"
        context.log.info(f"{counted(len(files), 'shard')}, {counted(sum(map(len, files.values())), 'file')}: {done}")

    @dg.job(
        name=FORGET_SHARDS,
        executor_def=dg.in_process_executor,
        description="Removes partition, records and outputs of shards whose raw shard is gone. A dry run unless "
        "dry_run is set to false in the Launchpad.",
    )
    def job() -> None:
        forget()

    return job


def forgettable(keys: Collection[str], settings: Settings, instance: dg.DagsterInstance) -> dict[str, dict[str, int]]:
    """Return, by shard, URI and size in bytes of every file stored for it, in the order in which to remove them.

    Raises:
        OptionError: a key cannot be that of a shard, its raw shard still exists, or a run works on it.
        StorageError: the storage refuses to list files or to read their sizes.
    """
    files = files_to_forget(keys, settings.storage)
    if busy := progress(instance, stage_dag(settings), list(files)).busy:
        raise OptionError(f"shard {min(busy)} is not forgotten: a run is working on it. Wait for its end.")
    return files


def forget_shards(
    files: Mapping[str, Mapping[str, int]], storage: StorageSettings, instance: dg.DagsterInstance
) -> None:
    """Remove the files that :func:`forgettable` has found, then the partitions.

    Raises:
        StorageError: a file cannot be removed; partitions are kept then, and the call can be repeated.
    """
    remove_files(files, storage)
    for key in files:
        instance.delete_dynamic_partition(SHARDS, key)


def forget_in(
    home: Path, find: Callable[[], Collection[str]], settings: Settings, *, remove: bool
) -> dict[str, dict[str, int]]:
    """Return what :func:`forgettable` returns for the shards of ``find``, with the Dagster instance in ``home``.

    Shards without a file and without a partition are left out. With ``remove`` the files and partitions are
    removed as by :func:`forget_shards`.
    """
    with dg.DagsterInstance.from_config(str(home)) as instance:
        files = {
            key: uris
            for key, uris in forgettable(find(), settings, instance).items()
            if uris or instance.has_dynamic_partition(SHARDS, key)
        }
        if remove:
            forget_shards(files, settings.storage, instance)
    return files
