from pathlib import Path

import pytest

from interleaved_assets.settings import Settings

CURATED = pytest.mark.project(shards={name: ord(name) for name in "ab"}, done=("a", "b"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "curated" in getattr(item, "fixturenames", ()):
            item.add_marker(CURATED)


@pytest.fixture
def curated(settings: Settings, tmp_path: Path) -> list[str]:
    """Arguments that point at a project with two shards that went through the chain."""
    return ["--settings", str(tmp_path / "interleaved.toml")]
