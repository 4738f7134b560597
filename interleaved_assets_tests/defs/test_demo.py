"""``make demo``: what it prints, and how it ends when it is interrupted."""

import io
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from interleaved_assets.defs.demo import materialize_all, present_ui, register_all, settings_of_demo, summary_table
from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.reporting.figures.collect import all_shard_facts
from interleaved_assets_tests.documents import (
    blurred_image,
    document,
    project,
    sharp_image,
    write_shard,
)
from interleaved_assets_tests.forked import start_forked
from interleaved_assets_tests.projects import take_all

README = Path(__file__).parents[2] / "README.md"
WARN = '[errors]\non_materialize_error = "warn"\n[selection]\non_score_error = "warn"\n'

# The command on half of its shards: to draw the others takes most of the time until it begins with its run.
DEMO = """
import sys
from interleaved_assets.cli import main
from interleaved_assets.demo.shards import SHARDS
for name in ("mint/pdf-001.tar", "web/articles-000.tar", "web/flyers-000.tar", "web/galleries-000.tar"):
    del SHARDS[name]
sys.exit(main(["demo"]))
"""


@pytest.fixture
def printed(tmp_path: Path) -> str:
    """The summary at 80 columns of one shard with a blurred image and one that is no image."""
    settings = project(tmp_path, WARN)
    documents = {f"doc-{n}": document("one two", sharp_image(n), blurred_image(), b"no image") for n in range(3)}
    write_shard(tmp_path / "raw/scanned-pages-2024.tar", documents)
    take_all(settings, "scanned-pages-2024")
    out = io.StringIO()
    Console(file=out, width=80).print(summary_table(settings, ["scanned-pages-2024"]))
    return out.getvalue()


def test_at_80_columns_the_summary_has_the_reasons(printed: str) -> None:
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 80
    assert "3 sharpness_below" in printed
    assert "scanned-pages-2024" in printed


def test_the_summary_counts_the_errors_that_the_report_counts(printed: str, tmp_path: Path) -> None:
    (facts,) = all_shard_facts(read_dataset_status(project(tmp_path, WARN)))
    assert sum(facts.errors.values()) == 3
    (line,) = [line for line in printed.splitlines() if line.startswith("│ scanned")]
    assert line.split("│")[-2].strip() == "3"


def test_the_readme_lists_every_folder_of_outputs(printed: str, tmp_path: Path) -> None:
    tree = README.read_text(encoding="utf-8").split("Below the output root:")[1].split("```")[1]
    folders = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"normalized", "records", "sample_scores", "tars"} <= folders
    assert {name for name in folders if f"{name}/" not in tree} == set()


def test_a_step_that_fails_is_one_message_with_its_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path)
    write_shard(tmp_path / "raw/a.tar", {"doc": document("one", b"no image")})
    (tmp_path / "out/dataset_report.html").mkdir(parents=True)
    with dg.DagsterInstance.ephemeral() as instance:
        keys = register_all(instance, settings.storage)
        assert not materialize_all(instance, settings, keys)
    err = capsys.readouterr().err
    assert "dagster._core" not in err
    assert "final_tars: 1 of 1 shards failed" in err
    assert f"dataset_report: cannot write {tmp_path}/out/dataset_report.html: Is a directory" in err


def start_demo(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-c", DEMO],
        cwd=folder,
        env={**os.environ, "DAGSTER_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def started_demo(folder: Path) -> "subprocess.Popen[str]":
    """A demo whose first step has begun."""
    project(folder)
    (folder / "home").mkdir()
    (folder / "home/dagster.yaml").write_text((README.parent / "dagster.yaml").read_text())
    demo = start_demo(folder)
    started = time.monotonic()
    while not (folder / "out/normalized").exists():
        assert demo.poll() is None
        assert time.monotonic() - started < 600
        time.sleep(0.05)
    return demo


@pytest.mark.system
def test_a_demo_that_was_killed_does_not_block_the_next(tmp_path: Path) -> None:
    """No daemon is there to end its run, and the next one's events are later than what that run had planned."""
    killed = started_demo(tmp_path)
    killed.kill()
    killed.communicate(timeout=600)
    text, _ = start_demo(tmp_path).communicate(timeout=600)
    assert "done in " in text
    assert "in the browser without Dagster:  interleaved serve" in text
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        assert len([run for run in instance.get_runs() if not run.is_finished]) == 1
        known = progress(instance, ["normalized", "final_tars"], instance.get_dynamic_partitions(SHARDS))
    assert not known.busy
    assert known.made["final_tars"] == known.made["normalized"] != set()


def write_settings_on_a_full_disk(folder: str, home: str | None) -> None:
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    for name in ("INTERLEAVED_SETTINGS", "DAGSTER_HOME"):  # of the test in which the server of forks was started
        os.environ.pop(name, None)
    if home is not None:
        os.environ["DAGSTER_HOME"] = home
    with pytest.raises(StorageError, match=r"cannot write .*: File too large"):
        settings_of_demo() if home is None else present_ui()


@pytest.mark.parametrize("home", [None, "home"])
def test_no_file_that_it_cannot_write_whole_stays(tmp_path: Path, home: str | None) -> None:
    process = start_forked(write_settings_on_a_full_disk, str(tmp_path), home and str(tmp_path / home))
    process.join(300)
    assert process.exitcode == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.system
def test_ctrl_c_ends_it_in_one_line(tmp_path: Path) -> None:
    demo = started_demo(tmp_path)
    demo.send_signal(signal.SIGINT)
    text, _ = demo.communicate(timeout=600)
    assert demo.returncode == 130, text
    assert "Traceback" not in text
    assert "interleaved demo: interrupted; " in text.splitlines()[-1]
