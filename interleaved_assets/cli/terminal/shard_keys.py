"""Find the given keys that no shard has, and the keys that look like them."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from interleaved_assets.cli.terminal.console import short
from interleaved_assets.io.storage import file_info
from interleaved_assets.model.errors import InterleavedError, NoSuchShard, StorageUnavailable
from interleaved_assets.pipeline.raw.keys import is_key, without_key_ending
from interleaved_assets.pipeline.raw.listing import find_raw_shard, list_raw_shards
from interleaved_assets.pipeline.run.stored_records import recorded_stages
from interleaved_assets.pipeline.run.threads import READERS, found_or_error
from interleaved_assets.pipeline.stages.dag import EVERY_STAGE

if TYPE_CHECKING:
    from interleaved_assets.settings import StorageSettings


def raw_keys_problem(keys: Sequence[str], storage: "StorageSettings") -> str:
    """Return a line for each of ``keys`` that no raw shard has.

    A key counts as that of a raw shard while the storage does not answer, since a run tries the storage again.
    """
    missing = _without_raw(keys, storage)
    known = [raw.key for raw in list_raw_shards(storage)] if missing else []
    return "\n".join(
        f"the raw shard of {key} is gone from {storage.raw_root}; interleaved forget {key} lists what is stored of it"
        if _is_stored(key, storage)
        else f"no raw shard below {storage.raw_root} has the key {short(key)}{did_you_mean(key, known)}"
        for key in missing
    )


def stored_keys_problem(keys: Sequence[str], storage: "StorageSettings") -> str:
    """Return a line for each of ``keys`` that has no stored record."""
    missing = [key for key in keys if not _is_stored(key, storage)]
    known = recorded_stages(storage, EVERY_STAGE) if missing else {}
    without_raw = _without_raw(missing, storage)
    return "\n".join(
        f"no shard {short(key)} has been materialized"
        + (did_you_mean(key, known) if key in without_raw else f" yet: interleaved run {key}")
        for key in missing
    )


def did_you_mean(key: str, known: Collection[str]) -> str:
    """Return a question that names the keys among ``known`` that look like ``key``; without any, where all keys are."""
    stem = without_key_ending(key)
    alike = [stem] if stem in known else get_close_matches(key, known)
    return f": did you mean {' or '.join(alike)}?" if alike else "; interleaved status --json lists all shards"


def _without_raw(keys: Sequence[str], storage: "StorageSettings") -> list[str]:
    missing = []
    for key, found in found_or_error(lambda key: find_raw_shard(key, storage), keys, threads=READERS):
        if isinstance(found, NoSuchShard):
            missing.append(key)
        elif isinstance(found, InterleavedError) and not isinstance(found, StorageUnavailable):
            raise found
    return missing


def _is_stored(key: str, storage: "StorageSettings") -> bool:
    if not is_key(key):  # a path made of it may be outside of its folder
        return False
    paths = storage.shard(key)
    return any(file_info(paths.record(stage), paths.options) for stage in EVERY_STAGE)
