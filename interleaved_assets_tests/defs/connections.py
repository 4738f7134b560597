"""Connections and transactions of Dagster's storage: counted, and interrupted."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pytest
from sqlalchemy import Engine
from sqlalchemy.event import listen, remove
from sqlalchemy.pool import Pool

from interleaved_assets.defs.private_api.instance import events_together


@contextmanager
def connections() -> Iterator[list[object]]:
    """The connections that are opened meanwhile."""
    opened: list[object] = []

    def note(connection: object, _: object) -> None:
        opened.append(connection)

    listen(Pool, "connect", note)
    try:
        yield opened
    finally:
        remove(Pool, "connect", note)


@contextmanager
def writing_commits() -> Iterator[list[object]]:
    """The commits of transactions that have changed something."""
    changed: set[object] = set()
    found: list[object] = []

    def note_change(connection: object, _: object, statement: str, *others: object) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            changed.add(connection)

    def note_commit(connection: object) -> None:
        if connection in changed:
            changed.discard(connection)
            found.append(connection)

    listen(Engine, "before_cursor_execute", note_change)
    listen(Engine, "commit", note_commit)
    try:
        yield found
    finally:
        remove(Engine, "before_cursor_execute", note_change)
        remove(Engine, "commit", note_commit)


def interrupt_block(instance: dg.DagsterInstance, event: dg.AssetMaterialization) -> None:
    """Store ``event`` in a block of events that Ctrl-C ends."""

    def interrupted() -> None:
        with events_together(instance):
            instance.report_runless_asset_event(event)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
