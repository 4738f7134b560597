from pathlib import Path

import pytest

from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.projects import take_all


@pytest.fixture
def curated(tmp_path: Path) -> list[str]:
    """Arguments that point at a project with two shards that went through the chain."""
    settings = project(tmp_path)
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
        take_all(settings, name)
    return ["--settings", str(tmp_path / "interleaved.toml")]
