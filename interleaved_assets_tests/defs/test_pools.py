from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.pools import SLOTS, set_limits
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.live import ROOT


@pytest.fixture
def instance(tmp_path: Path) -> dg.DagsterInstance:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    return dg.DagsterInstance.from_config(str(home))


def test_every_pool_that_an_asset_uses_gets_a_limit(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    model = '[clip]\nenabled = true\nmodel = "ViT-B-32"\npretrained = "openai"\n'
    definitions = build_definitions(project(tmp_path, model))
    used = {
        pool
        for asset in definitions.assets or []
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable
        for pool in asset.op.pools
    }
    assert used == set(SLOTS)
    storage = instance.event_log_storage
    assert all(storage.get_concurrency_info(pool).using_default_limit for pool in used)
    set_limits(instance)
    assert {pool: storage.get_concurrency_info(pool).slot_count for pool in used} == {"gpu": 1, "shard_io": 2}


def test_a_limit_that_somebody_chose_stays(instance: dg.DagsterInstance) -> None:
    instance.event_log_storage.set_concurrency_slots("gpu", 4)
    set_limits(instance)
    assert instance.event_log_storage.get_concurrency_info("gpu").slot_count == 4
    assert instance.event_log_storage.get_concurrency_info("shard_io").slot_count == 2
