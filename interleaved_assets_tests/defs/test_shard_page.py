"""What the page of a shard shows after a run that made nothing, and after one that failed."""

from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.cli import main
from interleaved_assets_tests.defs.runs import STAGES, run_chain
from interleaved_assets_tests.documents import good_shard, project


def shown(instance: dg.DagsterInstance, asset: str, key: str) -> dict[str, object]:
    """Metadata of the latest materialization of a shard."""
    asked = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[key])
    (record,) = instance.fetch_materializations(asked, limit=1).records
    assert record.asset_materialization is not None
    return {name: value.value for name, value in record.asset_materialization.metadata.items()}


def test_after_an_unchanged_run_it_shows_what_it_showed(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    assert run_chain(instance, settings, ["a"]).success
    before = {asset: shown(instance, asset, "a") for asset in STAGES}
    assert {"pictures", "page", "dropped_rows", "dagster/uri", "seconds", "source"} <= before["filtered"].keys()
    assert "images_per_second" in before["image_scores"]
    assert run_chain(instance, settings, ["a"]).success
    for asset in STAGES:
        after = shown(instance, asset, "a")
        assert after.pop("unchanged") is True
        assert after == before[asset]
        assert list(after) == list(before[asset])


def test_a_failure_in_dagster_is_kept_as_one_of_the_command_line_is(
    tmp_path: Path, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project(tmp_path)
    for name in ("a", "c"):
        good_shard(tmp_path / f"raw/{name}.tar")
    (tmp_path / "raw/b.tar").write_bytes(b"no tar")
    assert not run_chain(instance, settings, ["a", "b", "c"]).success
    kept = tmp_path / "out/failures"
    assert [path.relative_to(kept) for path in kept.rglob("*.json")] == [Path("normalized/b.json")]
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "status"]) == 0
    assert f"UTC: {tmp_path}/raw/b.tar is not a tar" in capsys.readouterr().out
    good_shard(tmp_path / "raw/b.tar")
    assert run_chain(instance, settings, ["a", "b", "c"]).success
    assert list(kept.rglob("*.json")) == []
