"""How many connections a run over many shards opens to PostgreSQL."""

from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance

from interleaved_assets.defs.partitions import SHARDS as SHARDS_DEFINITION
from interleaved_assets_tests.defs.runs import STAGES, run_chain
from interleaved_assets_tests.deploy.postgres import PostgresServer
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.live import ROOT

pytestmark = pytest.mark.system

SHARDS = 8
ASSET = AssetKey("final_tars")


def test_a_run_keeps_its_connections(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres_server.environment.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text((ROOT / "deploy" / "postgres" / "dagster.yaml").read_text())
    settings = project(tmp_path)
    keys = [f"{number}" for number in range(SHARDS)]
    for number, key in enumerate(keys):
        good_shard(tmp_path / "raw" / f"{key}.tar", seed=number)

    def sessions() -> int:
        ((count,),) = postgres_server.rows("SELECT sessions FROM pg_stat_database WHERE datname = 'dagster'")
        return int(count)

    with DagsterInstance.from_config(str(home)) as instance:
        assert run_chain(instance, settings, keys).success  # the first run also makes tables and pools
        before = sessions()
        assert run_chain(instance, settings, keys).success
        # where none is kept, an event takes some four connections
        events = SHARDS * len(STAGES) * 4
        assert sessions() - before < events / 2
        assert instance.get_materialized_partitions(ASSET) == set(keys)
        # the server is shared with other tests, which count what is materialized
        instance.wipe_assets([AssetKey(name) for name in STAGES])
        for key in keys:
            instance.delete_dynamic_partition(SHARDS_DEFINITION, key)
        assert not instance.get_materialized_partitions(ASSET)
