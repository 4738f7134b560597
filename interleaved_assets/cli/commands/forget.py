"""``interleaved forget``: list or remove the stored files of shards whose raw shard is gone."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from interleaved_assets.cli.terminal.complete import complete_vanished_shards
from interleaved_assets.cli.terminal.options import as_json

SECTION: Final = "The shards of a project"
_HOME_OF_MAKE: Final = ".dagster_home"


@click.command("forget")
@click.argument("shards", nargs=-1, metavar="[KEY…]", shell_complete=complete_vanished_shards)
@click.option("--vanished", is_flag=True, help="All shards with stored files and without a raw shard.")
@click.option("--yes", is_flag=True, help="Remove the files, and the partitions; default: only list the files.")
@as_json
@click.pass_obj
def forget_command(file: str | None, shards: tuple[str, ...], vanished: bool, yes: bool, as_json: bool) -> int:
    """Remove the stored files of shards whose raw shard is gone: records, outputs and partition.

    Without --yes, the files are only listed.

    \b
    interleaved forget --vanished
    interleaved forget 2024/part-0003 --yes
    """
    if bool(shards) == vanished:
        raise click.UsageError("forget takes either keys of shards or --vanished", click.get_current_context())
    from interleaved_assets.cli.terminal.console import console, print_error, print_json, short
    from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files, vanished_shards
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    settings, out = load_settings(file), console()
    home = _instance_home()

    def keys() -> Sequence[str]:
        return vanished_shards(settings.storage) if vanished else shards

    if home is not None:
        from interleaved_assets.defs.forget_job import forget_in  # imports Dagster, which takes a second

        files = forget_in(home, keys, settings, remove=yes)
    else:
        files = {key: uris for key, uris in files_to_forget(keys(), settings.storage).items() if uris}
        if yes:
            remove_files(files, settings.storage)
    unknown = [key for key in shards if key not in files]
    for key in unknown:
        print_error(
            f"interleaved: nothing is stored of shard {short(key)}; interleaved forget --vanished lists what may go"
        )
    if as_json:
        print_json({"removed": yes, "partitions_removed": yes and home is not None, "shards": files})
        return 1 if unknown else 0
    if not files:
        if not unknown:
            out.print("nothing to forget: every shard with stored outputs has its raw shard")
        return 1 if unknown else 0
    for key, uris in files.items():
        out.print_line(f"shard {key}: {counted(len(uris), 'file')}, {sum(uris.values()):,} bytes")
        for uri in uris:
            out.print_line(f"  {uri}")
    done = "would be removed; --yes removes them, and the partitions"
    if yes:
        done = "removed, and the partitions" if home else "removed; raw_shard_sensor removes the partitions"
    out.print(f"{counted(len(files), 'shard')}, {counted(sum(map(len, files.values())), 'file')}: {done}")
    return 1 if unknown else 0


def _instance_home() -> Path | None:
    """Return the folder of the Dagster instance: ``DAGSTER_HOME``, else the one of ``make`` here, else None.

    Raises:
        StorageError: the folder cannot be searched.
    """
    from interleaved_assets.model.errors import StorageError

    home = Path(os.environ.get("DAGSTER_HOME") or _HOME_OF_MAKE)
    try:
        return home if (home / "dagster.yaml").is_file() else None
    except OSError as error:
        raise StorageError(f"cannot look for a Dagster instance in {home.absolute()}: {error.strerror}") from error
