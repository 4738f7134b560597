"""Status notes: publish why a shard is not current on the page of that shard, when it changes."""

import json
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import dagster as dg

from interleaved_assets.defs.latest import latest_ids
from interleaved_assets.io.storage import atomic_output, join, read_small
from interleaved_assets.pipeline.status import CURRENT
from interleaved_assets.settings import Settings

PAGE: Final = "final_tars"
"""The asset on whose page a shard's status stands: the last one, whose output is what the status is about."""
AT_MOST: Final = 2000
"""Notes of one report: each takes the event log up to 10 ms."""
_STATE_FILE: Final = "state/told_statuses.json"


class News(NamedTuple):
    """Notes to publish, by key, at most :data:`AT_MOST`; the notes in force after that; how many are left out."""

    tell: dict[str, str]
    told: dict[str, str]
    left_out: int


def news(
    statuses: Mapping[str, str],
    told: Mapping[str, str],
    said: Mapping[str, int],
    made: Mapping[str, int],
) -> News:
    """Which notes to publish: those that differ from what the shards' pages show.

    A page shows observations that are newer than the last materialization. A note that a shard is stale thus disappears
    once the shard is made again, and has to be replaced by another note where a setting was set back.

    Args:
        statuses: in words, of the shards that are not current, in the order of publication.
        told: the notes published before, by key.
        said, made: for each shard the id of its last observation and of its last materialization, where it has one.
    """
    stands = {key for key in told if key in said and said[key] > made.get(key, -1)}
    wanted = {key: text for key, text in statuses.items() if key not in stands or told[key] != text}
    wanted |= {key: CURRENT for key in told if key in stands and key not in statuses}
    tell = dict(list(wanted.items())[:AT_MOST])
    # shards that are noted as current, or were made again, need no further note
    after = {key: text for key, text in told.items() if key in stands} | tell
    return News(tell, {key: text for key, text in after.items() if text != CURRENT}, len(wanted) - len(tell))


def tell_statuses(
    context: dg.AssetExecutionContext, statuses: Mapping[str, str], registered: Collection[str], settings: Settings
) -> None:
    """Publish the status of shards that are not current on their pages, where it has changed.

    Args:
        statuses: in words, of the shards that are not current, in the order of publication.
        registered: keys that are partitions; others have no page.
    """
    uri = join(settings.storage.output_root, _STATE_FILE)
    try:
        told = {key: text for key, text in _read(uri, settings).items() if key in registered}
    except ValueError as error:
        context.log.warning(f"{uri} is damaged and is made anew: {error}")
        told = {}
    statuses = {key: text for key, text in statuses.items() if key in registered}
    keys = {*told, *statuses}
    if not keys:
        return
    said, made = (
        latest_ids(context.instance, PAGE, kind, keys)
        for kind in (dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.ASSET_MATERIALIZATION)
    )
    found = news(statuses, told, said, made)
    for key, text in found.tell.items():
        context.log_event(
            dg.AssetObservation(PAGE, partition=key, description=text, metadata={"status": dg.MetadataValue.text(text)})
        )
    if found.left_out:
        context.log.info(
            f"the status of {len(found.tell)} shards was put on their pages, that of {found.left_out} is left for the "
            "next report; the report itself has all of them"
        )
    if found.told != told:
        with atomic_output(uri, settings.storage.options) as out:
            out.write(json.dumps(found.told, indent=0, sort_keys=True, ensure_ascii=False).encode())


def _read(uri: str, settings: Settings) -> dict[str, str]:
    content = read_small(uri, settings.storage.options)
    return {} if content is None else dict(json.loads(content))
