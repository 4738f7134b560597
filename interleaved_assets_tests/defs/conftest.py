"""What real runs need not do in each test anew: wait for the disk, compile SQL, import migrations."""

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log import in_memory as in_memory_events
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs import in_memory as in_memory_runs
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from dagster._core.storage.sql import create_engine
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.pool import NullPool, QueuePool

from interleaved_assets_tests.defs.runs import instance_on_disk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from interleaved_assets_tests.live import LiveDagster


@pytest.fixture
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance in memory; where the marker ``on_disk`` is, one that a job or schedule can open again."""
    home = tmp_path / "home"
    on_disk = request.node.get_closest_marker("on_disk")
    opened = instance_on_disk(home, **on_disk.kwargs) if on_disk else dg.DagsterInstance.ephemeral()
    with opened as instance:
        yield instance


@pytest.fixture(autouse=True)
def shards_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step works on its shards here, one after another: a worker process takes up to 0.2 s to say that it is done.

    Fixtures of a module, such as ``run_twice``, come before this one, and so have worker processes.
    """
    if request.node.get_closest_marker("system") is None:
        monkeypatch.setenv("INTERLEAVED_RUN__PARALLEL_SHARDS", "1")


@pytest.fixture(scope="session", autouse=True)
def disk_not_waited_for() -> Iterator[None]:
    """SQLite does not wait until what it writes is on the disk: no test is about a machine that goes down."""

    def connected(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF").close()

    event.listen(Engine, "connect", connected)
    yield
    event.remove(Engine, "connect", connected)


@pytest.fixture(scope="module", autouse=True)
def connections_to_files_kept() -> Iterator[None]:
    """Dagster makes an engine and a connection for each statement on SQLite, and each engine compiles anew."""
    engines = _Engines()
    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
            patch.setattr(module, "create_engine", engines.create)
        yield
    engines.dispose()


class _Engines:
    """An engine with a pool for each file; one that was deleted and made again is another file."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Engine] = {}

    def create(self, url: str, **options: object) -> Engine:
        assert options["poolclass"] is NullPool
        file = Path(make_url(url).database or "")
        if not file.exists():
            return create_engine(url, **options)
        place = (url, file.stat().st_ino)
        if place not in self._kept:
            self._kept[place] = _compiled_once(
                create_engine(url, **options | {"poolclass": QueuePool, "max_overflow": -1})
            )
            # Dagster disposes of an engine after each statement
            self._kept[place].dispose = lambda close=True: None  # type: ignore[method-assign]
        return self._kept[place]

    def dispose(self) -> None:
        for engine in self._kept.values():
            engine.pool.dispose()


_first: list[Engine] = []


def _compiled_once(engine: Engine) -> Engine:
    """An engine that takes over what the first one of the session has compiled: all are of SQLite."""
    _first.append(engine)
    engine.dialect, engine._compiled_cache = _first[0].dialect, _first[0]._compiled_cache
    del _first[1:]
    return engine


@pytest.fixture(scope="session", autouse=True)
def connections_in_memory_kept() -> Iterator[None]:
    """Dagster connects anew for each statement on its storage in memory, and sets two pragmas each time.

    The journal in memory has no other mode; foreign keys are checked here from the start of each connection.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (in_memory_events, in_memory_runs):
            patch.setattr(module, "create_engine", _pooled(module.create_engine))
        patch.setattr(in_memory_events.InMemoryEventLogStorage, "_connect", _one_at_a_time)
        patch.setattr(in_memory_runs.InMemoryRunStorage, "connect", lambda storage: storage._engine.begin())
        yield


def _pooled(create: Callable[..., Engine]) -> Callable[..., Engine]:
    def pooled(url: str, **options: object) -> Engine:
        assert options == {"poolclass": NullPool}
        # without a limit: connections to one database are as many as threads that use it at once
        arguments = {"check_same_thread": False}
        engine = _compiled_once(create(url, poolclass=QueuePool, max_overflow=-1, connect_args=arguments))
        event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA foreign_keys=ON").close())
        return engine

    return pooled


@contextmanager
def _one_at_a_time(storage: Any) -> Iterator[Connection]:
    with storage._db_lock, storage._engine.begin() as connection:
        yield connection


@pytest.fixture(scope="session", autouse=True)
def columns_looked_up_once() -> Iterator[None]:
    """Dagster reads the columns of a table from the database each time before it uses one that was added later."""
    with pytest.MonkeyPatch.context() as patch:
        for storage in (in_memory_events.InMemoryEventLogStorage, sqlite_event_log.SqliteEventLogStorage):
            for name in ("has_asset_key_col", "_has_asset_key_col_on_connection", "has_table"):
                if hasattr(storage, name):  # a release of Dagster may lack it
                    patch.setattr(storage, name, _once_there(getattr(storage, name)))
        yield


def _once_there(look_up: Callable[..., bool]) -> Callable[..., bool]:
    """What a storage once has, it keeps."""
    there: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()

    def kept(storage: object, *arguments: Any) -> bool:
        names = there.setdefault(storage, set())
        name = arguments[-1]
        if name not in names and look_up(storage, *arguments):
            names.add(name)
        return name in names

    return kept


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a failed test in the browser has the text of its page."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.failed and report.when == "call" and page is not None and item.get_closest_marker("system"):
        from interleaved_assets_tests.browser import what_it_shows

        report.sections.append(("page", what_it_shows(page)))
    return report


@pytest.fixture(scope="module")
def contexts(browser: "Browser") -> Iterator[dict[str, "BrowserContext"]]:
    """By the address of the webserver; ended with the module."""
    contexts: dict[str, BrowserContext] = {}
    yield contexts
    for context in contexts.values():
        context.close()


@pytest.fixture
def page(browser: "Browser", contexts: dict[str, "BrowserContext"], live: "LiveDagster") -> Iterator["Page"]:
    """A page of the module's own webserver, its fixture ``live``."""
    from interleaved_assets_tests.browser import new_context, next_page

    if live.url not in contexts:
        contexts[live.url] = new_context(browser, live.url)
    with next_page(contexts[live.url], live.url) as page:
        yield page
