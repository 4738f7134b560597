"""Projects for the tests: settings with raw shards, and stages that went over them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.restorable import Restorable

_NO_SHARDS: Mapping[str, int] = MappingProxyType({})


def take_all(settings: Settings, key: str = "a") -> dict[str, Record]:
    """Take a shard through all stages; returns the record of each, the last one last."""
    return {name: take_through(stage, key, settings).record for name, stage in stage_dag(settings).items()}


def make_project(
    folder: Path,
    text: str = "",
    *,
    shards: Mapping[str, int] = _NO_SHARDS,
    done: Iterable[str] = (),
    finish: Callable[[Settings, Path], object] = lambda settings, folder: None,
) -> Settings:
    """A project with ``text`` in its settings, good shards by name with their seeds, and all stages for ``done``.

    ``finish`` does last what is special about it.
    """
    settings = project(folder, text)
    for name, seed in shards.items():
        good_shard(folder / "raw" / f"{name}.tar", seed=seed)
    for key in done:
        take_all(settings, key)
    finish(settings, folder)
    return settings


_made: dict[str, Restorable] = {}


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder; the one of the fixture ``settings`` if stages are done for some of its shards.

    These take long, and so one project is made for all tests with the same arguments. Each gets it as it was made, and
    after one that wrote into a file instead of replacing it the project is made anew.
    """
    marker = request.node.get_closest_marker("project")
    if not _has_stages_done(marker) or "settings" not in request.fixturenames:
        return tmp_path
    key = repr((marker.args, marker.kwargs))
    if key not in _made or not _made[key].is_as_made():
        folder = tmp_path_factory.mktemp("made") / "project"
        folder.mkdir()
        make_project(folder, *marker.args, **marker.kwargs)
        _made[key] = Restorable(folder)
    return _made[key].restore()


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Those of a project below ``tmp_path``, made with the arguments of the marker ``project`` where there is one.

    With ``in_bucket=True`` its raw shards and its outputs are in the bucket of the fixture ``bucket``.
    """
    marker = request.node.get_closest_marker("project")
    if marker is not None and "in_bucket" in marker.kwargs:
        server, bucket = request.getfixturevalue("s3_environment"), request.getfixturevalue("bucket")
        given = {name: value for name, value in marker.kwargs.items() if name != "in_bucket"}
        make_project(tmp_path, *marker.args, **given)
        for tar in (tmp_path / "raw").rglob("*.tar"):
            server.fs.put_file(str(tar), f"{bucket}/{tar.relative_to(tmp_path)}")
        file = tmp_path / "interleaved.toml"
        roots = f'raw_root = "{bucket}/raw"\noutput_root = "{bucket}/out"\n'
        file.write_text(file.read_text().replace('raw_root = "raw"\noutput_root = "out"\n', roots))
        return load_settings(file)
    if _has_stages_done(marker):
        return load_settings(tmp_path / "interleaved.toml")
    return make_project(tmp_path, *marker.args, **marker.kwargs) if marker else make_project(tmp_path)


def _has_stages_done(marker: pytest.Mark | None) -> bool:
    return marker is not None and "done" in marker.kwargs
