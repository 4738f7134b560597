"""Peak memory and temporary disk of hostile inputs: they must follow the limits and not what the input says.

    python -m benchmarks.memory_limits

Small files that unpack, repeat or claim to be large. Each is read in a process of its own: ``memory`` is the peak of
what belongs to the process (``RssAnon``) above what it had after its imports, ``disk`` that of its temporary files.
"""

import argparse
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from benchmarks.memory import PeakMemory
from interleaved_assets.io import materialize, read_parquet_shard, read_tar_shard
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.model import InterleavedError, build_source_ref, error_code
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.scoring import ScoringSettings, score_images

MIB: Final = 2**20
_SAMPLE_EVERY_S: Final = 0.002


def member(name: str, content: bytes) -> bytes:
    """A tar member with its header."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def noise(size: int) -> bytes:
    """Bytes that do not compress, the same each time."""
    return np.random.default_rng(0).bytes(size)


def image_named_often(path: Path) -> None:
    """An image of 1 MB that a document names 3,000 times."""
    body = json.dumps({"texts": [None] * 3000, "images": ["a.png"] * 3000}).encode()
    path.write_bytes(member("a.json", body) + member("a.png", noise(10**6)) + bytes(1024))


def shared_dictionary(path: Path) -> None:
    """4,000 rows that share an image of 500 kB, dictionary-encoded."""
    image = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array([noise(500_000)]))
    columns = {"sample_id": [f"s{at}" for at in range(4000)], "position": pa.array([0] * 4000, pa.int32())}
    pq.write_table(pa.table({**columns, "modality": ["image"] * 4000, "binary_content": image}), path)


def packed_json(path: Path) -> None:
    """36 MB of JSON that gzip packs into 35 kB."""
    body = b'{"texts":[' + b"[]," * 12_000_000 + b"null]}"
    path.write_bytes(gzip.compress(member("a.json", body) + bytes(1024), 9, mtime=0))


def shared_strip(path: Path) -> None:
    """A TIFF with 600 directories of one strip of 4 MB."""
    side = 2000
    out = bytearray(struct.pack("<2sHI", b"II", 42, 0)) + noise(side * side)
    link = 4
    for _ in range(600):
        struct.pack_into("<I", out, link, len(out))
        size = side * side
        tags = {256: side, 257: side, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: side, 279: size}
        out += struct.pack("<H", len(tags))
        out += b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
        link = len(out)
        out += bytes(4)
    tokens = [f"page_0_image_{at}" for at in range(600)]
    body = json.dumps({"texts": [None] * 600, "images": tokens}).encode()
    path.write_bytes(member("a.json", body) + member("a.tiff", bytes(out)) + bytes(1024))


def unreferenced_members(path: Path) -> None:
    """A sample with five members of 30 MB that its document does not name."""
    members = [member(f"a.{at}.bin", noise(30_000_000)) for at in range(5)]
    path.write_bytes(member("a.json", b'{"texts": ["x"]}') + b"".join(members) + bytes(1024))


def null_columns(path: Path) -> None:
    """200,000 rows of 1,000 columns of strings that are all null."""
    rows = 200_000
    columns = {"sample_id": [f"s{at}" for at in range(rows)], "position": pa.array([-1] * rows, pa.int32())}
    nulls = dict.fromkeys((f"k{at}" for at in range(1000)), pa.nulls(rows, pa.string()))
    pq.write_table(pa.table({**columns, "modality": ["metadata"] * rows, **nulls}), path, row_group_size=rows)


def _write_packed(path: Path, head: bytes, size: int) -> None:
    # gzip's members follow each other, so that one is compressed and written many times
    step = 64 * MIB
    piece = gzip.compress(bytes(step), 9, mtime=0)
    with path.open("wb") as file:
        file.write(gzip.compress(head, mtime=0))
        for _ in range(size // step):
            file.write(piece)


def packed_pax_header(path: Path) -> None:
    """A pax header of 6 GB in a .tar.gz."""
    info = tarfile.TarInfo("PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 6 * 2**30
    _write_packed(path, info.tobuf(tarfile.USTAR_FORMAT), info.size)


def packed_member(path: Path) -> None:
    """A member of 3.2 GB in a .tar.gz of 3 MB."""
    info = tarfile.TarInfo("a.png")
    info.size = 50 * 64 * MIB
    _write_packed(path, info.tobuf(tarfile.USTAR_FORMAT), info.size)


def png_in_icon(path: Path) -> None:
    """An ICO whose PNG has 12,000 x 12,000 pixels, and whose own header says 16 x 16."""
    png = io.BytesIO()
    Image.new("RGB", (12_000, 12_000)).save(png, "PNG")
    content = png.getvalue()
    path.write_bytes(struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(content), 22) + content)


def read_tar(path: Path, max_batch_bytes: int | None = None, **limits: int) -> Iterator[pa.Table]:
    """The tar's rows with their bytes."""
    yield from read_tar_shard(str(path), materialize=True, max_batch_bytes=max_batch_bytes, limits=TarLimits(**limits))


def read_parquet(path: Path, **limits: int) -> Iterator[pa.Table]:
    """The file's rows."""
    yield from read_parquet_shard(str(path), **limits)


def fetch_member(path: Path, **limits: int) -> Iterator[pa.Table]:
    """One row whose ``source_ref`` names a member of the tar."""
    row: dict[str, Any] = {"sample_id": "s", "position": 0, "modality": "image"}
    row["source_ref"] = build_source_ref(path=str(path), member="a.png")
    columns = {field.name: pa.array([row.get(field.name)], field.type) for field in INTERLEAVED_SCHEMA}
    yield materialize(pa.table(columns), allowed_roots=[str(path.parent)], limits=TarLimits(**limits))


def score(path: Path, **limits: int) -> Iterator[pa.Table]:
    """The scores of one image."""
    columns = {"sample_id": ["s"], "position": pa.array([0], pa.int32()), "modality": ["image"]}
    rows = pa.table({**columns, "binary_content": pa.array([path.read_bytes()], pa.large_binary())})
    yield score_images(rows, ScoringSettings(**limits), threads=1)


class Hostile(NamedTuple):
    """An input, how it is read, and what was measured when it was found."""

    write: Callable[[Path], None]
    read: Callable[..., Iterator[pa.Table]]
    limits: dict[str, int]
    before: str
    """As it was found, before sizes were counted by what rows take."""
    suffix: str = ".tar"


INPUTS: Final = (
    Hostile(image_named_often, read_tar, {"max_batch_bytes": 32 * MIB}, "3.3 GB"),
    Hostile(image_named_often, read_tar, {"max_batch_bytes": 32 * MIB, "max_sample_bytes": 64 * MIB}, "3.3 GB"),
    Hostile(shared_dictionary, read_parquet, {"max_batch_bytes": 64 * MIB}, "3.9 GB", ".parquet"),
    Hostile(packed_json, read_tar, {"max_batch_bytes": 64 * MIB}, "1.1 GB", ".tar.gz"),
    Hostile(shared_strip, read_tar, {"max_batch_bytes": 64 * MIB}, "2.7 GB"),
    Hostile(shared_strip, read_tar, {"max_batch_bytes": 64 * MIB, "max_sample_bytes": 64 * MIB}, "2.7 GB"),
    Hostile(unreferenced_members, read_tar, {"max_batch_bytes": 64 * MIB}, "0.55 GB"),
    Hostile(null_columns, read_parquet, {"max_batch_bytes": 64 * MIB}, "1.4 GB", ".parquet"),
    Hostile(packed_pax_header, fetch_member, {"max_unpacked_bytes": 256 * MIB}, "MemoryError", ".tar.gz"),
    Hostile(packed_member, read_tar, {"max_unpacked_bytes": 256 * MIB}, "3.2 GB of disk", ".tar.gz"),
    Hostile(png_in_icon, score, {"max_pixels": 10**6}, "decoded", ".ico"),
)


class PeakDisk:
    """Watches the temporary files of this process, deleted ones too; the peak of their blocks, in bytes."""

    def __init__(self, folder: str) -> None:
        self.peak = 0
        self._folder = folder
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_EVERY_S):
            total = 0
            for link in Path("/proc/self/fd").iterdir():
                try:
                    if str(link.readlink()).startswith(self._folder):
                        total += link.stat().st_blocks * 512
                except FileNotFoundError:
                    continue
            self.peak = max(self.peak, total)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch during the block."""
        self._thread.start()
        try:
            yield
        finally:
            self._done.set()
            self._thread.join()


def child(index: int, path: Path) -> None:
    """Read one input in this process and print peaks and outcome as JSON."""
    hostile = INPUTS[index]
    codes: dict[str, int] = {}
    rows = 0
    disk = PeakDisk(tempfile.gettempdir())
    with PeakMemory() as memory, disk.watching():
        try:
            for table in hostile.read(path, **hostile.limits):
                rows += table.num_rows
                name = "score_error" if "score_error" in table.column_names else "materialize_error"
                errors = table[name].to_pylist() if name in table.column_names else []
                for error in filter(None, errors):
                    codes[error_code(error)] = codes.get(error_code(error), 0) + 1
            outcome = f"{rows} rows" + "".join(f", {count} `{code}`" for code, count in sorted(codes.items()))
        except InterleavedError as error:
            outcome = f"`{type(error).__name__}`"
    print(json.dumps({"memory": memory.peak["RssAnon"], "disk": disk.peak, "outcome": outcome}))


def main() -> None:
    """Write and read each input; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=2, metavar=("INDEX", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(int(options.child[0]), Path(options.child[1]))
        return
    print("| input | file | limits | as found | memory | disk | outcome |\n|---|---|---|---|---|---|---|")
    for index, hostile in enumerate(INPUTS):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temporary:
            path = Path(folder) / f"hostile{hostile.suffix}"
            hostile.write(path)
            command = [sys.executable, "-m", "benchmarks.memory_limits", "--child", str(index), str(path)]
            environment = {**os.environ, "TMPDIR": temporary}
            root = Path(__file__).parent.parent
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=root, env=environment)
            found = json.loads(answer.stdout)
            limits = ", ".join(f"`{name}` {_size(name, value)}" for name, value in hostile.limits.items())
            what = (hostile.write.__doc__ or "").rstrip(".")
            memory, disk = (f"{found[name] / MIB:.0f} MiB" for name in ("memory", "disk"))
            size = f"{path.stat().st_size / 1e6:.2f} MB"
            print(
                f"| {what} | {size} | {limits} | {hostile.before} | {memory} | {disk} | {found['outcome']} |",
                flush=True,
            )


def _size(name: str, value: int) -> str:
    return f"{value // MIB} MiB" if name.endswith("bytes") else f"{value:,}"


if __name__ == "__main__":
    main()
