"""The asset rewritten in a real run: there only if it is on, recorded, checked, and read by the assets after it."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dagster import AssetKey, DagsterInstance

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.pipeline.run.record import read_record
from interleaved_assets_tests.defs.runs import check_result, run_chain
from interleaved_assets_tests.documents import document, good_shard, project, sharp_image, write_shard

KEY = AssetKey("rewritten")
FUNCTIONS = '[rewriting]\nfunctions = ["redact_personal_data", "drop_boilerplate"]\n'


def test_a_run_rewrites_the_texts_of_each_shard(tmp_path: Path) -> None:
    settings = project(tmp_path, FUNCTIONS)
    good_shard(tmp_path / "raw/a.tar")
    write_shard(tmp_path / "raw/b.tar", {"one": document("a@b.com or 1.2.3.4", sharp_image(1), "Skip to content")})
    with DagsterInstance.ephemeral() as instance:
        ran = run_chain(instance, settings, ["a", "b"])
        assert (ran.success, ran.errors) == (True, [])
        found = instance.fetch_materializations(KEY, limit=2).records
        shown = {record.partition_key: record.asset_materialization.metadata for record in found}  # type: ignore[union-attr]
        assert shown["b"]["rows_changed/redact_personal_data"].value == 1
        assert shown["b"]["dropped/drop_boilerplate"].value == 1
        (dropped,) = shown["b"]["dropped_rows"].records
        # no text: events of Dagster keep what the ledger says
        assert (dropped.data["sample"], dropped.data["content or detail"]) == ("one", "navigation or a notice")
        assert "rows_changed/redact_personal_data" not in shown["a"]
        record = read_record(shown["b"]["record"].value, {})
        assert record is not None
        assert shown["b"]["changes"].value == record.outputs["changes"].uri
        assert pq.read_table(record.outputs["changes"].uri)["reason"].to_pylist() == [
            "1 [EMAIL], 1 [IP_ADDRESS]",
            "navigation or a notice",
        ]
        for check in ("rows_accounted_for", "keys_unique", "schema_canonical"):
            assert all(check_result(instance, "rewritten", check, key).passed for key in ("a", "b"))
        tar = (tmp_path / "out/tars/b.tar").read_bytes()
        assert (b"[EMAIL] or [IP_ADDRESS]" in tar, b"a@b.com" in tar) == (True, False)
        assert "rewritten" not in (tmp_path / "out/pages/a.html").read_text()
        page = (tmp_path / "out/pages/b.html").read_text()
        assert "changed by <bdi>redact_personal_data: 18 → 23 characters, 1 [EMAIL], 1 [IP_ADDRESS]</bdi>" in page
        assert "a@b.com" not in page
        assert "text at position 2: its text may be personal data" in page


def test_a_function_that_breaks_its_contract_fails_the_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad_texts.py").write_text("def all_gone(rows):\n    return rows.slice(0, 0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = project(tmp_path, '[rewriting]\nfunctions = ["bad_texts:all_gone"]\n')
    good_shard(tmp_path / "raw/a.tar")
    with DagsterInstance.ephemeral() as instance:
        ran = run_chain(instance, settings, ["a"])
    assert not ran.success
    message = "shard a: the function bad_texts:all_gone dropped a row that is no text: sample 'doc-0-a', position -1"
    assert any(message in error for error in ran.errors)


def test_it_is_there_only_if_a_function_is_named(tmp_path: Path) -> None:
    for text, rows in (("", "normalized"), (FUNCTIONS, "rewritten")):
        graph = build_definitions(project(tmp_path, text)).resolve_asset_graph()
        assert (KEY in graph.get_all_asset_keys()) == (rows == "rewritten")
        parents = {name: graph.get(AssetKey(name)).parent_keys for name in ("image_scores", "filtered")}
        assert parents["image_scores"] == {AssetKey("normalized")}
        assert AssetKey(rows) in parents["filtered"]
        assert (AssetKey("normalized") in parents["filtered"]) == (rows == "normalized")
