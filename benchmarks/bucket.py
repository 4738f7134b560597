"""Reading and writing shards in a bucket, beside plain copies by s3fs of the same bytes, in turn in one run.

    python -m benchmarks.bucket --work build/bucket --mib 256

An S3 server runs on loopback, and ends with the script; what lies in the folder is deleted.
"""

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa

from benchmarks.scale_s3 import takes_files
from benchmarks.scale_services import START_SECONDS, environment, s3_server, wait_for
from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.tar.reader import read_tar_shard
from interleaved_assets.io.tar.writer import tar_shard
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

IMAGE_BYTES = 256 * 2**10
ROWS_IN_SAMPLE = 4
BUCKET = "scale"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder to work in; must not exist")
    parser.add_argument("--mib", type=int, default=256, help="size of a shard (default 256)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each, in turn (default 5)")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True)
    try:
        with s3_server(arguments.work / "s3") as variables, environment(variables):
            fs = fsspec.filesystem("s3")
            wait_for(lambda: takes_files(fs), START_SECONDS, "the start of the S3 server")
            measure(arguments.work, arguments.mib, arguments.rounds)
    finally:
        shutil.rmtree(arguments.work)


def measure(work: Path, mib: int, rounds: int) -> None:
    """Print a row of Markdown for each direction and format: MB/s, of the plain copy too, and the ratio."""
    fs = fsspec.filesystem("s3")
    rows = images(mib)
    parquet, tar, local = f"s3://{BUCKET}/a.parquet", f"s3://{BUCKET}/a.tar", work / "copy"

    def write_parquet() -> None:
        with parquet_shard(parquet, rows.schema) as out:
            out.write(rows)

    def write_tar() -> None:
        with tar_shard(tar) as out:
            out.write(rows)

    def read_parquet() -> None:
        for _ in read_parquet_shard(parquet, max_batch_bytes=64 * 2**20):
            pass

    def read_tar() -> None:
        for _ in read_tar_shard(tar, materialize=True, max_batch_bytes=64 * 2**20, allowed_roots=[f"s3://{BUCKET}"]):
            pass

    print("| | MB/s | s3fs copy, MB/s | ratio |\n|---|---|---|---|")
    works: dict[str, tuple[str, Callable[[], None], Callable[[], None]]] = {
        "write Parquet": (parquet, write_parquet, lambda: fs.put_file(str(local), f"{BUCKET}/copy")),
        "read Parquet": (parquet, read_parquet, lambda: fs.get_file(parquet, str(local))),
        "write tar": (tar, write_tar, lambda: fs.put_file(str(local), f"{BUCKET}/copy")),
        "read tar, with the images": (tar, read_tar, lambda: fs.get_file(tar, str(local))),
    }
    for what, (uri, own, plain) in works.items():
        own()
        fs.get_file(uri, str(local))  # what the plain copy writes
        size = local.stat().st_size / 1e6
        pairs = [(seconds(own), seconds(plain)) for _ in range(rounds)]
        ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(copied / made for made, copied in pairs)
        print(f"| {what} | {size / ours:.0f} | {size / theirs:.0f} | {ratio:.2f} |", flush=True)


def seconds(work: Callable[[], None]) -> float:
    """Duration of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def images(mib: int) -> pa.Table:
    """Rows of images of random bytes, four to a sample."""
    count = mib * 2**20 // IMAGE_BYTES
    random = np.random.default_rng(20261122)
    columns = {
        "sample_id": [f"doc-{row // ROWS_IN_SAMPLE:06}" for row in range(count)],
        "position": [row % ROWS_IN_SAMPLE for row in range(count)],
        "modality": ["image"] * count,
        "content_type": ["image/jpeg"] * count,
        "binary_content": [random.bytes(IMAGE_BYTES) for _ in range(count)],
    }
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in INTERLEAVED_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=INTERLEAVED_SCHEMA)


if __name__ == "__main__":
    main()
