"""A real PostgreSQL server for the tests, from Debian's package: on loopback, in a folder of its own, never as root."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from interleaved_assets_tests.ports import free_port, wait_until_up

_START_SECONDS = 30
# A test's data need not survive a power cut.
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


@dataclass(frozen=True)
class PostgresServer:
    """A running server with one database and one user, who needs the password."""

    port: int
    password: str

    @property
    def environment(self) -> dict[str, str]:
        """What deploy/postgres/dagster.yaml reads."""
        return {
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_PORT": str(self.port),
            "DAGSTER_PG_DB": "dagster",
            "DAGSTER_PG_USERNAME": "dagster",
            "DAGSTER_PG_PASSWORD": self.password,
        }

    def rows(self, query: str, *values: object, database: str = "dagster") -> list[tuple[Any, ...]]:
        """The rows that a query gives, over a connection of its own."""
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user="dagster", password=self.password, dbname=database
        )
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(query, values)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    # PostgreSQL refuses to run as root; the package has made a user for it
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    server = PostgresServer(free_port(), secrets.token_urlsafe(24))
    process = _start(server, programs, folder, user)
    try:
        wait_until_up(
            process,
            lambda: server.rows("SELECT 1", database="postgres"),
            _START_SECONDS,
            folder / "log",
            psycopg2.OperationalError,
        )
        server.rows("CREATE DATABASE dagster", database="postgres")
        yield server
    finally:
        # an immediate shutdown: it takes its own processes with it, which would else go on writing into the folder
        process.send_signal(signal.SIGQUIT)
        process.wait()
        shutil.rmtree(folder)


def _programs() -> Path:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("initdb", path=os.pathsep.join([*map(str, reversed(debian)), os.environ["PATH"]]))
    if found is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    return Path(found).parent


def _start(server: PostgresServer, programs: Path, folder: Path, user: str | None) -> "subprocess.Popen[bytes]":
    secret = folder / "password"
    secret.write_text(server.password)
    if user:
        shutil.chown(secret, user)
    ownership: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    create = [programs / "initdb", "-D", folder / "data", "-U", "dagster", "-A", "scram-sha-256", f"--pwfile={secret}"]
    subprocess.run(
        [*create, "--no-sync", "-E", "UTF8", "--locale=C"],
        check=True,
        capture_output=True,
        cwd=folder,
        **ownership,
    )
    settings = ("listen_addresses=127.0.0.1", f"port={server.port}", "unix_socket_directories=", *_FAST)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *(part for item in settings for part in ("-c", item))],
            stdout=log,
            stderr=log,
            cwd=folder,
            **ownership,
        )
