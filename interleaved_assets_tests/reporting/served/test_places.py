"""Which paths of a URL lead to a file."""

from pathlib import Path
from urllib.parse import quote

import pytest

from interleaved_assets.reporting.served.places import PlaceKind, find_place, path_of, url_of
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import project


@pytest.mark.parametrize("key", ["a", "web/b", "caf%C3%A9/x%2Cy", "a.b~" + "0" * 32])
def test_every_file_of_a_shard_is_found_by_the_path_that_its_link_has(settings: Settings, key: str) -> None:
    storage = settings.storage
    paths = storage.shard(key)
    found = {
        PlaceKind.PAGE: paths.page(),
        PlaceKind.LEDGER: paths.ledger("filtered"),
        PlaceKind.JSON: paths.record("final_tars"),
    }
    for kind, uri in {**found, PlaceKind.JSON: paths.failure("normalized")}.items():
        place = find_place(f"/{path_of(uri, storage)}", storage)
        assert place is not None
        assert (place.kind, place.uri, place.key) == (kind, uri, key)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/.",
        "/state/requested/1.parquet",
        "/normalized/a.parquet",
        "/tars/a.tar",
        "/pictures/filtered/a.json",
        "/pages/",
        "/pages/.html",
        "/pages/../interleaved.toml.html",
        "/pages/..%2f..%2finterleaved.toml.html",
        "/pages/%2e%2e/%2e%2e/etc/passwd.html",
        "/pages/a/../../b.html",
        "/pages//etc/passwd.html",
        "/pages/a\\b.html",
        "/pages/a%00.html",
        "/pages/%ff.html",
        "/pages/a.html/",
        "/pages/s3://bucket/a.html",
        "/records/../pages/a.json",
        "/records/other/a.json",
        "/dropped/filtered/../a.parquet",
        "/dropped/filtered/a.json",
        "/dataset_report.html/..",
        "//127.0.0.1/dataset_report.html",
        "/" + "a" * 70_000,
    ],
)
def test_no_other_path_leads_to_a_file(settings: Settings, path: str) -> None:
    assert find_place(path, settings.storage) is None


def test_an_encoded_key_is_a_name_and_no_way_out(settings: Settings, tmp_path: Path) -> None:
    place = find_place("/pages/%252e%252e/b.html", settings.storage)
    assert place is not None
    assert place.uri == f"{tmp_path}/out/pages/%2e%2e/b.html"


def test_a_link_out_of_the_output_root_is_refused_and_one_inside_is_not(settings: Settings, tmp_path: Path) -> None:
    pages = tmp_path / "out/pages"
    pages.mkdir(parents=True)
    (tmp_path / "secret.html").write_text("secret")
    (pages / "out.html").symlink_to(tmp_path / "secret.html")
    (pages / "folder").symlink_to(tmp_path)
    (pages / "a.html").write_text("a")
    (pages / "in.html").symlink_to(pages / "a.html")
    assert find_place("/pages/out.html", settings.storage) is None
    assert find_place("/pages/folder/secret.html", settings.storage) is None
    assert find_place("/pages/in.html", settings.storage) is not None


def test_a_url_is_that_of_the_setting_or_none(settings: Settings, tmp_path: Path) -> None:
    page = settings.storage.shard("caf%C3%A9").page()
    assert url_of(page, settings) is None
    served = project(tmp_path, '[serve]\nurl = "http://127.0.0.1:3010/"\n')
    assert url_of(page, served) == "http://127.0.0.1:3010/" + quote("pages/caf%C3%A9.html")
