import re
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.executors import SLOTS
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.live import ROOT, opened

MAKEFILE = (ROOT / "Makefile").read_text()


def test_every_pool_that_an_asset_uses_has_a_limit(tmp_path: Path) -> None:
    model = '[clip]\nenabled = true\nmodel = "ViT-B-32"\npretrained = "openai"\n'
    definitions = build_definitions(project(tmp_path, model))
    used = {
        pool
        for asset in definitions.assets or []
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable
        for pool in asset.op.pools
    }
    assert used == set(SLOTS)


@pytest.mark.system  # imports all of Dagster in a process of its own
def test_the_makefile_sets_the_limits(tmp_path: Path) -> None:
    commands = re.findall(r"\$\(BIN\)/dagster (instance concurrency set (\w+) (\d+))$", MAKEFILE, re.MULTILINE)
    assert {pool: int(limit) for _, pool, limit in commands} == SLOTS
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    for command, _, _ in commands[:1]:
        subprocess.run(
            [sys.executable, "-m", "dagster", *command.split()], env={"DAGSTER_HOME": str(tmp_path)}, check=True
        )
    with opened(tmp_path) as instance:
        ((_, pool, limit), *_) = commands
        assert instance.event_log_storage.get_concurrency_info(pool).slot_count == int(limit)
