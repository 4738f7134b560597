"""``interleaved forget``: what is stored for shards whose raw tar is gone, listed or removed."""

from collections.abc import Sequence

from interleaved_assets.cli.console import console, print_json
from interleaved_assets.defs.steps.forget import forget_shards, forgettable, present_instance
from interleaved_assets.pipeline.forget import vanished_shards
from interleaved_assets.reporting.text import counted
from interleaved_assets.settings import load_settings


def show_forgotten(file: str | None, *, shards: Sequence[str], vanished: bool, remove: bool, as_json: bool) -> int:
    """List or remove the stored files of ``shards``, or of all vanished ones; returns the exit code."""
    settings, out = load_settings(file), console()
    with present_instance() as instance:
        files = forgettable(vanished_shards(settings.storage) if vanished else shards, settings, instance)
        if remove:
            forget_shards(files, settings.storage, instance)
    if as_json:
        print_json({"removed": remove, "partitions_removed": remove and instance is not None, "shards": files})
        return 0
    if not files:
        out.print("nothing to forget: every shard with stored outputs has its raw tar")
        return 0
    for key, uris in files.items():
        out.print_line(f"shard {key}: {counted(len(uris), 'file')}, {sum(uris.values()):,} bytes")
        for uri in uris:
            out.print_line(f"  {uri}")
    done = "would be removed; --yes removes them, and the partitions"
    if remove:
        done = "removed, and the partitions" if instance else "removed; raw_shard_sensor removes the partitions"
    out.print(f"{counted(len(files), 'shard')}, {counted(sum(map(len, files.values())), 'file')}: {done}")
    return 0
