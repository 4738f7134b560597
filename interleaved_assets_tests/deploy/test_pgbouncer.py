"""Dagster's storage through deploy/postgres/pgbouncer.ini: runs at a time that share connections to PostgreSQL."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from dagster import AssetKey, DagsterInstance

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets_tests.defs.runs import STAGES, materialized
from interleaved_assets_tests.deploy.postgres import PostgresServer
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.live import ROOT
from interleaved_assets_tests.ports import end, free_port, wait_until_up

pytestmark = pytest.mark.system

RUNS = 3
SHARED = 2
"""Connections of PgBouncer to the server: fewer than one run keeps open."""
_START_SECONDS = 120
RUN = """
import sys
from dagster import DagsterInstance
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.defs.runs import run_chain

with DagsterInstance.get() as instance:
    if not run_chain(instance, load_settings(sys.argv[1]), sys.argv[2:]).success:
        logs = instance.all_logs(instance.get_runs(limit=1)[0].run_id)
        sys.exit("\\n".join(entry.user_message for entry in logs if "fail" in entry.user_message.lower()))
"""


@pytest.fixture
def pooled(deploy_folder: Path, postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """The same server, behind PgBouncer."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer: apt-get install pgbouncer")
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    pooled = replace(postgres_server, port=free_port())
    ((secret,),) = postgres_server.rows("SELECT rolpassword FROM pg_authid WHERE rolname = 'dagster'")
    (folder / "userlist.txt").write_text(f'"dagster" "{secret}"\n', encoding="utf-8")
    config = (deploy_folder / "postgres/pgbouncer.ini").read_text(encoding="utf-8")
    for setting, value in {
        "dagster": f"host=127.0.0.1 port={postgres_server.port}",
        "listen_port": str(pooled.port),
        "auth_file": f"{folder}/userlist.txt",
        "default_pool_size": str(SHARED),
    }.items():
        config, found = re.subn(rf"^{setting} = .*$", f"{setting} = {value}", config, flags=re.MULTILINE)
        assert found == 1, setting
    (folder / "pgbouncer.ini").write_text(config, encoding="utf-8")
    owner: dict[str, Any] = {}
    if os.geteuid() == 0:  # PgBouncer refuses to run as root, too
        owner = {"user": "postgres", "group": "postgres", "extra_groups": []}
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "postgres")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, folder / "pgbouncer.ini"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, **owner
        )
    try:
        wait_until_up(
            process, lambda: pooled.rows("SELECT 1"), _START_SECONDS, folder / "log", psycopg2.OperationalError
        )
        yield pooled
    finally:
        end(process)
        shutil.rmtree(folder)


def connected(server: PostgresServer) -> set[int]:
    """The server's processes for clients of Dagster's database, and no autovacuum worker."""
    found = server.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = 'dagster' AND backend_type = 'client backend'",
        database="postgres",
    )
    return {int(process) for (process,) in found}


def test_runs_at_a_time_share_connections(
    pooled: PostgresServer, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pooled.environment.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "deploy/postgres/dagster.yaml", home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    project(tmp_path)
    keys = [f"pooled-{number}" for number in range(RUNS)]
    for number, key in enumerate(keys):
        good_shard(tmp_path / "raw" / f"{key}.tar", seed=number)
    before = connected(postgres_server)  # those of earlier tests, which end at some time
    most_connections = 0
    with DagsterInstance.from_config(str(home)) as instance:  # also creates the tables
        instance.event_log_storage.set_concurrency_slots("shard_io", RUNS)
        instance.add_dynamic_partitions(SHARDS, keys)
        command = [sys.executable, "-c", RUN, str(tmp_path / "interleaved.toml")]
        runs = [subprocess.Popen([*command, key], cwd=ROOT, stderr=subprocess.PIPE, text=True) for key in keys]
        try:
            while any(run.poll() is None for run in runs):
                most_connections = max(most_connections, len(connected(postgres_server) - before))
                time.sleep(0.1)
            assert [(run.returncode, run.stderr and run.stderr.read()[-2000:]) for run in runs] == [(0, "")] * RUNS
        finally:
            for run in runs:
                run.kill()
                run.wait()
        assert {stage: materialized(instance, stage) for stage in STAGES} == {stage: set(keys) for stage in STAGES}
        # the server is shared with other tests, which count what is materialized
        instance.wipe_assets([AssetKey(name) for name in STAGES])
        for key in keys:
            instance.delete_dynamic_partition(SHARDS, key)
    assert 1 <= most_connections <= SHARED


def test_the_time_limit_of_one_process_is_not_that_of_others(pooled: PostgresServer) -> None:
    """Dagster sets it once for a connection: the webserver to 15 s, a run to 60 s."""
    for _ in range(SHARED + 1):
        pooled.rows("SET statement_timeout = 15000")
        assert pooled.rows("SHOW statement_timeout") == [("0",)]
    with pytest.raises(psycopg2.OperationalError, match="unsupported startup parameter: options"):
        # so it cannot be in the URL of dagster.yaml either
        psycopg2.connect(
            host="127.0.0.1",
            port=pooled.port,
            user="dagster",
            password=pooled.password,
            dbname="dagster",
            options="-c statement_timeout=1000",
        )
