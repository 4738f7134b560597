"""A shard that fails at a stage goes no further in that run, whatever lies there from runs before."""

from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets_tests.defs.runs import NO_TELEMETRY, run_chain
from interleaved_assets_tests.documents import good_shard, project

STAGES = ("normalized", "image_scores", "filtered", "final_tars")


@pytest.mark.parametrize("storage", ["sqlite", "memory"])
def test_old_outputs_of_a_failed_shard_are_not_told_as_new(tmp_path: Path, storage: str) -> None:
    settings = project(tmp_path)
    (tmp_path / "home").mkdir()
    for name in "ab":
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    home = dg.DagsterInstance.local_temp(str(tmp_path / "home"), overrides=NO_TELEMETRY)
    with home if storage == "sqlite" else dg.DagsterInstance.ephemeral() as instance:
        keys = register_all(instance, settings)
        assert materialize_all(instance, settings, keys)
        (tmp_path / "raw" / "a.tar").unlink()
        (last_report,) = instance.get_run_records(limit=1)
        assert not materialize_all(instance, settings, keys)
        runs = [record.dagster_run for record in instance.get_run_records(limit=2)]
        (failed,) = [run for run in runs if run.status is dg.DagsterRunStatus.FAILURE]
        assert failed.run_id != last_report.dagster_run.run_id
        done = instance.get_asset_partitions_for_run(failed.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
        assert {key.path[-1]: set(partitions) for key, partitions in done.items()} == {name: {"b"} for name in STAGES}


def test_what_stopped_a_shard_stands_on_its_page_at_every_stage_and_ends_the_run(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar")
    bad = tmp_path / "raw" / "b.tar"
    bad.write_bytes(b"this is no tar" * 100)
    cause = f"{bad} is not a tar: its first 512 bytes are no tar header"
    with dg.DagsterInstance.ephemeral() as instance:
        ran = run_chain(instance, settings, ["a", "b"])
        assert f"b: shard b: final_tars was not tried, since normalized failed: {cause}" in ran.summary
        for name in STAGES:
            (told,) = instance.fetch_observations(dg.AssetKey(name), limit=10).records
            assert told.asset_observation is not None
            assert told.asset_observation.partition == "b"
            metadata = {key: value.value for key, value in told.asset_observation.metadata.items()}
            assert metadata == {"error": cause, "failed_at": "normalized"}
