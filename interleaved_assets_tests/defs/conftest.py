"""What real runs need not do in each test anew: wait for the disk, import Dagster's migrations, draw plots."""

import sqlite3
from collections.abc import Iterator
from functools import cache

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import Engine

from interleaved_assets.reporting import shard_report
from interleaved_assets.reporting.chart import new_figure, to_png


@pytest.fixture(scope="session", autouse=True)
def disk_not_waited_for() -> Iterator[None]:
    """SQLite does not wait until what it writes is on the disk: no test is about a machine that goes down."""

    def connected(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF").close()

    event.listen(Engine, "connect", connected)
    yield
    event.remove(Engine, "connect", connected)


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Each storage that Dagster makes is stamped with its newest migration, and all of them are imported for that."""
    read = ScriptDirectory.from_config
    scripts: dict[tuple[str | None, str | None], ScriptDirectory] = {}

    def kept(config: Config) -> ScriptDirectory:
        place = (config.config_file_name, config.get_main_option("script_location"))
        if place not in scripts:
            scripts[place] = read(config)
        return scripts[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", kept)
        yield


@cache
def _plain_png() -> bytes:
    return to_png(new_figure()[0])


@pytest.fixture(autouse=True)
def plain_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plots of a shard as one empty PNG: drawing them takes longer than all else that a run does for a shard.

    A test that looks at plots, or is about drawing, has the mark ``real_plots``.
    """
    if request.node.get_closest_marker("real_plots"):
        return
    for name in ("score_histogram", "reasons_bar"):
        monkeypatch.setattr(shard_report, name, lambda *_, **__: None)
    monkeypatch.setattr(shard_report, "to_png", lambda _: _plain_png())
