"""Releases: what they name, what they refuse, and what a comparison with the manifest finds."""

import errno
import gzip
import json
import os
import re
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.release import documents
from interleaved_assets.pipeline.release.card import data_set_card
from interleaved_assets.pipeline.release.found_values import values_of_shard
from interleaved_assets.pipeline.release.make import make_release
from interleaved_assets.pipeline.release.manifest import ColumnValues, read_manifest
from interleaved_assets.pipeline.release.verify import verify_release
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.run.stored_records import read_valid_records
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.pipeline.damage import accept_outputs
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import failing, system_calls


def second_shard(settings: Settings, folder: Path) -> None:
    """Two shards that went through all stages, with seven documents, one licence and two hosts."""
    facts = {"license": "CC-BY 4.0", "url": "https://example.com/x"}
    documents = {f"d{number}": document("some words", sharp_image(number), **facts) for number in range(4)}
    write_shard(folder / "raw/b c.tar", documents)
    take_all(settings, "b%20c")


pytestmark = pytest.mark.project(shards={"web/a": 0}, done=("web/a",), finish=second_shard)


def findings(manifest_at: Path) -> list[tuple[str, str]]:
    found = verify_release(read_manifest(str(manifest_at)), str(manifest_at))
    return [(one.code, one.uri) for one in found if one is not None]


def test_the_manifest_names_tars_counts_drops_filters_and_sources(settings: Settings, tmp_path: Path) -> None:
    release = make_release("v1", settings)
    at = tmp_path / "out/releases/v1/manifest.json"
    assert release.uri == str(at)
    manifest = read_manifest(str(at))
    assert manifest == release.manifest
    assert [(tar.shard, tar.path) for tar in manifest.tars] == [
        ("b%20c", "../../tars/b%20c.tar"),
        ("web/a", "../../tars/web/a.tar"),
    ]
    assert (manifest.counts.samples, manifest.counts.images, manifest.counts_in.images) == (7, 8, 9)
    assert manifest.dropped == {"sharpness_below": 1}
    assert manifest.filters == {"sharpness": (100.0, None), "qr": (None, 0.05), "ratio": (0.0, None)}
    assert manifest.tars[0].source is not None
    assert manifest.tars[0].source.uri == f"{tmp_path}/raw/b c.tar"
    assert [(one.column, one.documents, one.most) for one in manifest.licences] == [("license", 4, {"CC-BY 4.0": 4})]
    assert [one.most for one in manifest.sources] == [{"example.com": 4, "example.org": 1}]
    assert findings(at) == []


def test_the_parts_of_a_final_tar_are_tars_of_their_own(tmp_path: Path) -> None:
    settings = project(tmp_path, "[final_tars]\nmax_samples_per_tar = 2\n")
    good_shard(tmp_path / "raw/web/a.tar")
    take_all(settings, "web/a")
    manifest = make_release("v1", settings, to=str(tmp_path / "copy")).manifest
    names = ["tars/web/a~00000.tar", "tars/web/a~00001.tar"]
    assert [(tar.shard, tar.path, tar.counts.samples) for tar in manifest.tars] == [
        ("web/a", names[0], 1),
        ("web/a", names[1], 2),
    ]
    assert (manifest.counts.samples, manifest.counts.images) == (3, sum(tar.counts.images for tar in manifest.tars))
    index = json.loads((tmp_path / "copy/wids.json").read_text())
    assert [(shard["url"], shard["nsamples"]) for shard in index["shardlist"]] == [(names[0], 1), (names[1], 2)]
    for name in names:
        assert (tmp_path / "copy" / name).samefile(tmp_path / "out" / name)
    assert findings(tmp_path / "copy/manifest.json") == []
    make_release("v2", settings)
    (tmp_path / "out" / names[1]).unlink()
    assert findings(tmp_path / "out/releases/v2/manifest.json") == [("missing", f"{tmp_path}/out/{names[1]}")]


def test_the_same_tars_give_the_same_bytes(settings: Settings, tmp_path: Path) -> None:
    make_release("v1", settings, to=str(tmp_path / "one"))
    first = (tmp_path / "out/releases/v1/manifest.json").rename(tmp_path / "kept.json")
    make_release("v1", settings, to=str(tmp_path / "two"))
    for name in ("manifest.json", "wids.json", "README.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert json.loads(first.read_text())["folder"] == str(tmp_path / "one")


def test_the_card_is_read_by_hugging_face(settings: Settings, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    make_release("v1", settings)
    text = (tmp_path / "out/releases/v1/README.md").read_text()
    head = hub.DatasetCard(text).data.to_dict()
    assert (head["pretty_name"], head["size_categories"]) == ("v1", ["n<1K"])
    assert "license" not in head  # three documents name none
    assert "| CC-BY 4.0 | 4 |" in text
    assert "| sharpness\\_below | 1 |" in text
    assert "| qr |  | 0.05 |\n" in text  # no column for strings, since no filter has any


def test_the_card_has_the_strings_that_filters_keep(tmp_path: Path) -> None:
    lines = '[selection]\nown.license = { field = "license", in = ["CC-BY 4.0"] }\non_score_error = "warn"\n'
    settings = project(tmp_path, lines)
    second_shard(settings, tmp_path)
    make_release("v1", settings)
    text = (tmp_path / "out/releases/v1/README.md").read_text()
    assert "| filter | minimum | maximum | strings |" in text
    assert "| license |  |  | keep CC-BY 4.0 |" in text


def test_datasets_loads_the_folder_of_a_release(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    make_release("v1", settings, to=str(tmp_path / "copy"), documents=True)
    loaded = datasets.load_dataset(str(tmp_path / "copy"), cache_dir=str(tmp_path / "cache"))
    rows = {row["key"]: row for row in loaded["train"].cast_column("images", [datasets.Image(decode=False)])}
    assert list(rows) == ["d0", "d1", "d2", "d3", "doc-0-a", "doc-0-b", "doc-0-c"]
    last = rows["doc-0-c"]
    assert last["texts"] == [None, "seven", None, "eight nine"]
    tokens = ["doc-0-c.0.png", None, "doc-0-c.2.png", None]
    assert [image and image["path"] for image in last["images"]] == tokens
    with tarfile.open(tmp_path / "copy/tars/web/a.tar") as tar:
        in_tar = [token and tar.extractfile(token).read() for token in tokens]
    assert [image and image["bytes"] for image in last["images"]] == in_tar
    assert json.loads(rows["doc-0-b"]["fields"])["year"] == 2024
    assert (rows["d0"]["tar"], last["tar"]) == ("tars/b%20c.tar", "tars/web/a.tar")
    streamed = datasets.load_dataset(str(tmp_path / "copy"), split="train", streaming=True)
    first = next(iter(streamed))
    assert (first["texts"], first["images"][0], first["images"][1].size) == (["some words", None], None, (64, 48))
    assert findings(tmp_path / "copy/manifest.json") == []


def test_documents_are_written_in_groups_of_rows_and_with_bytes_as_they_are(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, documents, "_GROUP_BYTES", 1)
    for name in ("one", "two"):
        make_release(name, settings, to=str(tmp_path / name), documents=True)
    files = [f"documents/train-0000{number}-of-00002.parquet" for number in range(2)]
    assert [pq.ParquetFile(tmp_path / "one" / name).num_row_groups for name in files] == [4, 3]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_documents_need_a_copy_and_rows_that_fit(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--settings", str(tmp_path / "interleaved.toml"), "release", "v1", "--documents"]
    assert main(base) == 2
    assert "give a folder for a copy of them too, as in interleaved release v1 --to FOLDER" in capsys.readouterr().err
    assert not (tmp_path / "out/releases").exists()
    stand_in(monkeypatch, documents, "_MOST_ROW_BYTES", 1000)
    assert main([*base, "--to", str(tmp_path / "copy")]) == 2
    assert re.search(r"tars/b%20c.tar: document 'd0' has [\d,]+ bytes, and a row", capsys.readouterr().err)
    monkeypatch.undo()
    assert main([*base, "--to", str(tmp_path / "copy")]) == 0  # goes on with what the failed call has left
    assert len(list((tmp_path / "copy/documents").iterdir())) == 2


def test_the_card_names_only_what_loads(settings: Settings, tmp_path: Path) -> None:
    make_release("v1", settings, to=str(tmp_path / "copy"))
    text = (tmp_path / "copy/README.md").read_text()
    assert "configs" not in text
    assert "Read the tars with `webdataset`, not with `datasets.load_dataset`" in text


def test_a_copy_outlives_a_later_run(settings: Settings, tmp_path: Path) -> None:
    make_release("v1", settings)
    make_release("v2", settings, to=str(tmp_path / "copy"))
    tar = tmp_path / "copy/tars/web/a.tar"
    assert tar.samefile(tmp_path / "out/tars/web/a.tar")  # a link takes no space
    good_shard(tmp_path / "raw/web/a.tar", seed=9)
    take_all(settings, "web/a")
    assert not tar.samefile(tmp_path / "out/tars/web/a.tar")
    assert findings(tmp_path / "copy/manifest.json") == []
    assert findings(tmp_path / "out/releases/v2/manifest.json") == []
    assert [uri for _, uri in findings(tmp_path / "out/releases/v1/manifest.json")] == [
        f"{tmp_path}/out/tars/web/a.tar"
    ]


def test_where_files_cannot_be_linked_they_are_copied(settings: Settings, tmp_path: Path) -> None:
    with failing("os.link", ".tar", OSError(errno.EXDEV, "Invalid cross-device link")):
        make_release("v1", settings, to=str(tmp_path / "copy"))
    assert not (tmp_path / "copy/tars/web/a.tar").samefile(tmp_path / "out/tars/web/a.tar")
    assert findings(tmp_path / "copy/manifest.json") == []


def test_a_changed_a_missing_and_an_additional_tar_are_found(settings: Settings, tmp_path: Path) -> None:
    make_release("v1", settings, to=str(tmp_path / "copy"))
    tars = tmp_path / "copy/tars"
    content = bytearray((tars / "web/a.tar").read_bytes())
    content[600] ^= 1
    (tars / "web/a.tar").unlink()
    (tars / "web/a.tar").write_bytes(content)
    (tars / "b%20c.tar").unlink()
    (tars / "more.tar").write_bytes(b"")
    at = tmp_path / "copy/manifest.json"
    assert findings(at) == [
        ("missing", f"{tars}/b%20c.tar"),
        ("sha256", f"{tars}/web/a.tar"),
        ("unexpected", f"{tars}/more.tar"),
    ]
    with failing("open", "web/a.tar", PermissionError(errno.EACCES, "Permission denied")):
        assert findings(at)[1] == ("unreadable", f"{tars}/web/a.tar")
    (tars / "web/a.tar").write_bytes(content + b"\0")
    (tmp_path / "copy/wids.json").write_text("{}")
    assert [code for code, _ in findings(at)] == ["missing", "size", "sha256", "unexpected"]


def test_a_tar_with_another_content_than_its_record_is_not_released(settings: Settings, tmp_path: Path) -> None:
    tar = tmp_path / "out/tars/web/a.tar"
    found = tar.stat()
    content = bytearray(tar.read_bytes())
    content[600] ^= 1
    tar.chmod(0o600)
    with tar.open("r+b") as file:  # the same file with the same time, so that its stamp does not tell
        file.write(content)
    os.utime(tar, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(ShardError, match=r"shard web/a: .*a\.tar is not what its record says"):
        make_release("v1", settings)
    assert not (tmp_path / "out/releases/v1/manifest.json").exists()


@pytest.mark.parametrize("damage", ["{", "{}", "changed", ""])
def test_a_damaged_manifest_is_refused(settings: Settings, tmp_path: Path, damage: str) -> None:
    make_release("v1", settings)
    at = tmp_path / "out/releases/v1/manifest.json"
    at.write_text(at.read_text().replace('"samples": 3', '"samples": 4') if damage == "changed" else damage)
    with pytest.raises(
        ShardError, match="was changed since" if damage == "changed" else "is not the manifest of a release"
    ):
        read_manifest(str(at))
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "verify", "v1"]) == 2


@pytest.mark.parametrize("name", ["a/b", "", "../v1", ".v1", "v 1", "x" * 101])
def test_names_that_are_paths_are_refused(settings: Settings, name: str) -> None:
    with pytest.raises(OptionError, match="cannot be the name of a release"):
        make_release(name, settings)


def test_a_release_is_never_overwritten(settings: Settings, tmp_path: Path) -> None:
    make_release("v1", settings, to=str(tmp_path / "copy"))
    with pytest.raises(OptionError, match="release v1 exists"):
        make_release("v1", settings)
    with pytest.raises(OptionError, match="holds a release already"):
        make_release("v2", settings, to=str(tmp_path / "copy"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with pytest.raises(OptionError, match=r"is not empty, it has notes\.txt"):
        make_release("v2", settings, to=str(tmp_path / "full"))
    for root in ("raw", "out"):
        with pytest.raises(OptionError, match="choose a folder outside"):
            make_release("v2", settings, to=str(tmp_path / root / "v2"))
    (tmp_path / "link").symlink_to("raw")
    with pytest.raises(OptionError, match="choose a folder outside"):
        make_release("v2", settings, to=str(tmp_path / "link/v2"))


def test_shards_that_are_not_current_are_named_or_left_out(settings: Settings, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw/new.tar", seed=5)
    with pytest.raises(OptionError, match=r"1 of 3 shards are not current.*\n  new: never materialized"):
        make_release("v1", settings)
    manifest = make_release("v1", settings, incomplete=True).manifest
    assert manifest.left_out == {"new": "never materialized"}
    assert [tar.shard for tar in manifest.tars] == ["b%20c", "web/a"]


def test_without_a_current_shard_there_is_no_release(tmp_path: Path) -> None:
    settings = project(tmp_path)
    with pytest.raises((OptionError, StorageError), match=r"nothing to release|no look at"):
        make_release("v1", settings)
    write_shard(tmp_path / "raw/a.tar", {"d": document("words", blurred_image())})
    with pytest.raises(OptionError, match="nothing to release"):
        make_release("v1", settings, incomplete=True)


def test_the_commands_say_what_is_sound_and_what_is_not(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["--settings", str(tmp_path / "interleaved.toml")]
    assert main([*base, "release", "v1", "--to", str(tmp_path / "copy")]) == 0
    assert capsys.readouterr().out.startswith("release v1: 2 tars, ")
    assert main([*base, "verify", "v1"]) == 0
    monkeypatch.chdir(tmp_path / "copy")  # without a settings file
    assert main(["verify", "./"]) == 0
    assert ": sound  " in capsys.readouterr().out
    (tmp_path / "copy/tars/web/a.tar").unlink()
    assert main(["verify", str(tmp_path / "copy/manifest.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"missing  {tmp_path}/copy/tars/web/a.tar: no such file"
    assert ": 1 finding  " in lines[1]
    monkeypatch.chdir(tmp_path)
    assert main([*base, "verify", "copy"]) == 2
    assert "the folder here is: interleaved verify ./copy" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "nowhere/manifest.json")]) == 2
    assert "no release at" in capsys.readouterr().err


def test_a_release_is_copied_to_s3_and_compared_there(
    settings: Settings, tmp_path: Path, bucket: str, s3_environment: S3Server
) -> None:
    make_release("v1", settings, to=f"{bucket}/v1")
    at = f"{bucket}/v1/manifest.json"
    assert [one for one in verify_release(read_manifest(at), at) if one is not None] == []
    s3_environment.fs.pipe(f"{bucket}/v1/tars/more.tar", b"")
    s3_environment.fs.rm_file(f"{bucket}/v1/tars/web/a.tar")
    found = verify_release(read_manifest(at), at)
    assert [(one.code, one.uri) for one in found if one is not None] == [
        ("missing", f"{bucket}/v1/tars/web/a.tar"),
        ("unexpected", f"{bucket}/v1/tars/more.tar"),
    ]
    # the manifest below the output root names the copy
    local = str(tmp_path / "out/releases/v1/manifest.json")
    assert [one.code for one in verify_release(read_manifest(local), local) if one is not None] == [
        "missing",
        "unexpected",
    ]


def test_a_tar_that_was_changed_by_hand_is_not_released(settings: Settings, tmp_path: Path) -> None:
    at = tmp_path / "out/tars/web/a.tar"
    at.write_bytes(at.read_bytes() + b"more")
    with pytest.raises(OptionError, match=r"web/a: no final_tars"):
        make_release("v1", settings)


def test_values_of_strangers_can_be_written_and_have_no_control_characters(tmp_path: Path) -> None:
    settings = project(tmp_path)
    # half of a surrogate pair is JSON, and no text that a file can have
    licences = ("\ud800 <b>", 3, "a\x00\u202eb")
    shard = {f"d{at}": document("some words", sharp_image(at), license=one) for at, one in enumerate(licences)}
    write_shard(tmp_path / "raw/a.tar", shard)
    take_all(settings, "a")
    make_release("v1", settings)
    manifest = read_manifest(str(tmp_path / "out/releases/v1/manifest.json"))
    assert [one.most for one in manifest.licences] == [{"3": 1, "\\ud800 <b>": 1, "a\x00\u202eb": 1}]
    card = (tmp_path / "out/releases/v1/README.md").read_text()
    assert "| \\\\ud800 &lt;b&gt; | 1 |" in card
    assert "| a\\\\x00\\\\u202eb | 1 |" in card


def test_images_that_only_the_export_lacks_do_not_count_as_dropped(tmp_path: Path) -> None:
    text = '[export]\nenabled = true\nreencode = "jpeg"\n[errors]\non_materialize_error = "warn"\n'
    settings = project(tmp_path, f"{text}[publish]\nmax_lost_samples = 1\n")
    settings = settings.model_copy(update={"selection": settings.selection.model_copy(update={"order": ()})})
    write_shard(tmp_path / "raw/a.tar", {"d": document("some words", sharp_image(1), b"no image")})
    take_all(settings, "a")
    manifest = make_release("v1", settings).manifest
    assert (manifest.counts_in.images, manifest.counts.images, manifest.dropped) == (2, 2, {})


def test_what_a_killed_copy_left_is_replaced(settings: Settings, tmp_path: Path) -> None:
    tars = tmp_path / "copy/tars/web"
    tars.mkdir(parents=True)
    (tars / f".a.tar.{'0f' * 16}.tmp").write_bytes(b"half")
    (tmp_path / f"copy/.manifest.json.{'0f' * 16}.tmp").write_bytes(b"{")
    with failing("os.link", ".tar", OSError(errno.EXDEV, "Invalid cross-device link")):
        make_release("v1", settings, to=str(tmp_path / "copy"))
    assert findings(tmp_path / "copy/manifest.json") == []
    assert list(tmp_path.glob("copy/**/.*")) == []
    notes = tmp_path / f"other/.notes.{'0f' * 16}.tmp"
    notes.parent.mkdir()
    notes.write_text("mine")
    with pytest.raises(OptionError, match=r"is not empty, it has \.notes"):
        make_release("v2", settings, to=str(tmp_path / "other"))


def test_drops_of_images_alone_take_no_document_from_the_counts(
    settings: Settings,
) -> None:
    paths = settings.storage.shard("b%20c")
    records = read_valid_records(paths, [FILTERED, FINAL_TARS])
    lossy = {**records, FINAL_TARS: records[FINAL_TARS].model_copy(update={"dropped": {"short_read": 1}})}
    for sample_ids, kept in (([], 4), (["d1"], 3)):
        lines = [
            {"sample_id": name, "position": -1, "modality": "metadata", "stage": FINAL_TARS, "reason": "short_read"}
            for name in sample_ids
        ]
        pq.write_table(pa.Table.from_pylist(lines, LEDGER_SCHEMA), paths.ledger(FINAL_TARS))
        accept_outputs(settings, FINAL_TARS, "b%20c")
        assert values_of_shard(paths, lossy)["license"] == {"CC-BY 4.0": kept}


@pytest.mark.parametrize(
    ("columns", "licence"),
    [
        ({"license": {"CC-BY 4.0": 4}}, "cc-by-4.0"),
        ({"license": {"CC-BY 4.0": 3}}, None),
        ({"license": {"CC-BY 4.0": 4}, "rights": {"all rights reserved": 1}}, None),
        ({"license": {"CC-BY 4.0": 3, "cc by 4.0": 1}}, "cc-by-4.0"),
        ({"license": {"CC-BY 4.0": 3, "mit": 1}}, None),
    ],
)
def test_the_card_names_a_licence_that_no_document_contradicts(
    settings: Settings, tmp_path: Path, columns: dict[str, dict[str, int]], licence: str | None
) -> None:
    values = [
        ColumnValues(column=name, what="values", documents=sum(most.values()), distinct=len(most), most=most)
        for name, most in columns.items()
    ]
    make_release("v1", settings)
    found = read_manifest(str(tmp_path / "out/releases/v1/manifest.json"))
    manifest = found.model_copy(update={"counts": Counts(samples=4), "licences": values})
    lines = [line for line in data_set_card(manifest, documents=False).splitlines() if line.startswith("license: ")]
    assert lines == ([] if licence is None else [f'license: "{licence}"'])


def test_shards_with_the_same_documents_are_refused_or_named(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw"
    (raw / "web/renamed.TAR").write_bytes((raw / "web/a.tar").read_bytes())
    (raw / "packed.tar.gz").write_bytes(gzip.compress((raw / "web/a.tar").read_bytes()))
    for name in ("none", "nothing"):  # two shards without documents are no copies
        write_shard(raw / f"{name}.tar", {})
    for key in ("web/renamed", "packed", "none", "nothing"):
        take_all(settings, key)
    command = ["--settings", str(tmp_path / "interleaved.toml"), "release", "v1"]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        "interleaved: 3 shards have the same documents as another shard. Remove the copies below the raw root and "
        "forget them with interleaved forget, or release them all with --allow-duplicates:\n"
        "  packed, web/a, web/renamed\n"
    )
    assert not (tmp_path / "out/releases").exists()
    assert main([*command, "--allow-duplicates"]) == 0
    assert "same documents: packed, web/a, web/renamed\n" in capsys.readouterr().out
    manifest = read_manifest(str(tmp_path / "out/releases/v1/manifest.json"))
    assert manifest.duplicates == [["packed", "web/a", "web/renamed"]]
    assert manifest.counts.samples == 13
    assert "3 shards have the same documents as another one" in (tmp_path / "out/releases/v1/README.md").read_text()
    assert main([*command[:-1], "v2", "--allow-duplicates", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["duplicates"] == [["packed", "web/a", "web/renamed"]]
    for name in ("web/renamed.TAR", "packed.tar.gz"):
        (raw / name).unlink()
    assert main([*command[:-2], "forget", "--vanished", "--yes"]) == 0
    assert main([*command[:-1], "v3"]) == 0
    assert read_manifest(str(tmp_path / "out/releases/v3/manifest.json")).duplicates == []


def test_the_same_parts_of_shards_that_are_split_are_named_once(tmp_path: Path) -> None:
    settings = project(tmp_path, "[final_tars]\nmax_samples_per_tar = 2\n")
    for key in ("a", "b"):
        good_shard(tmp_path / f"raw/{key}.tar")
        take_all(settings, key)
    with pytest.raises(OptionError, match=r"^2 shards have the same documents .*:\n  a, b$"):
        make_release("v1", settings)


def test_a_manifest_from_before_duplicates_were_named_is_sound(settings: Settings, tmp_path: Path) -> None:
    make_release("v1", settings)
    at = tmp_path / "out/releases/v1/manifest.json"
    content = json.loads(at.read_text())
    del content["duplicates"]
    at.write_text(json.dumps(content))
    assert read_manifest(str(at)).is_sound


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_tar_that_a_run_replaces_while_it_is_copied_is_not_released(
    settings: Settings, tmp_path: Path, is_linked: bool
) -> None:
    tar, copied = tmp_path / "out/tars/web/a.tar", tmp_path / "copy/tars/web/a.tar"

    def replace(event: str, path: str) -> None:
        if event == "os.link" and path == str(copied):
            other = tar.with_name("other")
            other.write_bytes(tar.read_bytes()[:-512] + bytes(511) + b"x")
            other.replace(tar)
            if not is_linked:
                raise OSError(errno.EXDEV, "Invalid cross-device link")

    with (
        system_calls(replace),
        pytest.raises(ShardError, match=r"shard web/a: .*/web/a\.tar is not what its record says"),
    ):
        make_release("v1", settings, to=str(tmp_path / "copy"))
    assert not copied.exists()
    assert not (tmp_path / "copy/manifest.json").exists()


def test_shards_that_are_left_out_are_named(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good_shard(tmp_path / "raw/web/new.tar", seed=3)
    assert main(["--settings", str(tmp_path / "interleaved.toml"), "release", "v1", "--incomplete"]) == 0
    assert "left out: web/new: " in capsys.readouterr().out
