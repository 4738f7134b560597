"""The whole chain with both roots in a bucket, on a real S3 server."""

from pathlib import Path

import fsspec
from dagster import DagsterInstance

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets.io import InterleavedWebdatasetReader
from interleaved_assets.pipeline.run.stored_records import read_records
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.status import CurrentStages
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.documents import good_shard
from interleaved_assets_tests.s3 import S3Server


def test_the_chain_runs_in_a_bucket_by_one_setting(tmp_path: Path, bucket: str, s3_environment: S3Server) -> None:
    (tmp_path / "interleaved.toml").write_text(f'[storage]\nraw_root = "{bucket}/raw"\noutput_root = "{bucket}/out"\n')
    settings = load_settings(tmp_path / "interleaved.toml")
    for name in ("a", "b c"):
        good_shard(tmp_path / f"{name}.tar", seed=ord(name[0]))
        s3_environment.fs.put_file(str(tmp_path / f"{name}.tar"), f"{bucket}/raw/{name}.tar")
    with DagsterInstance.ephemeral() as instance:
        keys = register_all(instance, settings.storage)
        assert keys == ["a", "b%20c"]
        assert materialize_all(instance, settings, keys)
        for key in keys:
            records = read_records(settings.storage.shard(key), stage_dag(settings))
            assert not CurrentStages.of(settings).not_current(records)
            assert records["normalized"].source is not None
            assert records["normalized"].source.version.startswith("etag:")
            assert records["final_tars"].counts_out.images == 4
        etags = {path: info["ETag"] for path, info in s3_environment.fs.find(f"{bucket}/out", detail=True).items()}
        assert materialize_all(instance, settings, keys)
    fs, _ = fsspec.core.url_to_fs(bucket)
    fs.invalidate_cache()
    again = {path: info["ETag"] for path, info in fs.find(f"{bucket}/out", detail=True).items()}
    assert {path for path in again if again[path] != etags.get(path)} <= {f"{bucket[5:]}/out/dataset_report.html"}
    (batch,) = InterleavedWebdatasetReader(f"{bucket}/out/tars/b%20c.tar", sample_id_field="sample_id")
    assert batch.num_items == 3
