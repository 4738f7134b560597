import os
import signal
import subprocess
import sys
from pathlib import Path

from interleaved_assets.io.pdf.parser import Parser
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.io.rows.parser_process import close_parsers
from interleaved_assets_tests.io.pdf.test_reader import read
from interleaved_assets_tests.io.pdfs import text, write_pdf


def long(path: Path) -> Path:
    """A file whose pages do not fit into a pipe."""
    write_pdf(path, [text(50, 700, *["words " * 15] * 50)] * 60)
    return path


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
