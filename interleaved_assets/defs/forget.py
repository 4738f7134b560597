"""The job ``forget_shards``."""

from typing import Final

import dagster as dg
from pydantic import Field

from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.reporting.text import counted
from interleaved_assets.settings import Settings

FORGET_SHARDS: Final = "forget_shards"


class ForgetConfig(dg.Config):
    """What the job forgets; by default nothing is removed."""

    shards: list[str] = Field(default=[], description="Keys of the shards to forget, whose raw tars are gone.")
    vanished: bool = Field(default=False, description="Instead of shards: all that have outputs but no raw tar.")
    dry_run: bool = Field(default=True, description="Only log what would be removed.")


def build_forget_job(settings: Settings) -> dg.JobDefinition:
    """The job that removes everything stored for shards whose raw tar is gone, and their partitions."""

    @dg.op(description="Removes partition, records and outputs of shards whose raw tar is gone.")
    def forget(context: dg.OpExecutionContext, config: ForgetConfig) -> None:
        # the step begins here: the definitions need none of it
        from interleaved_assets.defs.steps.forget import forget_shards, forgettable
        from interleaved_assets.pipeline.forget import vanished_shards

        try:
            keys = vanished_shards(settings.storage) if config.vanished else config.shards
            files = forgettable(keys, settings, context.instance)
            if not config.dry_run:
                forget_shards(files, settings.storage, context.instance)
        except InterleavedError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        for key, uris in files.items():
            context.log.info("\n".join([f"shard {key}: {counted(len(uris), 'file')}", *uris]))
        done = "nothing was removed, because dry_run is set" if config.dry_run else "removed, with their partitions"
        context.log.info(f"{counted(len(files), 'shard')}, {counted(sum(map(len, files.values())), 'file')}: {done}")

    @dg.job(
        name=FORGET_SHARDS,
        executor_def=dg.in_process_executor,
        description="Removes partition, records and outputs of shards whose raw tar is gone. A dry run unless dry_run "
        "is set to false in the Launchpad.",
    )
    def job() -> None:
        forget()

    return job
