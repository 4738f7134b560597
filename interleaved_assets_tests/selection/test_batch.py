import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from interleaved_assets.export import write_images
from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter
from interleaved_assets.io.rows import fetch, fill
from interleaved_assets.io.rows.fill import materialize
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import OptionError, ScoreError
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.model.source_ref import build_source_ref
from interleaved_assets.scoring import score_documents, score_images
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.selection import batch as selection_batch
from interleaved_assets.selection.batch import drop_rows, filter_batch, selection_rows
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.positions import reindex_positions
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.scoring.drawn import encode, even, noise, page_with, qr_code
from interleaved_assets_tests.selection.tables import reasons, scores_of

SHARP, BLURRED = encode(noise(60, 80)), encode(even(60, 80))
CODE = encode(page_with(qr_code(8), 300, 400, 60, 90))


def row(sample_id, position, modality, text=None, content=None, source_ref=None):
    return {
        "sample_id": sample_id,
        "position": position,
        "modality": modality,
        "text_content": text,
        "binary_content": content,
        "source_ref": source_ref,
        "url": f"https://example.org/{sample_id}",
    }


def batch_of(rows, source_files=("shard.tar",)):
    schema = INTERLEAVED_SCHEMA.append(pa.field("url", pa.string()))
    return InterleavedBatch(pa.Table.from_pylist(rows, schema=schema), source_files)


@pytest.fixture
def batch():
    return batch_of(
        [
            row("a", -1, "metadata"),
            row("a", 0, "text", "two words"),
            row("a", 1, "image", content=BLURRED),
            row("a", 2, "image", content=SHARP),
            row("a", 3, "text", "more"),
            row("b", -1, "metadata"),
            row("b", 0, "image", content=CODE),
        ]
    )


def test_filter_batch_scores_selects_and_returns_a_ledger(batch):
    kept, ledger = filter_batch(batch)
    assert kept.to_pyarrow().equals(batch.to_pyarrow().take([0, 1, 3, 4]))
    assert kept.source_files == ("shard.tar",)
    assert reasons(ledger) == {("a", 1): "sharpness_below", ("b", -1): "sample_dropped", ("b", 0): "qr_above"}
    check_balance("batch", batch.count(), kept.count(), ledger)


TEXTS = [
    row("a", -1, "metadata"),
    row("a", 0, "text", "kept for its length"),
    row("a", 1, "text", "short"),
    row("b", -1, "metadata"),
    row("b", 4, "text", "tiny"),
    row("b", 5, "table", "t"),
    row("c", -1, "metadata"),
]


@pytest.mark.parametrize("as_mask", [list, np.array, pa.array, pd.Series, lambda mask: pa.chunked_array([mask])])
def test_rows_of_any_modality_are_dropped_through_the_ledger(as_mask):
    batch = batch_of(TEXTS)
    lengths = [None if text is None else float(len(text)) for text in batch.to_pyarrow()["text_content"].to_pylist()]
    mask = as_mask([length is not None and length < 10 for length in lengths])
    kept, ledger = drop_rows(batch, mask, "length_below", stage="texts", measured=lengths, threshold=10)
    assert kept.to_pyarrow().equals(batch.to_pyarrow().take([0, 1, 6]))
    assert kept.source_files == batch.source_files
    assert ledger.schema == LEDGER_SCHEMA
    keys = ("sample_id", "position", "modality", "stage", "reason", "measured", "threshold", "detail")
    emptied = "no content is left after the row at position 4: length_below"
    assert ledger.to_pylist() == [
        dict(zip(keys, values, strict=True))
        for values in (
            ("a", 1, "text", "texts", "length_below", 5, 10, None),
            ("b", -1, "metadata", "texts", "sample_dropped", None, None, emptied),
            ("b", 4, "text", "texts", "length_below", 4, 10, None),
            ("b", 5, "table", "texts", "length_below", 1, 10, None),
        )
    ]
    check_balance("texts", batch.count(), kept.count(), ledger)


def test_nothing_dropped_leaves_the_batch_and_an_empty_ledger():
    for rows in (TEXTS, []):
        batch = batch_of(rows)
        kept, ledger = drop_rows(batch, [False] * len(rows), "none")
        assert kept.to_pyarrow().equals(batch.to_pyarrow())
        assert ledger.equals(LEDGER_SCHEMA.empty_table())


@pytest.mark.parametrize(
    ("mask", "reason", "options", "message"),
    [
        ([True], "short", {}, "mask must be one True or False for each of 7 rows"),
        ([True] * 7, "too short", {}, "reason is a name of letters, digits and _, got 'too short'"),
        ([True] * 7, "short", {"measured": [1.0]}, "measured has 1 values for 7 rows"),
    ],
)
def test_drop_rows_refuses_invalid_arguments(mask, reason, options, message):
    with pytest.raises(OptionError, match=message):
        drop_rows(batch_of(TEXTS), mask, reason, **options)


def test_positions_are_renumbered_on_request(batch):
    kept, _ = filter_batch(batch, SelectionSettings(reindex_positions=True))
    assert kept.to_pyarrow()["position"].to_pylist() == [-1, 0, 1, 2]


def test_words_of_texts_feed_the_ratio(batch):
    assert selection_rows(batch.to_pyarrow())["words"].to_pylist() == [None, 2, None, None, 1, None, None]
    _, ledger = filter_batch(batch, SelectionSettings(order=("ratio",), max_ratio=0.7))
    assert reasons(ledger) == {("b", -1): "ratio_above", ("b", 0): "ratio_above"}


def test_scoring_settings_choose_the_scorers(batch):
    scoring = ScoringSettings(scorers=("qr",))
    kept, ledger = filter_batch(batch, SelectionSettings(order=("qr",)), scoring, threads=1)
    assert set(reasons(ledger).values()) == {"qr_above", "sample_dropped"}
    assert kept.num_items == 1


def test_clip_scores_join(batch):
    def clip(table):
        images = table.filter(pa.compute.equal(table["modality"], "image")).select(["sample_id", "position"])
        return images.append_column("clip_score", pa.array([0.5, 0.1, 0.5]))

    _, ledger = filter_batch(batch, clip=clip)
    assert reasons(ledger)[("a", 2)] == "clip_below"


def test_images_are_fetched_only_below_allowed_roots(tmp_path):
    inside, outside = tmp_path / "data" / "sharp.png", tmp_path / "secret.png"
    inside.parent.mkdir()
    inside.write_bytes(SHARP)
    outside.write_bytes(SHARP)
    rows = [
        row("a", 0, "text", "x"),
        row("a", 1, "image", source_ref=build_source_ref(str(inside))),
        row("a", 2, "image", source_ref=build_source_ref(str(outside))),
    ]
    batch = batch_of(rows, (str(tmp_path / "data" / "shard.tar"),))
    kept, ledger = filter_batch(batch, SelectionSettings(on_score_error="drop_row"))
    assert kept.to_pyarrow()["binary_content"].to_pylist() == [None, SHARP]
    assert reasons(ledger) == {("a", 2): "forbidden_path"}


def test_the_default_policy_raises_and_names_the_files(batch):
    broken = batch.with_table(
        pa.concat_tables([batch.to_pyarrow(), batch_of([row("c", 0, "image", content=b"x")]).to_pyarrow()])
    )
    with pytest.raises(ScoreError, match=r"^shard\.tar: sample 'c', image at position 0: .*undecodable_image"):
        filter_batch(broken)


def test_filter_batch_works_between_reader_and_writer(batch, tmp_path):
    InterleavedParquetWriter(str(tmp_path / "in")).write(batch)
    writer = InterleavedParquetWriter(str(tmp_path / "out"))
    dropped = []
    for part in InterleavedParquetReader(str(tmp_path / "in")):
        kept, ledger = filter_batch(part, SelectionSettings(min_sharpness=200))
        writer.write(kept)
        dropped += ledger["reason"].to_pylist()
    (result,) = InterleavedParquetReader(str(tmp_path / "out"))
    assert result.to_pyarrow()["position"].to_pylist() == [-1, 0, 2, 3]
    assert sorted(dropped) == ["qr_above", "sample_dropped", "sharpness_below"]


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_images_fetched_in_parts_give_the_same_rows(batch, tmp_path, monkeypatch, ending):
    (tar,) = InterleavedWebdatasetWriter(str(tmp_path / "raw")).write(batch)
    content = Path(tar).read_bytes()
    raw = tmp_path / f"shard{ending}"
    raw.write_bytes(gzip.compress(content) if ending == ".tar.gz" else content)
    (eager,) = InterleavedWebdatasetReader(raw, materialize_on_read=True)
    (lazy,) = InterleavedWebdatasetReader(raw)
    stand_in(monkeypatch, selection_batch, "_PART_BYTES", 1)
    fetched = []
    usual = fill.materialize_parts

    def counted(table, *options):
        fetched.append(table["sample_id"].unique().to_pylist())
        return usual(table, *options)

    stand_in(monkeypatch, fill, "materialize_parts", counted)
    kept, ledger = filter_batch(lazy)
    assert fetched == ([["a", "b"]] if ending == ".tar.gz" else [["a"], ["b"]])
    (expected, expected_ledger) = filter_batch(eager)
    assert kept.to_pyarrow().equals(expected.to_pyarrow())
    assert kept.count() == 4
    assert ledger.equals(expected_ledger)


def test_members_of_a_compressed_tar_beside_the_source_file_are_unpacked_once(batch, tmp_path, monkeypatch):
    (tar,) = InterleavedWebdatasetWriter(str(tmp_path / "raw")).write(batch)
    (tmp_path / "shard.tar.gz").write_bytes(gzip.compress(Path(tar).read_bytes()))
    (lazy,) = InterleavedWebdatasetReader(tmp_path / "shard.tar.gz")
    stand_in(monkeypatch, selection_batch, "_PART_BYTES", 1)
    opened = []
    usual = fetch.open_tar
    stand_in(
        monkeypatch, fetch, "open_tar", lambda uri, *rest, **options: opened.append(uri) or usual(uri, *rest, **options)
    )
    kept, _ = filter_batch(InterleavedBatch(lazy.to_pyarrow(), (str(tmp_path / "rows.parquet"),)))
    assert kept.count() == 4
    assert opened == [str(tmp_path / "shard.tar.gz")]


def test_a_part_without_anything_to_fetch_joins_the_others(batch, tmp_path, monkeypatch):
    InterleavedWebdatasetWriter(str(tmp_path / "raw")).write(batch)
    (lazy,) = InterleavedWebdatasetReader(tmp_path / "raw")
    (eager,) = InterleavedWebdatasetReader(tmp_path / "raw", materialize_on_read=True)
    table = pa.concat_tables([eager.to_pyarrow().slice(0, 5), lazy.to_pyarrow().slice(5)])
    schema = table.schema
    for name, dtype in (("binary_content", pa.binary()), ("materialize_error", pa.large_string())):
        place = schema.get_field_index(name)
        schema = schema.set(place, schema.field(place).with_type(dtype))
    stand_in(monkeypatch, selection_batch, "_PART_BYTES", 1)
    kept, ledger = filter_batch(InterleavedBatch(table.cast(schema), lazy.source_files))
    expected, expected_ledger = filter_batch(eager)
    assert kept.to_pyarrow().equals(expected.to_pyarrow())
    assert ledger.equals(expected_ledger)


def test_bounds_on_texts_and_fields_in_a_script(batch):
    settings = SelectionSettings(
        order=(),
        document={"mean_word_length": {"min": 1}},
        text={"words": {"min": 2}},
        own={"site": {"field": "url", "not_in": ["https://example.org/b"]}},
    )
    kept, ledger = filter_batch(batch, settings)
    # b has no word; its own site would drop it too, later
    assert reasons(ledger) == {
        ("a", 3): "text_words_below",
        ("b", -1): "document_mean_word_length_below",
        ("b", 0): "document_mean_word_length_below",
    }
    assert kept.count() == 4
    _, ledger = filter_batch(batch, settings.model_copy(update={"document": {}}))
    assert reasons(ledger)["b", 0] == "site_in"


TAKE_TABLES = [
    lambda rows: materialize(rows),
    lambda rows: apply_error_policy(rows, "warn", shard="s", stage="t"),
    lambda rows: score_images(rows),
    lambda rows: score_documents(rows),
    selection_rows,
    lambda rows: select(rows, scores_of({})),
    reindex_positions,
]


@pytest.mark.parametrize("function", TAKE_TABLES)
def test_functions_of_tables_say_which_rows_they_cannot_take(function, batch):
    rows = batch.to_pyarrow().append_column("materialize_error", pa.nulls(batch.count(), pa.string()))
    with pytest.raises(OptionError, match=r"got InterleavedBatch, not an Arrow table: give batch.to_pyarrow\(\)"):
        function(batch)
    for name in ("sample_id", "position", "modality"):
        with pytest.raises(OptionError, match=f": no column {name}; columns are "):
            function(rows.drop_columns(name))
        place = rows.column_names.index(name)
        kept = rows[name].slice(0, 6).to_pylist()
        with pytest.raises(OptionError, match=f": column '{name}' is null in 1 rows: first row 6"):
            function(rows.set_column(place, name, pa.array([*kept, None], rows[name].type)))
    capitals = pa.array([modality.upper() for modality in rows["modality"].to_pylist()])
    with pytest.raises(OptionError, match="modality 'METADATA' must be written 'metadata': first sample 'a'"):
        function(rows.set_column(rows.column_names.index("modality"), "modality", capitals))


@pytest.mark.parametrize(
    "function",
    [
        filter_batch,
        lambda rows: drop_rows(rows, [True], "short"),
        lambda rows: write_images(rows, "images"),
        lambda rows: InterleavedParquetWriter("out").write(rows),
        lambda rows: InterleavedWebdatasetWriter("out").write(rows),
    ],
)
def test_functions_of_batches_say_that_a_table_is_none(function, batch):
    for rows in (batch.to_pyarrow(), batch.to_pandas()):
        with pytest.raises(OptionError, match=r"not a batch: give InterleavedBatch\(rows\)"):
            function(rows)


def test_a_batch_of_images_needs_no_column_of_texts(batch):
    rows = batch.to_pyarrow()
    images = batch_of([row("a", 0, "image", content=SHARP), row("b", 0, "image", content=BLURRED)])
    images = images.with_table(images.to_pyarrow().drop_columns("text_content"))
    kept, ledger = filter_batch(images)
    assert kept.to_pyarrow()["sample_id"].to_pylist() == ["a"]
    assert ledger.num_rows == 1
    with pytest.raises(OptionError, match="score_documents: no column text_content"):
        score_documents(rows.drop_columns("text_content"))
    with pytest.raises(OptionError, match="score_images: no column binary_content"):
        score_images(rows.drop_columns("binary_content"))


def test_rows_from_a_dataframe_of_categories_match_scores_in_another_order(batch):
    rows, scores = selection_rows(batch.to_pyarrow()), score_images(batch.to_pyarrow())
    categories = rows.to_pandas().astype({"sample_id": "category", "modality": "category", "position": "int64"})
    other = pa.Table.from_pandas(categories, preserve_index=False)
    assert select(other, scores.take([2, 0, 1])).keep == select(rows, scores).keep
    as_text = rows.set_column(1, "position", rows["position"].cast(pa.string()))
    assert select(as_text, scores.take([2, 0, 1])).keep == select(rows, scores).keep
    with pytest.raises(OptionError, match="scores: got DataFrame, not an Arrow table"):
        select(rows, scores.to_pandas())
    with pytest.raises(OptionError, match="added scores: got NoneType, not an Arrow table"):
        filter_batch(batch, clip=lambda _: None)


def test_positions_of_other_types_are_renumbered(batch):
    rows = batch.to_pyarrow()
    wide = rows.set_column(1, "position", rows["position"].cast(pa.int64()))
    assert reindex_positions(wide).to_pylist() == reindex_positions(rows).to_pylist()
