"""The asset image_export in a real run: recorded, checked, shown, and there only if it is enabled."""

from pathlib import Path

from dagster import AssetKey, DagsterInstance

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.pipeline.run.record import read_record
from interleaved_assets_tests.defs.runs import check_result, run_chain
from interleaved_assets_tests.documents import document, good_shard, project, sharp_image, write_shard

KEY = AssetKey("image_export")


def test_a_run_exports_the_images_of_each_shard(tmp_path: Path) -> None:
    settings = project(
        tmp_path,
        '[selection]\non_score_error = "warn"\n[export]\nenabled = true\nimages_per_tar = 1\nreencode = "jpeg"\n',
    )
    good_shard(tmp_path / "raw/a.tar")
    damaged = {f"doc-{number}": document("text", sharp_image(number)) for number in range(24)}
    write_shard(tmp_path / "raw/b.tar", {**damaged, "bad": document("text", sharp_image(99)[:400])})
    with DagsterInstance.ephemeral() as instance:
        ran = run_chain(instance, settings, ["a", "b"])
        assert (ran.success, ran.errors) == (True, [])
        records = instance.fetch_materializations(KEY, limit=2).records
        shown = {record.partition_key: record.asset_materialization.metadata for record in records}  # type: ignore[union-attr]
        assert [shown[key]["images"].value for key in ("a", "b")] == [4, 24]
        assert [shown[key]["tars"].value for key in ("a", "b")] == [4, 24]
        assert shown["b"]["rows_dropped"].value == 1
        assert shown["b"]["dropped/undecodable_image"].value == 1
        assert shown["b"]["dropped_rows"].records[0].data["sample"] == "bad"
        record = read_record(shown["b"]["record"].value, {})
        assert record is not None
        assert len(record.outputs) == 50
        for check in ("rows_without_error", "rows_accounted_for"):
            passed = {key: check_result(instance, KEY.to_user_string(), check, key).passed for key in ("a", "b")}
            assert passed == {"a": True, "b": check == "rows_accounted_for"}


def test_it_is_there_only_if_enabled(tmp_path: Path) -> None:
    for text, there in (("", False), ("[export]\nenabled = true\n", True)):
        graph = build_definitions(project(tmp_path, text)).resolve_asset_graph()
        assert (KEY in graph.get_all_asset_keys()) == there
        if there:
            names = {key.name for key in graph.asset_check_keys if key.asset_key == KEY}
            assert names == {"materialization_errors", "up_to_date"}
            assert graph.get(KEY).parent_keys == {AssetKey(name) for name in ("filtered", "image_scores", "final_tars")}
