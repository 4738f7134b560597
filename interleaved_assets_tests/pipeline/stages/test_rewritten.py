"""The stage rewritten: its rows, its two ledgers, its record, and the stages that read it."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.columns import BINARY_SIZE
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.run.check import Basis
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record, read_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import (
    ROWS,
    blurred_image,
    document,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.projects import take_all

REDACT = '[rewriting]\nfunctions = ["redact_personal_data", "drop_boilerplate"]\n'
DOCUMENTS = {
    "one": document("Write to a@b.com", sharp_image(1), "Skip to content", blurred_image(), url="a@b.com"),
    "two": document("Nothing in it", sharp_image(2)),
    "three": document("Home | About | Contact"),
}
FORMS = ("copied", "referenced")


def prepared(folder: Path, text: str = REDACT, form: str = "copied") -> Settings:
    folder.mkdir(exist_ok=True)
    settings = project(folder, f'image_bytes = "{form}"\n{text}')
    write_shard(folder / "raw/a.tar", DOCUMENTS)
    return settings


def table(settings: Settings, stage: str) -> pa.Table:
    return pq.read_table(settings.storage.shard("a").output(stage))


@pytest.mark.parametrize("form", FORMS)
def test_texts_are_changed_and_dropped_and_the_rest_is_as_before(tmp_path: Path, form: str) -> None:
    settings = prepared(tmp_path, form=form)
    record = take_all(settings)["rewritten"]
    before, after = table(settings, "normalized"), table(settings, "rewritten")
    assert after.schema.equals(before.schema, check_metadata=True)
    assert (BINARY_SIZE in after.column_names) == (form == "referenced") == record.names_images
    gone = pc.or_kleene(pc.equal(before["text_content"], "Skip to content"), pc.equal(before["sample_id"], "three"))
    expected = before.filter(pc.invert(pc.fill_null(gone, False)))
    place = before.column_names.index("text_content")
    texts = [
        "Write to [EMAIL]" if text == "Write to a@b.com" else text for text in expected["text_content"].to_pylist()
    ]
    assert after == expected.set_column(place, before.schema.field(place), pa.array(texts))
    assert (record.counts_in.rows, record.counts_out.rows) == (10, 7)
    assert (record.counts_in.images, record.counts_out.images) == (3, 3)
    assert record.dropped == {"drop_boilerplate": 2, "sample_dropped": 1}
    assert record.notes == {"rows_changed/redact_personal_data": 1, "rows_changed/drop_boilerplate": 0}
    assert record.settings == {"functions": ["redact_personal_data", "drop_boilerplate"], "version": 0}
    changes = pq.read_table(record.outputs["changes"].uri).to_pylist()
    assert [(row["sample_id"], row["position"], row["function"], row["kind"], row["reason"]) for row in changes] == [
        ("one", 0, "redact_personal_data", "changed", "1 [EMAIL]"),
        ("one", 2, "drop_boilerplate", "dropped", "navigation or a notice"),
        ("three", 0, "drop_boilerplate", "dropped", "navigation or a notice"),
    ]
    assert [(row["characters_before"], row["characters_after"]) for row in changes] == [
        (16, 16),
        (15, None),
        (22, None),
    ]
    stage = stage_dag(settings)["rewritten"]
    verdicts = [check.judge(record, Basis(settings, stage)) for check in stage.checks]
    assert [verdict.passed for verdict in verdicts] == [True, True, True]


@pytest.mark.parametrize("form", FORMS)
def test_later_stages_read_the_rewritten_texts(tmp_path: Path, form: str) -> None:
    settings = prepared(tmp_path, form=form)
    records = take_all(settings)
    inputs = {
        "normalized": {"raw_shards"},
        "rewritten": {ROWS},
        "image_scores": {ROWS},
        "document_scores": {"rewritten"},
        "filtered": {"rewritten", "image_scores", "document_scores"},
        "final_tars": {"filtered"},
    }
    assert {name: set(records[name].inputs) for name in inputs} == inputs
    assert table(settings, "filtered")["text_content"].drop_null().to_pylist() == ["Write to [EMAIL]", "Nothing in it"]
    assert records["filtered"].dropped == {"sharpness_below": 1}
    assert records["final_tars"].counts_out.texts == 2
    tar = Path(records["final_tars"].rows_uri).read_bytes()
    assert (b"Write to [EMAIL]" in tar, b"Write to a@b.com" in tar) == (True, False)


def test_both_forms_of_images_give_the_same_tars_and_ledgers(tmp_path: Path) -> None:
    found = {}
    for form in FORMS:
        settings = prepared(tmp_path / form, form=form)
        take_all(settings)
        out = tmp_path / form / "out"
        kinds = ("changes", "dropped", "tars", "image_scores")
        files = [file for kind in kinds for file in sorted((out / kind).rglob("*.*"))]
        found[form] = {file.relative_to(out).as_posix(): file.read_bytes() for file in files}
    assert found["copied"] == found["referenced"]
    assert len(found["copied"]) >= 7


def test_a_changed_rewriting_scores_no_image_again(tmp_path: Path) -> None:
    settings = prepared(tmp_path, "")
    assert "rewritten" not in take_all(settings)
    rewriting = prepared(tmp_path)
    dag = stage_dag(rewriting)
    unchanged = {name: take_through(stage, "a", rewriting).unchanged for name, stage in dag.items()}
    assert [name for name, same in unchanged.items() if same] == [*stages_before("image_scores"), "image_scores"]
    other = prepared(tmp_path, f"{REDACT}version = 1\n")
    again = {name: take_through(stage, "a", other).unchanged for name, stage in stage_dag(other).items()}
    # the same rows come out, so that nothing after it is made
    assert [name for name, same in again.items() if not same] == ["rewritten"]


def test_without_functions_records_are_those_of_before(tmp_path: Path) -> None:
    settings = prepared(tmp_path, "")
    before = take_all(settings)["filtered"]
    take_all(prepared(tmp_path))
    after = take_all(prepared(tmp_path, ""))["filtered"]
    assert after.model_dump(exclude={"seconds", "outputs", "source"}) == before.model_dump(
        exclude={"seconds", "outputs", "source"}
    )
    assert after.code_version == before.code_version


@pytest.mark.parametrize("form", FORMS)
def test_own_functions_are_named_by_module_and_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tmp_path / "own_texts.py").write_text(
        "import pyarrow.compute as pc\n"
        "def shout(rows):\n"
        '    place = rows.column_names.index("text_content")\n'
        "    field = rows.schema.field(place)\n"
        '    return rows.set_column(place, field, pc.utf8_upper(rows["text_content"]))\n'
        "def invent(rows):\n"
        "    import pyarrow as pa\n"
        "    return pa.concat_tables([rows, rows.slice(1, 1)])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = prepared(tmp_path, '[rewriting]\nfunctions = ["own_texts:shout"]\n', form)
    record = take_all(settings)["rewritten"]
    assert record.notes == {"rows_changed/own_texts:shout": 4}
    assert table(settings, "filtered")["text_content"].drop_null().to_pylist()[0] == "WRITE TO A@B.COM"
    bad = prepared(tmp_path, '[rewriting]\nfunctions = ["own_texts:invent"]\n', form)
    message = (
        "shard a: the function own_texts:invent returned rows twice or in another order, from sample 'one', position 0"
    )
    with pytest.raises(ShardError, match=message):
        take_all(bad)
    assert read_record(bad.storage.shard("a").record("rewritten"), {}) is None


def test_images_that_no_document_names_are_counted_as_without_rewriting(tmp_path: Path) -> None:
    counted: dict[str, Record] = {}
    for name, text in (("without", ""), ("with", REDACT)):
        settings = prepared(tmp_path / name, text)
        fields, images = document("text", sharp_image(1))
        write_shard(tmp_path / name / "raw/a.tar", {"one": (fields, images)})
        counted[name] = take_all(settings)["filtered"]
    assert counted["with"].counts_out == counted["without"].counts_out
    assert counted["with"].columns == counted["without"].columns


def test_forget_removes_its_files(tmp_path: Path) -> None:
    settings = prepared(tmp_path)
    take_all(settings)
    (tmp_path / "raw/a.tar").unlink()
    write_shard(tmp_path / "raw/b.tar", {"one": document("text")})
    files = files_to_forget(["a"], settings.storage)
    below = {Path(uri).relative_to(tmp_path / "out").parts[0] for uri in files["a"]}
    assert {"rewritten", "changes", "dropped", "records"} <= below
    remove_files(files, settings.storage)
    assert [file for file in (tmp_path / "out").rglob("*") if file.is_file()] == []
    shutil.rmtree(tmp_path / "out")
