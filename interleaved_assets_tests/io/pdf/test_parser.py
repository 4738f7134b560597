import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from interleaved_assets.io.pdf.child import Frame
from interleaved_assets.io.pdf.parser import Parser, read_frames
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.rows.parser_process import close_parsers
from interleaved_assets.model.errors import StorageError
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.pdf.test_bad_files import LEAST_MEMORY, with_bombs
from interleaved_assets_tests.io.pdf.test_reader import read
from interleaved_assets_tests.io.pdfs import text, write_pdf


def long(path: Path, pages: int = 60) -> Path:
    """A file whose pages do not fit into a pipe."""
    write_pdf(path, [text(50, 700, *["words " * 15] * 50)] * pages)
    return path


def test_a_parser_that_cannot_be_started_is_not_the_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.")])
    close_parsers()
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refused)
        with pytest.raises(StorageError, match=r"^the parser process \S+\.pdf\.child cannot be started: Resource temp"):
            read(path)
    assert read(path)[1]["text_content"] == "Text."


def test_one_process_reads_file_after_file(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.")])
    read(path)
    with Parser.lent() as first:
        pass
    assert read(path)[1]["text_content"] == "Text."
    with Parser.lent() as second:
        assert second is first
    close_parsers()
    assert first.has_ended()


def test_a_parser_that_was_ended_meanwhile_is_replaced(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.")])
    read(path)
    with Parser.lent() as idle:
        pass
    os.killpg(idle._process.pid, signal.SIGKILL)
    idle._process.wait()
    assert read(path)[1]["text_content"] == "Text."


def test_the_reason_of_a_crash_is_told_and_the_next_file_is_read(tmp_path: Path) -> None:
    with Parser.lent() as lent:
        frames = lent.frames(long(tmp_path / "a.pdf"), PdfSettings())
        next(frames)
        process = lent._process.pid
        (fork,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        os.kill(int(fork), signal.SIGSEGV)
        *_, (last, _) = frames
    assert last["ended"].startswith("was ended by SIGSEGV at ")
    assert last["ended"].endswith("(reading.pdf.max_memory is 2048 MiB)")
    assert lent.has_ended()
    assert len(read(long(tmp_path / "a.pdf"))) > 60


@pytest.mark.parametrize("how", ["ended", "late"])
def test_a_parser_that_ends_after_the_last_page_leaves_nothing_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = long(tmp_path / "a.pdf", pages=2)
    whole, frames = list(read_frames(path, PdfSettings())), Parser.frames

    def ended(*arguments: Any) -> Iterator[Frame]:
        yield from frames(*arguments)
        yield {how: "was ended"}, []

    stand_in(monkeypatch, Parser, "frames", ended)
    assert list(read_frames(path, PdfSettings())) == whole


def test_time_that_a_parser_waits_is_not_counted(tmp_path: Path) -> None:
    """As on a busy machine, the parser runs a tenth of the time."""
    path = long(tmp_path / "a.pdf", pages=8)
    since = time.monotonic()
    with Parser.lent() as lent, ThreadPoolExecutor() as pool:
        reading = pool.submit(lambda: list(lent.frames(path, PdfSettings(max_seconds=0.6))))
        while not reading.done():
            for number, seconds in ((signal.SIGSTOP, 0.018), (signal.SIGCONT, 0.002)):
                os.killpg(lent._process.pid, number)
                time.sleep(seconds)
        pages = [head["page"] for head, _ in reading.result()[1:]]
    assert time.monotonic() - since > 0.6
    assert pages == list(range(1, 9))


@pytest.mark.system
def test_a_pause_of_a_parser_that_then_ends_is_not_counted(tmp_path: Path) -> None:
    with_bombs(path := tmp_path / "a.pdf", 4, range(1, 2))
    with Parser.lent() as idle:
        pass
    idle._process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(lambda: list(read_frames(path, PdfSettings(max_seconds=2, max_memory=LEAST_MEMORY))))
        time.sleep(2.5)
        idle._process.send_signal(signal.SIGCONT)
        pages = {head["page"]: "error" in head for head, _ in reading.result()[1:]}
    assert idle.has_ended()
    assert pages == {1: False, 2: True, 3: False, 4: False}


def test_a_lower_limit_of_memory_of_the_user_holds(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.")])
    code = (
        "import sys; from interleaved_assets.io import read_shard;"
        "print([row for table in read_shard(sys.argv[1]) for row in table['text_content'].to_pylist()])"
    )
    limited = ["sh", "-c", 'ulimit -v 1500000 && exec "$@"', "sh", sys.executable, "-c", code, str(path)]
    assert "'Text.'" in subprocess.run(limited, capture_output=True, check=True, text=True, timeout=300).stdout


def test_a_parser_that_is_given_back_in_the_middle_of_a_file_ends() -> None:
    one = Parser()
    one.is_idle = False
    one.close()
    assert one.has_ended()
