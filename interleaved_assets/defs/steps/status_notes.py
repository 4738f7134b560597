"""Status notes: an observation on the page of each shard that is not current, with the reason."""

import json
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import dagster as dg
from pydantic import TypeAdapter

from interleaved_assets.defs.interrupts import interrupts_deferred
from interleaved_assets.defs.latest import latest_ids
from interleaved_assets.io.storage import atomic_output, join, read_small
from interleaved_assets.pipeline.status import CURRENT
from interleaved_assets.settings import StorageSettings

PAGE: Final = "final_tars"
"""The asset on whose page a shard's status note is shown: the last one."""
AT_MOST: Final = 2000
"""Notes that one report publishes: each takes the event log up to 10 ms."""
_STATE_FILE: Final = "state/status_notes.json"
_NOTES: Final = TypeAdapter(dict[str, str])


class NoteChanges(NamedTuple):
    """What one report changes in the status notes."""

    publish: dict[str, str]
    """Notes to publish, by key; at most :data:`AT_MOST`."""
    in_force: dict[str, str]
    """Notes in force once those are published, by key."""
    left_out: int
    """Number of notes left for the next report."""


def note_changes(
    statuses: Mapping[str, str],
    notes: Mapping[str, str],
    observed: Mapping[str, int],
    materialized: Mapping[str, int],
) -> NoteChanges:
    """Which notes to publish: those that differ from what the shards' pages show.

    A page shows observations that are newer than the last materialization. A note that a shard is stale therefore
    disappears once the shard is made again. Where the shard is current without that, because a setting was set back,
    another note has to replace it.

    Args:
        statuses: in words, of the shards that are not current, in the order of publication.
        notes: the notes published before, by key.
        observed, materialized: for each shard the id of its last observation and of its last materialization, where it
            has one.
    """
    shown = {key for key in notes if key in observed and observed[key] > materialized.get(key, -1)}
    wanted = {key: text for key, text in statuses.items() if key not in shown or notes[key] != text}
    wanted |= {key: CURRENT for key in notes if key in shown and key not in statuses}
    publish = dict(list(wanted.items())[:AT_MOST])
    # shards that are noted as current, or were made again, need no further note
    after = {key: text for key, text in notes.items() if key in shown} | publish
    in_force = {key: text for key, text in after.items() if text != CURRENT}
    return NoteChanges(publish, in_force, len(wanted) - len(publish))


def publish_status_notes(
    context: dg.AssetExecutionContext,
    statuses: Mapping[str, str],
    registered: Collection[str],
    storage: StorageSettings,
) -> None:
    """Publish the status of shards that are not current on their pages, where it has changed.

    Args:
        statuses: in words, of the shards that are not current, in the order of publication.
        registered: keys that are partitions; others have no page.
    """
    uri = join(storage.output_root, _STATE_FILE)
    try:
        notes = {key: text for key, text in _read_notes(uri, storage).items() if key in registered}
    except ValueError as error:
        with interrupts_deferred():
            context.log.warning(f"{uri} is damaged and is written again: {error}")
        notes = {}
    statuses = {key: text for key, text in statuses.items() if key in registered}
    keys = {*notes, *statuses}
    if not keys:
        return
    with interrupts_deferred():
        observed, materialized = (
            latest_ids(context.instance, PAGE, kind, keys)
            for kind in (dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.ASSET_MATERIALIZATION)
        )
    changes = note_changes(statuses, notes, observed, materialized)
    for key, text in changes.publish.items():
        note = dg.AssetObservation(
            PAGE, partition=key, description=text, metadata={"status": dg.MetadataValue.text(text)}
        )
        with interrupts_deferred():
            context.log_event(note)
    if changes.left_out:
        with interrupts_deferred():
            context.log.info(
                f"published the status of {len(changes.publish)} shards on their pages; that of {changes.left_out} "
                "shards follows with the next report. The report itself lists all of them."
            )
    if changes.in_force != notes:
        with atomic_output(uri, storage.options) as out:
            out.write(json.dumps(changes.in_force, indent=0, sort_keys=True, ensure_ascii=False).encode())


def _read_notes(uri: str, storage: StorageSettings) -> dict[str, str]:
    content = read_small(uri, storage.options)
    return {} if content is None else _NOTES.validate_json(content)
