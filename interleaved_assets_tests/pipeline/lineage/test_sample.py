"""Tracing a sample through the stages, and what is read to find it."""

from pathlib import Path

import pyarrow as pa
import pytest

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError
from interleaved_assets.pipeline.lineage import sample as module
from interleaved_assets.pipeline.lineage.sample import StageTrace, find_sample, trace_sample
from interleaved_assets.pipeline.run.counts import column_facts
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import (
    STAGES,
    blurred_image,
    document,
    good_shard,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.system_calls import files_opened

KEYS = ["a", "b", "c"]


pytestmark = pytest.mark.project(shards={key: ord(key) for key in KEYS}, done=KEYS)


def found(sample_id: str, settings: Settings, keys: list[str] = KEYS) -> dict[str, list[StageTrace] | InterleavedError]:
    return dict(find_sample(sample_id, keys, settings.storage, stage_dag(settings)))


def test_a_trace_has_the_rows_of_the_sample_at_every_stage(settings: Settings) -> None:
    traces = trace_sample("doc-97-b", settings.storage.shard("a"), stage_dag(settings))
    assert [trace.record.stage for trace in traces] == list(stage_dag(settings))
    rows = {trace.record.stage: None if trace.kept is None else trace.kept.num_rows for trace in traces}
    known = {"normalized": 4, "image_scores": 2, "document_scores": 2, "filtered": 3, "final_tars": None}
    assert {name: rows[name] for name in known} == known
    lost = {
        trace.record.stage: trace.dropped.select(["position", "reason", "threshold"]).to_pylist() for trace in traces
    }
    dropped = {"filtered": [{"position": 2, "reason": "sharpness_below", "threshold": 100.0}]}
    assert {name: ledger for name, ledger in lost.items() if ledger} == dropped
    assert all("binary_content" not in trace.kept.column_names for trace in traces if trace.kept is not None)


def test_rows_in_a_tar_are_not_those_of_a_side_table_before_it(settings: Settings) -> None:
    def one_row(shard: ShardTask) -> Work:
        schema = pa.schema([pa.field("sample_id", pa.string()), pa.field("position", pa.int32())])
        with parquet_shard(shard.paths.output("hashes"), schema) as out:
            out.write(pa.table([["doc-97-b"], [1]], schema=schema))
        return Work(outputs={"rows": OutputFile.of(out.output)}, **column_facts(schema))

    take_through(Stage("hashes", ("filtered",), run=one_row), "a", settings)
    names = [*stages_before("final_tars"), "hashes", "final_tars"]
    left = {trace.record.stage: trace.left for trace in trace_sample("doc-97-b", settings.storage.shard("a"), names)}
    assert {name: left[name] for name in ("filtered", "hashes", "final_tars")} == {
        "filtered": 3,
        "hashes": 1,
        "final_tars": 3,
    }


def test_only_shards_with_the_sample_are_found(settings: Settings) -> None:
    assert list(found("doc-98-a", settings)) == ["b"]
    assert found("unknown", settings) == {}
    assert trace_sample("unknown", settings.storage.shard("a"), stage_dag(settings)) == []


def test_two_shards_with_the_same_sample_id_are_both_found(settings: Settings, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "d.tar", seed=ord("a"))
    take_all(settings, "d")
    assert list(found("doc-97-a", settings, [*KEYS, "d"])) == ["a", "d"]


def test_of_a_shard_without_the_sample_only_the_ids_of_normalized_are_read(settings: Settings, tmp_path: Path) -> None:
    for folder in ("image_scores", "filtered", "dropped"):
        for file in (tmp_path / "out" / folder).rglob("[bc].parquet"):
            file.unlink()
    with files_opened(".parquet") as opened:
        assert list(found("doc-97-a", settings)) == ["a"]
    assert {Path(path).parent.name for path in opened if path.endswith(("/b.parquet", "/c.parquet"))} == {"normalized"}


def test_a_sample_that_normalization_dropped_is_found(tmp_path: Path) -> None:
    settings = project(tmp_path, '[errors]\non_materialize_error = "drop_sample"\n')
    raw = write_shard(
        tmp_path / "raw" / "a.tar", {"good": document("x", sharp_image(1)), "bad": document("one", blurred_image())}
    )
    raw.write_bytes(raw.read_bytes().replace(b'"bad.1.png"', b'"bad.2.png"'))  # the document names another member
    take_through(stage_dag(settings)["normalized"], "a", settings)
    (traces,) = found("bad", settings, ["a"]).values()
    assert not isinstance(traces, InterleavedError)
    assert traces[0].kept is not None
    assert traces[0].kept.num_rows == 0
    assert traces[0].dropped["reason"].to_pylist() == ["sample_dropped", "sample_dropped", "missing_member"]


def test_a_shard_without_a_record_of_normalized_is_searched(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out/records/normalized/a.json").unlink()
    (traces,) = found("doc-97-a", settings).values()
    assert isinstance(traces, list)
    assert [trace.record.stage for trace in traces] == [name for name in STAGES if name != "normalized"]


def test_a_shard_that_cannot_be_read_does_not_end_the_search(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out/normalized/a.parquet").write_bytes(b"PAR1 is not all it takes")
    (tmp_path / "out/normalized/b.parquet").unlink()
    results = found("doc-99-a", settings)
    assert list(results) == KEYS
    assert isinstance(results["a"], ShardError)
    assert "normalized/a.parquet is not a sound Parquet file" in str(results["a"])
    assert str(results["a"]).endswith("Materialize its shard again.")
    assert isinstance(results["b"], StorageError)
    assert isinstance(results["c"], list)


@pytest.mark.parametrize("sample_id", ["a", "b", "c", "d", "aa", "é", "~"])
def test_row_groups_without_a_sample_are_skipped(tmp_path: Path, sample_id: str) -> None:
    uri = str(tmp_path / "x.parquet")
    schema = pa.schema([pa.field("sample_id", pa.string()), pa.field("list", pa.list_(pa.int32()))])
    ids = ["a", "b", "c", "c", "d", "é"]
    with parquet_shard(uri, schema, row_group_bytes=1) as out:
        out.write(pa.table([ids, [[1]] * len(ids)], schema=schema))
    with open_parquet(uri) as source:
        assert len(source.row_groups) == 5
        chosen = module.groups_with([sample_id], source)
        read = source.read(["sample_id"], chosen)["sample_id"].to_pylist()
    assert read == [one for one in ids if one == sample_id]
