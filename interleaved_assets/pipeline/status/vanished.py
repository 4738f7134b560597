"""Removal of shards whose raw shard is gone: it finds and removes every file that the stages have stored for them.

The record of ``normalized`` is removed last. A removal that was cut off therefore leaves a shard that has a record, is
still reported as vanished, and can be forgotten again. Its final tars are the first outputs to be removed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from interleaved_assets.export.names import is_image_file
from interleaved_assets.io.storage import file_info, files_below, join, remove_file
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets.pipeline.raw.keys import check_key
from interleaved_assets.pipeline.raw.listing import list_raw_files
from interleaved_assets.pipeline.run.failures import failed_keys
from interleaved_assets.pipeline.run.record import Record, record_of
from interleaved_assets.pipeline.run.stored_records import recorded_stages
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
from interleaved_assets.pipeline.stages.dag import EVERY_STAGE, OUTPUTS
from interleaved_assets.pipeline.stages.names import FINAL_TARS, IMAGE_EXPORT, NORMALIZED
from interleaved_assets.pipeline.stages.part_tars import stored_parts
from interleaved_assets.settings import StorageSettings
from interleaved_assets.settings.shard_paths import ShardPaths


def vanished_shards(storage: StorageSettings) -> list[str]:
    """Return the sorted keys of the shards that have a record or a failure but no raw shard.

    Raises OptionError if that is not known: the raw root holds no shard at all, for example because its disk is not
    mounted, or a folder of it cannot be listed.
    """
    listing = list_raw_files(storage)
    raws = {raw.key for raw in listing.shards}
    if not raws:
        raise OptionError(f"{storage.raw_root} holds no shard: mount its disk, or name the shards to forget")
    if listing.unlisted:
        raise OptionError(f"which raw shards are gone is not known: {listing.problem}")
    failed = {key for stage in EVERY_STAGE for key in failed_keys(storage, stage)}
    return sorted((recorded_stages(storage, EVERY_STAGE).keys() | failed) - raws)


def files_to_forget(keys: Collection[str], storage: StorageSettings) -> dict[str, dict[str, int]]:
    """Return, by shard, URI and size in bytes of every file stored for it, in the order in which to remove them.

    Raises OptionError if a key cannot be that of a shard, or its raw shard still exists or may exist.
    """
    for key in keys:
        check_key(key)
    listing = list_raw_files(storage)
    raws = {raw.key: raw.uri for raw in listing.shards}
    for key in keys:
        if key not in raws and listing.unlisted:
            raise OptionError(f"shard {key} is not forgotten: its raw shard may still be there. {listing.problem}")
        if key in raws:
            raise OptionError(
                f"shard {key} is not forgotten: its raw shard {raws[key]} is still there, and would be taken through "
                "all stages again. Move or delete it first."
            )
    found = parallel_map(lambda key: _stored_files(storage.shard(key)), keys, threads=READERS)
    return dict(zip(keys, found, strict=True))


def remove_files(files: Mapping[str, Mapping[str, int]], storage: StorageSettings) -> None:
    """Remove the files that :func:`files_to_forget` has found; a file that does not exist any more is passed over."""

    def remove(uris: Iterable[str]) -> None:
        for uri in uris:
            remove_file(uri, storage.options)

    for _ in parallel_map(remove, files.values(), threads=READERS):
        pass


def _stored_files(paths: ShardPaths) -> dict[str, int]:
    found: dict[str, int] = {}
    for uri in _places(paths):
        info = file_info(uri, paths.options)
        if info is not None and info["type"] == "file":
            found[uri] = info["size"]
        if uri == paths.record(IMAGE_EXPORT):
            # the number of tars is not known, and an export that was ended may have left some
            infos = files_below(paths.images(), paths.options)
            found |= {join(paths.images(), name): info["size"] for name, info in infos.items() if is_image_file(name)}
    return found


def _places(paths: ShardPaths) -> Iterator[str]:
    """Yield every place at which a stage may have stored a file.

    The record of each stage comes before its outputs, so that nothing counts as complete while outputs are removed.
    """
    for stage in reversed(EVERY_STAGE):
        if stage != NORMALIZED:
            yield paths.record(stage)
        if stage == FINAL_TARS:
            yield from stored_parts(paths, _recorded(paths, stage))
        yield from paths.outputs(stage, OUTPUTS[stage].others).values()
        yield paths.pictures(stage)
        yield paths.failure(stage)
    yield paths.page()
    yield paths.record(NORMALIZED)


def _recorded(paths: ShardPaths, stage: str) -> Record | None:
    """Return the record of ``stage``; None also if it is damaged, since it is removed with the outputs."""
    try:
        return record_of(paths, stage)
    except ShardError:
        return None
