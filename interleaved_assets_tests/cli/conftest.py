from pathlib import Path

import pytest

from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import good_shard, project


@pytest.fixture
def curated(tmp_path: Path) -> list[str]:
    """Arguments that point at a project with two shards that went through the chain."""
    settings = project(tmp_path)
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
        for stage in stage_dag(settings).values():
            take_through(stage, name, settings)
    return ["--settings", str(tmp_path / "interleaved.toml")]
