"""Raw shards of other formats than tar, through the whole chain."""

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset

from interleaved_assets.io import read_shard, write_shard
from interleaved_assets.io.formats.format import register_format
from interleaved_assets.io.formats.registry import PARQUET
from interleaved_assets.io.warc.settings import WarcSettings
from interleaved_assets.model.errors import OptionError, SettingsError, ShardError, StorageError, UnsupportedModality
from interleaved_assets.model.source_ref import parse_source_ref
from interleaved_assets.pipeline.raw.listing import list_raw_files, list_raw_shards
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import good_shard, project, sharp_image
from interleaved_assets_tests.io.formats.registered import in_place_of
from interleaved_assets_tests.io.warcs import image as warc_image
from interleaved_assets_tests.io.warcs import page as warc_page
from interleaved_assets_tests.io.warcs import write_warc
from interleaved_assets_tests.io.web_documents.stores import image_url, lines, write_store
from interleaved_assets_tests.system_calls import failing

DROPS = '[errors]\non_materialize_error = "drop_row"\n[selection]\non_score_error = "drop_row"\n'


def as_parquet(tar: Path, parquet: Path, *, lazily: bool = False) -> None:
    """Write the rows of ``tar`` to ``parquet``, with the bytes of images or with their locators only."""
    parts = list(read_shard(str(tar)))
    with write_shard(str(parquet), parts[0].schema) as out:
        for part in parts:
            if lazily:
                at = part.column_names.index("binary_content")
                part = part.set_column(at, "binary_content", pa.nulls(part.num_rows, pa.large_binary()))
            out.write(part)


def through(settings: Settings, key: str) -> Record:
    for stage in stage_dag(settings).values():
        outcome = take_through(stage, key, settings)
    return outcome.record


def states(settings: Settings) -> dict[str, str]:
    dataset = read_dataset_status(settings)
    return {shard.key: shard.status.text for shard in dataset.shards()}


@pytest.mark.parametrize("image_bytes", ["copied", "referenced"])
def test_parquet_of_a_tar_gives_its_final_tar_and_ledgers(
    image_bytes: str, tmp_path: Path, drawn: Callable[[str], Path]
) -> None:
    settings = project(tmp_path, f'image_bytes = "{image_bytes}"\n{DROPS}')
    (tmp_path / "raw").mkdir(exist_ok=True)
    names = ["web/flyers-000", "crawl-2/mixed-keys"]
    for number, name in enumerate(names):
        (tmp_path / f"raw/{number}.tar").symlink_to(drawn(f"{name}.tar"))
        as_parquet(drawn(f"{name}.tar"), tmp_path / f"raw/{number}.parquet")
    assert [shard.key for shard in list_raw_shards(settings.storage)] == ["0.parquet", "0", "1.parquet", "1"]
    for key in ("0", "1"):
        of_tar, of_parquet = through(settings, key), through(settings, f"{key}.parquet")
        assert of_parquet.counts_out == of_tar.counts_out
        assert (tmp_path / f"out/tars/{key}.parquet.tar").read_bytes() == (
            tmp_path / f"out/tars/{key}.tar"
        ).read_bytes()
        for stage in ("normalized", "filtered"):
            ledgers = [
                pq.read_table(tmp_path / f"out/dropped/{stage}/{one}.parquet") for one in (key, f"{key}.parquet")
            ]
            assert ledgers[0].equals(ledgers[1])
    assert pq.read_table(tmp_path / "out/dropped/filtered/0.parquet").num_rows == 8
    assert set(states(settings).values()) == {"complete"}


def test_rows_with_locators_alone_get_the_bytes_from_below_the_raw_root(tmp_path: Path) -> None:
    settings = project(tmp_path, DROPS)
    good_shard(tmp_path / "raw/tars/a.tar")
    as_parquet(tmp_path / "raw/tars/a.tar", tmp_path / "raw/lazy.parquet", lazily=True)
    assert through(settings, "lazy.parquet").counts_out == through(settings, "tars/a").counts_out
    assert (tmp_path / "out/tars/lazy.parquet.tar").read_bytes() == (tmp_path / "out/tars/tars/a.tar").read_bytes()


def test_a_disk_that_fails_drops_no_image_that_a_locator_names(tmp_path: Path) -> None:
    settings = project(tmp_path, DROPS)
    tar = good_shard(tmp_path / "raw/tars/a.tar")
    as_parquet(tar, tmp_path / "raw/lazy.parquet", lazily=True)
    with (
        failing("open", "raw/tars/a.tar", OSError(errno.EIO, "the disk is away")),
        pytest.raises(StorageError, match=f"cannot read {tar}: the disk is away"),
    ):
        through(settings, "lazy.parquet")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert through(settings, "lazy.parquet").counts_out == through(settings, "tars/a").counts_out


def test_normalized_of_another_project_by_reference_is_a_raw_shard(tmp_path: Path) -> None:
    settings = project(tmp_path, f'image_bytes = "referenced"\n{DROPS}')
    good_shard(tmp_path / "raw/a.tar")
    through(settings, "a")
    (tmp_path / "out/normalized/a.parquet").rename(tmp_path / "raw/again.parquet")
    through(settings, "again.parquet")
    assert (tmp_path / "out/tars/again.parquet.tar").read_bytes() == (tmp_path / "out/tars/a.tar").read_bytes()


def test_parquet_that_holds_no_rows_of_the_model_fails_with_its_name(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw").mkdir(exist_ok=True)
    pq.write_table(pa.table({"url": ["https://example.org/a.jpg"]}), tmp_path / "raw/00000.parquet")
    with pytest.raises(
        ShardError,
        match=r"raw/00000\.parquet is not interleaved Parquet: it lacks the columns sample_id.*storage\.raw_formats",
    ):
        through(settings, "00000.parquet")
    assert not (tmp_path / "out/normalized/00000.parquet.parquet").exists()


def test_formats_that_are_not_named_make_no_shards(tmp_path: Path) -> None:
    settings = project(tmp_path, 'raw_formats = ["tar"]\n')
    good_shard(tmp_path / "raw/a.tar")
    as_parquet(tmp_path / "raw/a.tar", tmp_path / "raw/a.parquet")
    listing = list_raw_files(settings.storage)
    assert [shard.key for shard in listing.shards] == ["a"]
    assert listing.ignored == ["a.parquet"]


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"raw_formats: zip is no format of raw shards; there are tar, parquet"):
        project(tmp_path, 'raw_formats = ["zip"]\n')


def test_of_a_new_version_of_a_reader_the_shards_of_its_format_alone_are_stale(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    as_parquet(tmp_path / "raw/a.tar", tmp_path / "raw/a.parquet")
    for key in ("a", "a.parquet"):
        through(settings, key)
    assert states(settings) == {"a": "complete", "a.parquet": "complete"}
    with in_place_of(PARQUET, replace(PARQUET, version=PARQUET.version + 1)):
        versions = " → ".join(f"{PARQUET.version + more}-44136fa355b3" for more in (0, 1))
        stale = f"normalized stale: code of reading.parquet changed, version {versions}"
        assert states(settings) == {"a": "complete", "a.parquet": stale}
        assert not take_through(stage_dag(settings)["normalized"], "a.parquet", settings).unchanged
        assert states(settings)["a.parquet"] == "complete"


def test_a_format_whose_name_or_ending_is_taken_is_refused() -> None:
    with pytest.raises(OptionError, match="format 'parquet' has the name or an ending of the format 'parquet'"):
        register_format(PARQUET)
    with pytest.raises(OptionError, match="'own' has the name or an ending of the format 'parquet'"):
        register_format(replace(PARQUET, name="own"))
    with pytest.raises(OptionError, match="'own' has a section or settings: it needs both or none"):
        register_format(replace(PARQUET, name="own", endings=(".own",), section="own", settings=None))
    with pytest.raises(OptionError, match="'own' has the section 'pdf' of another format, and other settings"):
        register_format(replace(PARQUET, name="own", endings=(".own",), section="pdf", settings=WarcSettings))


@pytest.mark.parametrize("endings", [".txt", (".TXT",), ("txt",), ("",)])
def test_endings_that_files_cannot_have_are_refused(endings: Any) -> None:
    with pytest.raises(OptionError, match="format 'own': endings has to be a tuple of endings in lower case"):
        register_format(replace(PARQUET, name="own", endings=endings))


@pytest.mark.parametrize(
    ("tables", "message"),
    [([], "the format 'parquet' yields no table"), ([{"sample_id": "a"}], "its format yields a dict and not a table")],
)
def test_a_reader_that_yields_no_tables_is_named(tmp_path: Path, tables: list[Any], message: str) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw").mkdir(exist_ok=True)
    (tmp_path / "raw/a.parquet").write_bytes(b"PAR1")
    with (
        in_place_of(PARQUET, replace(PARQUET, read=lambda *_: iter(tables))),
        pytest.raises(ShardError, match=f"raw/a.parquet: {message}"),
    ):
        take_through(stage_dag(settings)["normalized"], "a.parquet", settings)


def with_rows(tar: Path, *added: dict[str, object]) -> pa.Table:
    """The rows of ``tar`` and others after them."""
    table = pa.concat_tables(read_shard(str(tar)))
    return pa.concat_tables([table, pa.Table.from_pylist(list(added), schema=table.schema)])


def test_tables_and_audio_pass_all_stages_and_are_in_the_final_tar(tmp_path: Path) -> None:
    settings = project(tmp_path, DROPS)
    good_shard(tmp_path / "source/a.tar")
    ids = pa.concat_tables(read_shard(str(tmp_path / "source/a.tar")))["sample_id"].unique().to_pylist()
    extra: list[dict[str, object]] = [
        {"position": 90, "modality": "table", "content_type": "text/markdown", "text_content": "| a | b |\n| - | - |"},
        {"position": 91, "modality": "table", "content_type": "text/html", "text_content": "<table></table>"},
        {"position": 92, "modality": "audio", "content_type": "audio/wav", "binary_content": b"RIFF\0\0"},
    ]
    table = with_rows(tmp_path / "source/a.tar", *({"sample_id": ids[0], **row} for row in extra))
    (tmp_path / "raw").mkdir(exist_ok=True)
    with write_shard(str(tmp_path / "raw/a.parquet"), table.schema) as out:
        out.write(table)
    record = through(settings, "a.parquet")
    final = pa.concat_tables(read_shard(str(tmp_path / "out/tars/a.parquet.tar")))
    found = final.filter(pa.compute.greater_equal(final["position"], 90))
    names = ["position", "modality", "content_type", "text_content", "binary_content"]
    assert found.select(names).to_pylist() == [dict.fromkeys(names) | row for row in extra]
    assert record.counts_out.rows == record.counts_in.rows
    # for any other reader the document is plain: texts and images are where they were
    assert webdataset_document(tmp_path / "out/tars/a.parquet.tar", ids[0])["texts"][:2] == plain_texts(table, ids[0])


def webdataset_document(tar: Path, sample_id: str) -> dict[str, list[str | None]]:
    """The JSON of a sample as ``webdataset`` reads it."""
    samples = webdataset.WebDataset(str(tar), shardshuffle=False, empty_check=False)
    return next(json.loads(sample["json"]) for sample in samples if sample["__key__"] == sample_id)


def plain_texts(table: pa.Table, sample_id: str) -> list[str | None]:
    """The texts at the first two positions of a sample."""
    rows = table.filter(pa.compute.equal(table["sample_id"], sample_id)).to_pylist()
    texts = {row["position"]: row["text_content"] for row in rows if row["modality"] == "text"}
    return [texts.get(0), texts.get(1)]


def test_rows_that_no_tar_can_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "source/a.tar")
    table = with_rows(tmp_path / "source/a.tar", {"sample_id": "v", "position": 0, "modality": "video"})
    (tmp_path / "raw").mkdir(exist_ok=True)
    with write_shard(str(tmp_path / "raw/a.parquet"), table.schema) as out:
        out.write(table)
    with pytest.raises(UnsupportedModality, match=r"raw/a\.parquet: tars have a place for .*, and none for video"):
        through(settings, "a.parquet")
    assert not (tmp_path / "out/normalized").exists() or not list((tmp_path / "out/normalized").glob("*.parquet"))


def test_documents_with_urls_get_their_images_from_the_store(tmp_path: Path) -> None:
    """Under the default error policy: an image that the store lacks is in the ledger, and the shard is complete."""
    images = write_store(tmp_path / "store", [1, 2])
    (tmp_path / "raw").mkdir(exist_ok=True)
    document = {"url": "d", "texts": ["a text", None, None], "images": [None, image_url(1), image_url(9)]}
    (tmp_path / "raw/a.jsonl").write_bytes(lines(document))
    settings = project(tmp_path, '[reading.urls]\nimage_store = "store"\n')
    through(settings, "a.jsonl")
    rows = pa.concat_tables(read_shard(str(tmp_path / "out/tars/a.jsonl.tar"))).to_pylist()
    assert [(row["modality"], row["text_content"], row["binary_content"]) for row in rows] == [
        ("metadata", None, None),
        ("text", "a text", None),
        ("image", None, images[image_url(1)]),
    ]
    (dropped,) = pq.read_table(tmp_path / "out/dropped/normalized/a.jsonl.parquet").to_pylist()
    assert (dropped["position"], dropped["reason"], dropped["detail"]) == (
        *(2, "image_not_in_store"),
        f"image_not_in_store: {image_url(9)}",
    )
    assert states(settings) == {"a.jsonl": "complete"}


def test_under_warn_images_that_the_store_lacks_stay_with_their_url(tmp_path: Path) -> None:
    """Also in the final tar, from which this package reads them again; other readers see no image there."""
    (tmp_path / "raw").mkdir(exist_ok=True)
    document = {"url": "d", "texts": ["a text", None], "images": [None, image_url(9)]}
    (tmp_path / "raw/a.jsonl").write_bytes(lines(document))
    policies = '[errors]\non_materialize_error = "warn"\n[selection]\non_score_error = "warn"\n'
    settings = project(tmp_path, policies)
    record = through(settings, "a.jsonl")
    rows = pa.concat_tables(read_shard(str(tmp_path / "out/tars/a.jsonl.tar"))).to_pylist()
    assert [(row["position"], row["modality"], row["image_url"]) for row in rows] == [
        (-1, "metadata", None),
        (0, "text", None),
        (1, "image", image_url(9)),
    ]
    assert record.counts_out.images == 1
    assert states(settings) == {"a.jsonl": "complete"}


def test_another_store_makes_the_documents_with_urls_alone_stale(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [1])
    write_store(tmp_path / "larger", [1, 9])
    good_shard(tmp_path / "raw/tar.tar")
    (tmp_path / "raw/a.jsonl").write_bytes(lines({"url": "d", "texts": [None], "images": [image_url(9)]}))
    settings = project(tmp_path, '[reading.urls]\nimage_store = "store"\n')
    for key in ("a.jsonl", "tar"):
        through(settings, key)
    settings = project(tmp_path, '[reading.urls]\nimage_store = "larger"\n')
    assert states(settings) == {"a.jsonl": "normalized stale: reading.jsonl changed", "tar": "complete"}


def test_a_web_archive_goes_through_the_chain(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw").mkdir(exist_ok=True)
    words = "Words enough to make this paragraph the main content of the page. " * 4
    html = f"<nav>Menu <a href='/'>home</a></nav><main><p>{words}</p><img src='/a.png'><img src='/b.png'></main>"
    write_warc(
        tmp_path / "raw/a.warc.gz",
        [warc_page("https://a.example/", html), warc_image("https://a.example/a.png", sharp_image(1))],
    )
    record = through(settings, "a.warc.gz")
    rows = pa.concat_tables(read_shard(str(tmp_path / "out/tars/a.warc.gz.tar"))).to_pylist()
    assert [(row["sample_id"], row["modality"], row["text_content"]) for row in rows] == [
        ("https://a.example/", "metadata", None),
        ("https://a.example/", "text", words.strip()),
        ("https://a.example/", "image", None),
    ]
    dropped = pq.read_table(tmp_path / "out/dropped/normalized/a.warc.gz.parquet").to_pylist()
    assert sorted(row["reason"] for row in dropped) == ["boilerplate", "image_not_in_archive"]
    assert record.counts_out.images == 1
    assert states(settings) == {"a.warc.gz": "complete"}


def test_locators_that_are_structs_are_read_as_their_json(tmp_path: Path) -> None:
    settings = project(tmp_path, DROPS)
    good_shard(tmp_path / "raw/tars/a.tar")
    as_parquet(tmp_path / "raw/tars/a.tar", tmp_path / "raw/lazy.parquet", lazily=True)
    table = pq.read_table(tmp_path / "raw/lazy.parquet")
    refs = [None if ref is None else dict(parse_source_ref(ref)) for ref in table["source_ref"].to_pylist()]
    table = table.set_column(table.column_names.index("source_ref"), "source_ref", pa.array(refs))
    pq.write_table(table, tmp_path / "raw/struct.parquet")
    assert pa.types.is_struct(table["source_ref"].type)
    for key in ("lazy.parquet", "struct.parquet"):
        through(settings, key)
    tars = [tmp_path / f"out/tars/{key}.parquet.tar" for key in ("lazy", "struct")]
    assert tars[0].read_bytes() == tars[1].read_bytes()


def test_a_pdf_file_goes_through_the_chain_with_its_pages_as_it_is_set(
    tmp_path: Path, drawn: Callable[[str], Path]
) -> None:
    (tmp_path / "raw").mkdir(exist_ok=True)
    (tmp_path / "raw/a.pdf").symlink_to(drawn("mint/report.pdf"))
    settings = project(tmp_path)
    plain = through(settings, "a.pdf")
    # of six pictures one is blurred, and dropped before the last stage
    assert (plain.counts_in.samples, plain.counts_in.images) == (1, 5)
    settings = project(tmp_path, "[reading.pdf]\npage_images = true\n")
    assert states(settings) == {"a.pdf": "normalized stale: reading.pdf changed"}
    assert through(settings, "a.pdf").counts_in.images == 6


def test_images_of_a_web_archive_by_reference_give_the_same_tar(tmp_path: Path) -> None:
    words = "Words enough to make this paragraph the main content of the page. " * 4
    pages = []
    for number in range(3):
        html = f"<main><p>{words}</p><img src='/{number}.png'><img src='/gone.png'></main>"
        pages.append(warc_page(f"https://a.example/{number}/", html))
        pages.append(warc_image(f"https://a.example/{number}.png", sharp_image(number)))
    tars = {}
    for how in ("copied", "referenced"):
        folder = tmp_path / how
        folder.mkdir()
        settings = project(folder, f'image_bytes = "{how}"\n')
        write_warc(folder / "raw/a.warc.gz", pages)
        record = through(settings, "a.warc.gz")
        assert record.counts_out.images == 3
        assert states(settings) == {"a.warc.gz": "complete"}
        tars[how] = (folder / "out/tars/a.warc.gz.tar").read_bytes()
    assert tars["copied"] == tars["referenced"]
    rows = pq.read_table(tmp_path / "referenced/out/normalized/a.warc.gz.parquet").to_pylist()
    assert [row["binary_content"] for row in rows if row["modality"] == "image"] == [None] * 3
    # the library fills them from the archive, and only from this content of it
    normalized = str(tmp_path / "referenced/out/normalized/a.warc.gz.parquet")
    filled = pa.concat_tables(read_shard(normalized, allowed_roots=[str(tmp_path)]))
    assert [row for row in filled["binary_content"].to_pylist() if row] == [sharp_image(number) for number in range(3)]
    write_warc(tmp_path / "referenced/raw/a.warc.gz", [pages[0]])
    settings = project(
        tmp_path / "referenced",
        'image_bytes = "referenced"\n[scoring]\nscorers = ["sharpness", "sharpness_256", "qr"]\n',
    )
    with pytest.raises(ShardError, match="is not the raw shard that normalized was made from"):
        take_through(stage_dag(settings)["image_scores"], "a.warc.gz", settings)
