"""Peak memory of small tars that name much: each is read in a child, at batches of 32 MiB.

python -m benchmarks.memory_limits
"""

import gzip
import io
import json
import resource
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from interleaved_assets.io import InterleavedParquetWriter, InterleavedWebdatasetReader

BATCH_BYTES = 32 * 2**20
IMAGE = b"\xff\xd8\xff" + bytes(2**20 - 3)


def shared_strip(frames: int = 600, strip: int = 4 * 2**20) -> bytes:
    """A TIFF whose directories all name one strip."""
    data = bytearray(b"II*\0" + struct.pack("<I", 8 + strip) + bytes(strip))
    tags = {256: 1024, 257: 1366, 258: 8, 259: 1, 262: 2, 273: 8, 277: 3, 278: 1366, 279: strip}
    for frame in range(frames):
        at = len(data)
        data += struct.pack("<H", len(tags))
        for tag, value in tags.items():
            data += struct.pack("<HHII", tag, 4, 1, value)
        data += struct.pack("<I", 0 if frame == frames - 1 else at + 2 + 12 * len(tags) + 4)
    return bytes(data)


def one_image(samples: int) -> dict[str, bytes]:
    """An image of 1 MB that 3,000 rows name."""
    each = 3000 // samples
    body = json.dumps({"texts": [None] * each, "images": ["i.jpg"] * each}).encode()
    return {f"{number}.json": body for number in range(samples)} | {"i.jpg": IMAGE}


def frames() -> dict[str, bytes]:
    """A TIFF of 600 frames that share 4 MB."""
    body = {"texts": [None] * 600, "images": [f"page_{number}_image_0" for number in range(600)]}
    return {"a.json": json.dumps(body).encode(), "a.tiff": shared_strip()}


CASES: dict[str, Callable[[], dict[str, bytes]]] = {
    "1 MB image named 3,000 times by one sample": lambda: one_image(1),
    "1 MB image named 3,000 times by 1,000 samples": lambda: one_image(1000),
    "36 MB of JSON in 35 kB of gzip": lambda: {"a.json": b'{"a":[' + b"[]," * 12_000_000 + b"1]}"},
    "600 frames that share 4 MB": frames,
}
MODES = ("read", "read lazily, then written")


def measure(uri: str, mode: str) -> str:
    """Read the tar at ``uri``; gives MB of peak RSS beyond what imports take, MB of Arrow's pool, and what came out."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = errors = 0
    with tempfile.TemporaryDirectory() as out:
        reader = InterleavedWebdatasetReader(uri, max_batch_bytes=BATCH_BYTES, materialize_on_read=mode == MODES[0])
        writer = InterleavedParquetWriter(out, materialize_on_write=True, on_materialize_error="warn", mode="append")
        for batch in reader:
            table = batch.to_pyarrow()
            rows, errors = rows + table.num_rows, errors + len(table["materialize_error"].drop_null())
            del table
            if mode == MODES[1]:
                writer.write(batch)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    pool = pa.default_memory_pool().max_memory()
    return f"{peak / 1024:.0f} | {(pool or 0) / 2**20:.0f} | {rows} | {errors}"


def main() -> None:
    """Print a table."""
    print(f"batches of {BATCH_BYTES // 2**20} MiB | file, kB | mode | peak RSS, MiB | Arrow, MiB | rows | with errors")
    for name, members in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "a.tar.gz"
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as tar:
                for member, content in members().items():
                    info = tarfile.TarInfo(member)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
            file.write_bytes(gzip.compress(packed.getvalue(), 9 if "JSON" in name else 1))
            if "JSON" not in name:
                file = file.with_name("a.tar")
                file.write_bytes(packed.getvalue())
            for mode in MODES:
                command = [sys.executable, "-m", "benchmarks.memory_limits", str(file), mode]
                found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
                print(f"{name} | {file.stat().st_size // 1000} | {mode} | {found}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(measure(*sys.argv[1:]))
    else:
        main()
