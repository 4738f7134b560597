import errno
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets.io import InterleavedParquetReader
from interleaved_assets.io.formats.shard import read_shard
from interleaved_assets.io.storage import find_files
from interleaved_assets.pipeline.files import convert
from interleaved_assets.pipeline.files.inputs import ShardFile
from interleaved_assets.pipeline.raw.listing import list_raw_files
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.settings import StorageSettings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import document, good_shard, sharp_image, write_shard
from interleaved_assets_tests.io.pdfs import text, write_pdf
from interleaved_assets_tests.io.row_tables import rows_table
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import failing, system_calls


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with two shards in ``raw``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    good_shard(tmp_path / "raw/a.tar", seed=1)
    good_shard(tmp_path / "raw/deep/b.tar", seed=2)
    return tmp_path


def without_places(path: Path) -> list[dict[str, object]]:
    return pa.concat_tables(read_shard(str(path))).drop_columns("source_ref").to_pylist()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


def test_the_signature_of_a_url_is_neither_printed_nor_stored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder / "raw")) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/deep/b.tar"
        signed, to = f"{url}?X-Amz-Signature=c4n4ry", ("-o", "out", "--to", "parquet")
        for command, *options in (
            ("convert", *to),
            ("convert", *to, "--json"),
            ("inspect",),
            ("validate",),
            ("view",),
            ("score", "scores.parquet"),
            ("select", "scores.parquet", "kept.parquet"),
        ):
            assert main([command, signed, *options]) == 0
        server.shutdown()
    printed = capsys.readouterr()
    assert f"{url} → out/b.parquet: 3 samples" in printed.out
    assert "c4n4ry" not in printed.out + printed.err
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert {"b.html", "b.parquet", "b.json", "kept.parquet"} <= {path.name for path in written}
    assert not any("c4n4ry" in path.name or b"c4n4ry" in path.read_bytes() for path in written)


class _ByQuery(_Quiet):
    def translate_path(self, path: str) -> str:
        return str(Path(self.directory) / f"{path[-1]}.tar")


def test_another_file_by_the_query_of_a_url_does_not_count_as_converted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "12":  # of equal size: all that this server tells of them
        write_shard(folder / f"{name}.tar", {"doc": document(name, sharp_image(1))})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_ByQuery, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url, to = f"http://127.0.0.1:{server.server_port}/get.tar?id=", ("-o", "out", "--to", "parquet")
        assert [main(["convert", url + name, *to]) for name in "112"] == [0, 0, 2]
        printed = capsys.readouterr()
        assert ": current, " in printed.out
        assert "get.tar, or before it changed: no query of a URL is recorded. Name another folder" in printed.err
        assert pq.read_table("out/get.parquet")["text_content"][1].as_py() == "1"
        assert main(["convert", url + "2", *to, "--overwrite"]) == 0
        server.shutdown()
    assert pq.read_table("out/get.parquet")["text_content"][1].as_py() == "2"


def test_tar_to_parquet_and_back_keeps_every_row(folder: Path) -> None:
    assert main(["convert", "raw", "-o", "parquet", "--to", "parquet"]) == 0
    assert main(["convert", "parquet", "-o", "tars", "--to", "tar"]) == 0
    for name in ("a", "deep/b"):
        assert without_places(folder / f"tars/{name}.parquet.tar") == without_places(folder / f"raw/{name}.tar")


def test_what_is_current_is_not_made_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["convert", "raw", "-o", "out", "--to", "parquet"]
    assert main(command) == 0
    stamps = [path.stat().st_mtime_ns for path in sorted(folder.glob("out/**/*.parquet"))]
    (folder / "raw/a.tar").touch()  # another stamp, the same content
    assert main(command) == 0
    assert "2 files: 0 converted, 2 current, 0 failed" in capsys.readouterr().out
    assert [path.stat().st_mtime_ns for path in sorted(folder.glob("out/**/*.parquet"))] == stamps
    good_shard(folder / "raw/a.tar", seed=3)
    assert main(command) == 0
    assert "2 files: 1 converted, 1 current, 0 failed" in capsys.readouterr().out
    (folder / "out/deep/b.parquet").unlink()
    assert main(command) == 0
    assert main([*command, "--filter", "min_sharpness=1"]) == 0
    assert "2 files: 2 converted, 0 current, 0 failed" in capsys.readouterr().out.splitlines()[-1]


def test_changed_settings_of_a_format_convert_its_files_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = write_pdf(folder / "report.pdf", [text(50, 700, "A page."), b""])
    command = ["convert", report, "-o", "out", "--to", "parquet"]
    for said in ("0 current", "1 current"):
        assert main(command) == 0
        *_, line, last = capsys.readouterr().out.splitlines()
        assert (said in last, line.endswith("1 sample, 1 text, 0 images")) == (True, True)
    monkeypatch.setenv("INTERLEAVED_READING__PDF__PAGE_IMAGES", "true")
    assert main(command) == 0
    assert "1 file: 1 converted, 0 current" in capsys.readouterr().out
    images = [row for row in without_places(folder / "out/report.pdf.parquet") if row["modality"] == "image"]
    assert len(images) == 1


def test_a_new_release_of_what_filters_measure_with_converts_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]
    place = folder / "out/_interleaved/records/a.json"
    assert main(command) == 0
    assert "packages" not in json.loads(place.read_text())
    command += ["--filter", "min_sharpness=1"]
    assert main(command) == main(command) == 0
    assert "1 file: 0 converted, 1 current, 0 failed" in capsys.readouterr().out
    record = json.loads(place.read_text())
    assert record["packages"].keys() == {"opencv-python-headless", "pillow"}
    place.write_text(json.dumps(record | {"packages": {"pillow": "1.0"}}))
    assert main(command) == 0
    assert "1 file: 1 converted, 0 current, 0 failed" in capsys.readouterr().out


def test_changed_options_and_lists_of_filters_of_texts_convert_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("casino", "garden")
    write_shard(tmp_path / "raw/a.tar", {name: document("one", url=f"https://{name}.example") for name in names})
    bound = "[selection]\ndocument.url_words = { max = 0 }\n"
    command = ["convert", "raw", "-o", "out", "--to", "parquet", "--selection"]

    def kept() -> tuple[set[str], str]:
        assert main(command) == 0
        found = {str(row["sample_id"]) for row in without_places(tmp_path / "out/a.parquet")}
        return found, capsys.readouterr().out.splitlines()[-1]

    for file in ("a", "b"):
        (tmp_path / "interleaved.toml").write_text(f'{bound}[documents]\nscorers = ["url"]\nurl_words = "{file}.txt"\n')
        (tmp_path / f"{file}.txt").write_text(f"{names[file == 'b']}\n")
        assert kept() == ({names[file == "a"]}, "1 file: 1 converted, 0 current, 0 failed")
    (tmp_path / "b.txt").write_text("casino\n")
    assert kept() == ({"garden"}, "1 file: 1 converted, 0 current, 0 failed")
    assert kept() == ({"garden"}, "1 file: 0 converted, 1 current, 0 failed")


def test_a_folder_of_outputs_may_be_moved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "raw", "-o", "out", "--to", "parquet"]) == 0
    (folder / "out").rename(folder / "moved")
    assert main(["convert", "raw", "-o", "moved", "--to", "parquet"]) == 0
    assert "2 current" in capsys.readouterr().out.splitlines()[-1]


def test_files_of_others_and_inputs_are_never_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "out").mkdir()
    (folder / "out/a.tar").write_text("mine")
    assert main(["convert", "raw/a.tar", "-o", "out", "--to", "tar"]) == 2
    assert "out/a.tar: the file exists and is not one that an earlier conversion wrote" in capsys.readouterr().err
    assert (folder / "out/a.tar").read_text() == "mine"
    assert not (folder / "out/_interleaved/records/a.json").exists()
    assert main(["convert", "raw/a.tar", "-o", "out", "--to", "tar", "--overwrite"]) == 0
    before = (folder / "raw/a.tar").read_bytes()
    (folder / "link").symlink_to(folder / "raw")
    for target in ("raw", "link"):
        assert main(["convert", "raw/a.tar", "-o", target, "--to", "tar", "--overwrite"]) == 2
        assert "would replace the input" in capsys.readouterr().err
    assert (folder / "raw/a.tar").read_bytes() == before
    good_shard(folder / "other/a.tar")
    assert main(["convert", "raw/a.tar", "other/a.tar", "-o", "x", "--to", "tar"]) == 2
    assert "would both become x/a.tar" in capsys.readouterr().err


def test_the_mark_of_an_editor_beside_a_shard_is_none(folder: Path) -> None:
    """Emacs marks a file that is edited by a link to a file that never exists."""
    assert main(["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]) == 0
    (folder / "out/.#a.parquet").symlink_to("user@host.1234")
    assert [batch.num_items for batch in InterleavedParquetReader("out")] == [3]


def test_a_link_to_a_missing_file_fails_by_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "raw/linked.tar").symlink_to(folder / "unmounted/linked.tar")
    assert main(["convert", "raw", "-o", "out", "--to", "parquet"]) == 2
    assert f"{folder / 'raw/linked.tar'} is no file any more" in capsys.readouterr().err
    assert (folder / "out/a.parquet").exists()


def test_a_full_disk_at_the_record_leaves_no_output_that_the_next_conversion_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]
    with failing("os.rename", "out/_interleaved/records/a.json", OSError(errno.ENOSPC, "No space left on device")):
        assert main(command) == 2
    assert "cannot write out/_interleaved/records/a.json: No space left on device" in capsys.readouterr().err
    assert [path for path in (folder / "out").rglob("*") if path.is_file()] == []
    assert main(command) == 0


def test_a_failing_input_does_not_stop_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = write_shard(folder / "raw/c.tar", {"doc": document("text", sharp_image(1))})
    shard.write_bytes(shard.read_bytes().replace(b'"doc.1.png"', b'"doc.9.png"'))
    (folder / "raw/d.tar").write_text("no tar")
    assert main(["convert", "raw", "-o", "out", "--to", "tar", "--json"]) == 2
    printed = capsys.readouterr()
    lines = {Path(line["input"]).name: line for line in map(json.loads, printed.out.splitlines())}
    assert lines["a.tar"]["counts_out"]["rows"] == lines["b.tar"]["counts_out"]["rows"] == 13
    assert "is not a tar" in lines["d.tar"]["error"]
    assert sorted(path.name for path in folder.glob("out/**/*.tar")) == ["a.tar", "b.tar"]
    assert f"{folder}/raw/c.tar: sample 'doc', position 1, member 'doc.9.png': missing_member" in printed.err
    assert "choose on_materialize_error='warn'" in printed.err


def test_dropped_rows_are_in_the_ledger(folder: Path) -> None:
    command = ["convert", "raw/a.tar", "-o", "out", "--to", "tar", "--filter", "min_sharpness=100"]
    assert main([*command, "--filter", "on_score_error=drop_row"]) == 0
    (row,) = pq.read_table(folder / "out/_interleaved/dropped/a.parquet").to_pylist()
    assert (row["sample_id"], row["position"], row["reason"], row["threshold"]) == (
        "doc-1-b",
        2,
        "sharpness_below",
        100,
    )
    assert len(without_places(folder / "out/a.tar")) == 12


def test_the_ledgers_in_a_folder_of_outputs_are_no_shards(folder: Path) -> None:
    assert main(["convert", "raw", "-o", "out", "--to", "parquet"]) == 0
    assert (folder / "out/_interleaved/dropped/a.parquet").exists()
    listing = list_raw_files(StorageSettings(raw_root=str(folder / "out"), output_root=str(folder / "curated")))
    assert ([shard.key for shard in listing.shards], listing.ignored) == (["a.parquet", "deep/b.parquet"], [])
    assert sum(batch.num_items for batch in InterleavedParquetReader(str(folder / "out"))) == 6
    assert [batch.num_items for batch in InterleavedParquetReader(str(folder / "out/a.parquet"))] == [3]


def test_a_folder_whose_name_is_like_that_of_the_ledgers_is_like_any_other(folder: Path) -> None:
    shard = folder / "my_interleaved_data/_interleaved/own.parquet"
    assert main(["convert", "raw/a.tar", "-o", str(shard.parent.parent), "--to", "parquet"]) == 0
    (shard.parent.parent / "a.parquet").rename(shard)
    storage = StorageSettings(raw_root=str(shard.parent.parent), output_root=str(folder / "curated"))
    assert [found.key for found in list_raw_files(storage).shards] == ["_interleaved/own.parquet"]
    assert [batch.num_items for batch in InterleavedParquetReader(storage.raw_root)] == [3]
    [ledger] = find_files(str(shard.parent / "dropped"), (".parquet",))  # it is found if it is named
    assert ledger.uri.endswith("/_interleaved/dropped/a.parquet")


def test_only_named_filters_apply_unless_the_section_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "interleaved.toml").write_text("[selection]\nmin_sharpness = 100\nmin_short_side = 49\n")
    out = ["convert", "raw/a.tar", "--to", "tar", "-o"]
    assert main([*out, "all"]) == 0
    assert main([*out, "named", "--filter", "max_long_side=64"]) == 0
    assert main([*out, "section", "--selection", "--filter", "min_short_side=none"]) == 0
    counts = [len(without_places(folder / f"{name}/a.tar")) for name in ("all", "named", "section")]
    assert counts == [13, 13, 12]
    assert "filters that need other scores and are not applied: clip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--filter", "min_sharp=1"], "selection.min_sharp: unknown key; allowed here: document, max_aspect_ratio"),
        (["--filter", "min_sharpness"], "'min_sharpness' is not NAME=VALUE"),
        (["--filter", "min_sharpness=x"], "selection.min_sharpness: Input should be a valid number"),
        (["--filter", "min_clip=0.2"], "filter 'clip' needs the score clip_score"),
        (["--on-error", "x"], "'x' is not one of 'error', 'warn', 'drop_row', 'drop_sample'"),
        (["--jobs", "0"], "0 is not in the range"),
        (["--to", "warc"], "warc cannot be written: --to takes tar, tar.gz, tgz, parquet"),
    ],
)
def test_a_wrong_option_is_one_line_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["convert", "raw", "-o", "out", "--to", "tar", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (folder / "out").exists()


def test_from_a_bucket_to_a_bucket(folder: Path, s3_environment: S3Server, bucket: str) -> None:
    s3_environment.fs.put(str(folder / "raw"), f"{bucket}/raw", recursive=True)
    command = ["convert", f"{bucket}/raw", "-o", f"{bucket}/out", "--to", "parquet"]
    assert main(command) == main(command) == 0
    assert main(["convert", f"{bucket}/out/deep/*.parquet", "-o", "back", "--to", "tar"]) == 0
    assert without_places(folder / "back/b.parquet.tar") == without_places(folder / "raw/deep/b.tar")


def test_a_slow_file_holds_up_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        good_shard(folder / f"many/{number}.tar")
    usual, others, all_done = convert.convert_file, set[str](), threading.Event()

    def slow_first(file: ShardFile, conversion: convert.Conversion) -> tuple[Record, bool]:
        if file.name == "0":
            assert all_done.wait(20)
        result = usual(file, conversion)
        others.add(file.name)
        if len(others) == 7:
            all_done.set()
        return result

    stand_in(monkeypatch, convert, "convert_file", slow_first)
    assert main(["convert", "many", "-o", "out", "--to", "tar", "--jobs", "2"]) == 0
    # the line of each is printed when it is done
    assert "/many/0.tar → out/0.tar: " in capsys.readouterr().out.splitlines()[-2]


@pytest.mark.system
def test_ctrl_c_leaves_nothing_half_written_and_the_next_call_goes_on(folder: Path) -> None:
    images = {f"doc-{number}": document("text", sharp_image(number, 400, 300)) for number in range(8)}
    for number in range(12):
        write_shard(folder / f"many/{number:02}.tar", images)
    arguments = ["convert", "many", "-o", "out", "--to", "tar", "--filter", "max_qr_area_ratio=0.5"]
    command = [sys.executable, "-P", "-m", "interleaved_assets.cli", *arguments]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # one is done
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    *waiting, last = filter(None, error.splitlines())
    assert (process.returncode, last) == (130, "interleaved: interrupted")
    # nothing is said if the signal arrives while a result is printed
    assert all(line.startswith("interrupted: waiting until the shards in work are done: ") for line in waiting)
    done = sorted(folder.glob("out/*.tar"))
    assert 1 <= len(done) < 12
    assert [len(without_places(tar)) for tar in done] == [24] * len(done)
    assert list(folder.glob("out/.*")) == []
    assert main(arguments) == 0
    assert len(list(folder.glob("out/*.tar"))) == 12


def test_an_input_that_changes_while_it_is_read_leaves_everything_as_it_was(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")  # so that the output has a name from the start
    command = ["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]

    def change(event: str, path: str) -> None:
        if event == "open" and path.startswith(str(folder / "out")) and ".a.parquet." in path and changing:
            good_shard(folder / "raw/a.tar", seed=changing.pop())

    changing = [7]
    with system_calls(change):
        assert main(command) == 2
    assert changing == []
    assert "raw/a.tar changed while it was read" in capsys.readouterr().err
    assert [path for path in folder.glob("out/**/*") if path.is_file()] == []
    assert main(command) == 0
    before = (folder / "out/a.parquet").read_bytes()
    good_shard(folder / "raw/a.tar", seed=9)
    changing = [8]
    with system_calls(change):
        assert main(command) == 2
    assert changing == []
    assert (folder / "out/a.parquet").read_bytes() == before
    assert main(command) == 0


def test_an_output_without_its_record_is_replaced_if_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]
    assert main(command) == 0
    (folder / "out/_interleaved/records/a.json").unlink()
    assert main(command) == 2
    assert "is not one that an earlier conversion wrote" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == main(command) == 0
    (folder / "out/_interleaved/records/a.json").write_text("{")
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == main(command) == 0


def test_no_rows_are_written_without_their_ledger(folder: Path) -> None:
    assert main(["score", "raw/a.tar", "s.parquet"]) == 0
    with failing("os.rename", "a.tar.dropped.parquet", OSError(errno.ENOSPC, "No space left on device")):
        assert main(["select", "raw/a.tar", "s.parquet", "a.tar", "--filter", "min_sharpness=1"]) == 2
    assert not (folder / "a.tar").exists()
    with failing("os.rename", "dropped/a.parquet", OSError(errno.ENOSPC, "No space left on device")):
        assert main(["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]) == 2
    assert not (folder / "out/a.parquet").exists()
    assert main(["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]) == 0


def test_the_output_of_another_input_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "raw/a.tar", "-o", "out", "--to", "parquet"]) == 0
    before = (folder / "out/a.parquet").read_bytes()
    good_shard(folder / "other/a.tar", seed=5)
    command = ["convert", "other/a.tar", "-o", "out", "--to", "parquet"]
    assert main(command) == 2
    assert f"the file exists and was made from another input, {folder}/raw/a.tar" in capsys.readouterr().err
    assert (folder / "out/a.parquet").read_bytes() == before
    assert main([*command, "--overwrite"]) == 0
    assert (folder / "out/a.parquet").read_bytes() != before


def test_parquet_whose_columns_have_different_numbers_of_rows_is_neither_sound_nor_converted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"sample_id": f"s{row}", "position": 0, "modality": "text", "text_content": "t"} for row in range(5)]
    table = rows_table(rows).select(["sample_id", "position", "modality", "text_content"])
    pq.write_table(table, "a.parquet", use_dictionary=False, compression="none", store_schema=False)
    # codec and number of values of a column in the footer, here of modality
    parts = (folder / "a.parquet").read_bytes().split(b"\x15\x00\x16\x0a")
    assert len(parts) == 5
    parts[2:4] = [parts[2] + b"\x15\x00\x16\x00" + parts[3]]
    (folder / "a.parquet").write_bytes(b"\x15\x00\x16\x0a".join(parts))
    message = "a.parquet is not a sound Parquet file: row group 0 has 5 rows, and its column 'modality' has 0 values"
    assert main(["validate", "a.parquet"]) == 2
    assert message in capsys.readouterr().err
    for target in ("tar", "parquet"):
        assert main(["convert", "a.parquet", "-o", "out", "--to", target]) == 2
        assert message in capsys.readouterr().err
        assert not [path for path in folder.glob("out/**/*") if path.is_file()]
