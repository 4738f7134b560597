import io
import random
import subprocess
import sys
import tarfile
from typing import Any

import pytest
from webdataset import tariterators

from interleaved_assets.pipeline.stages.webdataset_samples import webdataset_samples

Members = list[tuple[str, bytes]]
FOUND_AND_REFUSED = 300, 40
"""At least so many of the random tars below are read, and refused."""


def packed(members: Members, form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name.endswith("/"):
                info.type, info.size = tarfile.DIRTYPE, 0
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def as_the_library(content: bytes) -> list[tuple[str, dict[str, bytes]]] | str:
    """What ``webdataset`` itself yields, without the fields it adds; the type of the exception that it raises."""
    source = {"url": "tar", "stream": io.BytesIO(content)}
    try:
        samples = list(tariterators.group_by_keys(tariterators.tar_file_expander([source])))
    except (ValueError, tarfile.TarError) as error:
        return type(error).__name__
    return [(sample.pop("__key__"), sample) for sample in samples if sample.pop("__url__")]


def as_here(content: bytes) -> list[tuple[str, dict[str, bytes]]] | str:
    try:
        return list(webdataset_samples(io.BytesIO(content)))
    except (ValueError, tarfile.TarError) as error:
        return type(error).__name__


LONG = "x" * 150

EXAMPLES: dict[str, Members] = {
    "a document with images": [("k.json", b"{}"), ("k.1.jpg", b"one"), ("k.2.JPG", b"two"), ("l.json", b"")],
    "empty": [],
    "folders": [("a/", b""), ("a/b.c/d.txt", b"1"), ("a/b.c/d.e.txt", b"2"), ("./a.b", b"3")],
    "no suffix, or nothing before it": [("name", b"1"), (".hidden", b"2"), ("a/.x.y", b"3"), ("a.", b"4")],
    "what the library keeps for itself": [("__meta__", b"1"), ("__x__/a.b", b"2"), ("a/__x__.b", b"3"), ("__a.b", b"")],
    "fields of the library": [("a.__key__", b"1")],
    "suffixes that differ in case": [("a.jpg", b"1"), ("a.JPG", b"2")],
    "keys that differ in case": [("a.jpg", b"1"), ("A.jpg", b"2")],
    "a key that comes back": [("a.json", b"1"), ("b.json", b"2"), ("a.json", b"3")],
    "long names and other alphabets": [(f"{LONG}.json", b"1"), (f"{LONG}.größe", b"2"), ("ключ.İ", b"3")],
    "a line break": [("a\nb.json", b"1"), ("a.j\nson", b"2")],
    "more than a block": [("a.json", b"x" * 5000), ("a.bin", b"y" * 512)],
}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_same_samples_as_the_library(example: str, form: int) -> None:
    try:
        content = packed(EXAMPLES[example], form)
    except ValueError:
        assert (example, form) == ("long names and other alphabets", tarfile.USTAR_FORMAT)
        return
    assert as_here(content) == as_the_library(content)


def test_the_same_samples_as_the_library_in_random_tars() -> None:
    draw = random.Random(20261122)
    parts = ["a", "b", "A", ".", ".", "/", "_", "__", "json", "jpg", "é", "1"]
    read = refused = 0
    for _ in range(500):
        count = draw.randint(1, 5)
        names = ["".join(draw.choices(parts, k=draw.randint(1, 6))).lstrip("/") or "x" for _ in range(count)]
        content = packed([(name, draw.randbytes(draw.randint(0, 700))) for name in sorted(names)])
        cut = content[: draw.randint(0, len(content))] if draw.random() < 0.3 else content
        expected = as_the_library(cut)
        assert as_here(cut) == expected, names
        read, refused = read + isinstance(expected, list), refused + isinstance(expected, str)
    assert read >= FOUND_AND_REFUSED[0]
    assert refused >= FOUND_AND_REFUSED[1]


class _Forwards(io.BytesIO):
    def seek(self, position: int, whence: int = 0) -> int:
        assert whence == 0
        assert position >= self.tell()
        return super().seek(position)


def test_the_stream_is_read_forwards() -> None:
    for members in EXAMPLES.values():
        content = packed(members)
        assert as_here(content) == list_or_error(_Forwards(content))


def list_or_error(stream: Any) -> list[tuple[str, dict[str, bytes]]] | str:
    try:
        return list(webdataset_samples(stream))
    except ValueError as error:
        return type(error).__name__


def test_neither_the_library_nor_torch_is_imported() -> None:
    code = (
        "import io, sys\n"
        "from interleaved_assets.pipeline.stages.final_tars import write_tars\n"
        "from interleaved_assets.pipeline.stages.webdataset_samples import webdataset_samples\n"
        "list(webdataset_samples(io.BytesIO(bytes(10240))))\n"
        "print(*sorted({'webdataset', 'torch'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"
