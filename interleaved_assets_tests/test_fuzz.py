"""The fuzzer: a short run without findings, and that its harness and its oracles find what they look for."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.fuzz.cases import KINDS
from benchmarks.fuzz.child import Work, WrongRead, run_in_children
from benchmarks.fuzz.oracles import check_rows_equal, check_texts, tarfile_members
from benchmarks.fuzz.tars import header, padded, pax, plain_member, record
from interleaved_assets.model.errors import ShardError


@pytest.mark.system
def test_three_outcomes_and_nothing_else() -> None:
    command = [sys.executable, "-m", "benchmarks.fuzz", "--cases", "220", "--seed", "1", "--workers", "1"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("findings: []")
    for kind in KINDS:
        assert f" {kind}: " in done.stdout
    counts = dict(reversed(line.split(maxsplit=1)) for line in done.stdout.splitlines() if line.startswith(" "))
    assert all(int(counts[outcome]) > 20 for outcome in ("read", "row error", "refused"))
    assert counts["FINDING"] == "0"


def refused(folder: str) -> str:
    raise ShardError(f"{folder}/a.tar is no tar")


def takes_memory(folder: str) -> str:
    return "read" if bytes(2**33) else ""


def hangs(folder: str) -> str:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    return "read"


def works_for_ever(folder: str) -> str:
    while True:
        time.process_time()


def dies(folder: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "read"


def raises(folder: str) -> str:
    raise KeyError(folder)


@pytest.mark.system
def test_a_case_that_ends_otherwise_is_a_finding_and_the_next_goes_on() -> None:
    cases: list[Work] = [refused, dies, works_for_ever, raises, takes_memory, lambda folder: "read"]
    ends = list(run_in_children(cases, seconds=1))
    assert [end.outcome for end in ends] == [
        "refused ShardError",
        "died of SIGKILL",
        "over 1 s",
        "KeyError",
        "MemoryError",
        "read",
    ]
    assert [end.passed for end in ends] == [True, False, False, False, False, True]
    assert [end.outcome for end in run_in_children([hangs], clock_seconds=0.5)] == ["hangs for 0.5 s"]


@pytest.mark.parametrize(
    "found",
    [
        {"a": ["x", "z"], "b": [1.0, None]},
        {"a": ["x", "y"]},
        {"a": ["x"], "b": [1.0]},
        {"a": ["x", "y"], "b": [1, None]},
    ],
    ids=["value", "column", "rows", "type"],
)
def test_another_table_is_a_wrong_read(found: dict[str, list[object]]) -> None:
    table = pa.table({"a": ["x", "y"], "b": [1.0, None]})
    check_rows_equal(table, table, "here")
    with pytest.raises(WrongRead, match="here: "):
        check_rows_equal(table, pa.table(found), "here")


def test_what_tarfile_takes_for_files_or_does_not_reach_says_nothing(tmp_path: Path) -> None:
    path, member = tmp_path / "a.tar", plain_member(b"b.json", b"{}")
    path.write_bytes(header(b"folder", 2, b"D") + padded(b"\0\0") + member + bytes(1024))
    assert tarfile_members(path) == {"b.json": [b"{}"]}
    # it takes an empty size for 0, and ends where the content is no header
    path.write_bytes(member + pax(record(b"size", b"")) + member + member + bytes(1024))
    assert tarfile_members(path) is None


def test_a_text_that_is_missing_is_a_wrong_read() -> None:
    members = {"a.json": [b'{"texts": ["one", null, "two"]}', b"{"]}
    check_texts(Counter(["one", "two", "more"]), members)
    with pytest.raises(WrongRead, match="two"):
        check_texts(Counter(["one"]), members)
