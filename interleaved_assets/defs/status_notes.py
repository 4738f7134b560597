"""Why a shard is not current, on the page of that shard: an observation, where it is news."""

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
"""Observations in one go: each takes the event log up to 10 ms where connections are kept."""
_STATE_FILE: Final = "state/told_statuses.json"


class News(NamedTuple):
    """What is to be told, by key, at most :data:`AT_MOST` of it; and what will have been told then."""

    tell: dict[str, str]
    told: dict[str, str]
    left_out: int


def news(
    statuses: Mapping[str, str],
    told: Mapping[str, str],
    said: Mapping[str, int],
    made: Mapping[str, int],
) -> News:
    """Which shards' pages do not say what is so.

    A page shows observations that are newer than the last materialization. One that says that a shard is stale is thus
    outdated by itself once the shard is made again, and has to be outdated by another one where a setting was set back.

    Args:
        statuses: in words, of the shards that are not current, in the order they are to be told in.
        told: what was told of shards before, by key.
        said, made: for each shard the id of its last observation and of its last materialization, where it has one.
    """
    stands = {key for key in told if key in said and said[key] > made.get(key, -1)}
    wanted = {key: text for key, text in statuses.items() if key not in stands or told[key] != text}
    wanted |= {key: CURRENT for key in told if key in stands and key not in statuses}
    tell = dict(list(wanted.items())[:AT_MOST])
    # what is told as current, or was made again, needs no word any more
    after = {key: text for key, text in told.items() if key in stands} | tell
    return News(tell, {key: text for key, text in after.items() if text != CURRENT}, len(wanted) - len(tell))


def tell_statuses(
    context: dg.AssetExecutionContext, statuses: Mapping[str, str], registered: Collection[str], settings: Settings
) -> None:
    """Put the status of shards that are not current on their pages, where they do not say so yet.

    Args:
        statuses: in words, of the shards that are not current, in the order they are to be told in.
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
