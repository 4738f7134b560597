"""Names of images, and the images that have a name."""

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.source_ref import build_source_ref
from interleaved_assets.pipeline.lineage.contents import RowKey, row_contents, row_keys
from interleaved_assets.pipeline.lineage.images import find_image, image_name
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.stored_records import recorded_keys
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import project, sharp_image
from interleaved_assets_tests.io.tars import frames_document, picture, tiff, write_tar
from interleaved_assets_tests.io.warcs import image as warc_image
from interleaved_assets_tests.io.warcs import page as warc_page
from interleaved_assets_tests.io.warcs import write_warc


def normalized(settings: Settings, *keys: str) -> None:
    for key in keys:
        take_through(stage_dag(settings)["normalized"], key, settings)


def found(name: str, settings: Settings) -> dict[str, list[tuple[int, str]]]:
    """Position and whole name of each image with ``name``, by sample."""
    samples: dict[str, list[tuple[int, str]]] = {}
    for _, images in find_image(name, recorded_keys(settings.storage, "normalized"), settings.storage):
        assert isinstance(images, list)
        for image in images:
            samples.setdefault(image.sample_id, []).append((image.position, image.image))
    return samples


@pytest.mark.parametrize(
    ("source_ref", "named", "name"),
    [
        (build_source_ref("raw/a.tar", "b/1.png", 512, 9), {}, "b/1.png"),
        (build_source_ref("raw/a.tar", "1.tiff", 512, 9, 2), {"url": "https://a.example/1"}, "1.tiff, frame 2"),
        (build_source_ref("raw/1.png"), {}, "raw/1.png"),
        (build_source_ref("raw/a.warc", part="9"), {"url": "https://a.example/1.png"}, "https://a.example/1.png"),
        (build_source_ref("raw/a.parquet", part="9"), {}, "raw/a.parquet"),
        (None, {"url": "https://a.example/1.png", "page": 3}, "https://a.example/1.png"),
        (None, {"page": 3}, "page 3"),
        (None, {}, ""),
        ("no locator", {}, "no locator"),
    ],
)
def test_the_name_of_an_image(source_ref: str | None, named: dict[str, object], name: str) -> None:
    assert image_name(source_ref, **named) == name  # type: ignore[arg-type]


def test_frames_are_found_each_and_all(tmp_path: Path) -> None:
    settings = project(tmp_path)
    frames = tiff(picture(1), picture(2), picture(3), compression="tiff_lzw")
    tokens = [f"page_0_image_{number}" for number in range(3)]
    write_tar(tmp_path / "raw/a.tar", ("dir/e0ca.json", frames_document(*tokens)), ("dir/e0ca.tiff", frames))
    normalized(settings, "a")
    every = [(number, f"dir/e0ca.tiff, frame {number}") for number in range(3)]
    for name, images in (("e0ca.tiff", every), ("dir/e0ca.tiff", every), ("e0ca.tiff, frame 2", every[2:])):
        assert found(name, settings) == {"dir/e0ca": images}
    for name in ("e0ca.tiff, frame 3", "e0ca.tif", "0ca.tiff", "dir", "a.tar"):
        assert found(name, settings) == {}


def test_files_of_their_own_are_found_by_path_and_name(tmp_path: Path) -> None:
    settings = project(tmp_path, "bundles = {images = 1}\n")
    (tmp_path / "raw/photos").mkdir()
    file = tmp_path / "raw/photos/1 ü.png"
    file.write_bytes(sharp_image(1))
    normalized(settings, *(raw.key for raw in list_raw_shards(settings.storage)))
    for name in (str(file), "1 ü.png", "photos/1 ü.png"):
        ((_, [(_, whole)]),) = found(name, settings).items()
        assert whole == str(file)


@pytest.mark.parametrize("form", ["copied", "referenced"])
def test_images_of_a_web_archive_have_their_address(tmp_path: Path, form: str) -> None:
    settings = project(tmp_path, f'image_bytes = "{form}"\n')
    words = "Words enough to make this paragraph the main content of the page. " * 4
    page, address = "https://a.example/", "https://a.example/x/1.png"
    html = f"<main><p>{words}</p><img src='/x/1.png'></main>"
    write_warc(tmp_path / "raw/a.warc.gz", [warc_page(page, html), warc_image(address, sharp_image(1))])
    normalized(settings, "a.warc.gz")
    ((sample, images),) = found("1.png", settings).items()
    assert (sample, images) == (page, [(1, address)])
    assert found(address, settings) == {page: images}
    paths, key = settings.storage.shard("a.warc.gz"), RowKey(page, 1, "image")
    assert row_contents([key], paths.output("normalized"), paths) == {key: address}


def test_images_of_a_pdf_have_their_page(tmp_path: Path, drawn: Callable[[str], Path]) -> None:
    settings = project(tmp_path)
    (tmp_path / "raw/a.pdf").symlink_to(drawn("mint/report.pdf"))
    normalized(settings, "a.pdf")
    paths = settings.storage.shard("a.pdf")
    images = [key for key in row_keys(pq.read_table(paths.output("normalized"))) if key.modality == "image"]
    contents = row_contents(images, paths.output("normalized"), paths)
    assert len(images) == len(contents) > 1
    assert all(re.fullmatch(r"page \d+", name) for name in contents.values())
