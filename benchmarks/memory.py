"""Peak memory of converting one big shard: it must depend on ``max_batch_bytes``, not on the size of the shard.

    python -m benchmarks.memory --work build/bench

Each measurement is a process of its own. ``anonymous`` is memory that belongs to the process (``RssAnon``); ``mapped``
is pages of files it has mapped (``RssFile``): a mapped shard counts there, and the kernel takes its pages back at will.
Both are peaks above what the process had after its imports. The big shards are deleted afterwards.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyarrow as pa

from benchmarks.dataset import DatasetSize, draw_canvases, write_shard

MIB = 2**20
SAMPLES = {"256 MB": 330, "1 GB": 1320}
BATCHES = (32 * MIB, 256 * MIB)
DIRECTIONS = ("tar-parquet", "parquet-tar")
SAMPLE_EVERY_S = 0.002


class PeakMemory:
    """Watches this process from a thread, as a context manager; peaks in bytes above the start."""

    FIELDS = ("RssAnon", "RssFile")

    def __init__(self) -> None:
        self.peak = dict.fromkeys(self.FIELDS, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "PeakMemory":
        self._start = self.now()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def now(self) -> dict[str, int]:
        """Present memory of this process in bytes, as counted by the kernel."""
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        return {line[0][:-1]: int(line[1]) * 1024 for line in lines if line[0][:-1] in self.FIELDS}

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_EVERY_S):
            for name, value in self.now().items():
                self.peak[name] = max(self.peak[name], value - self._start[name])


def convert(direction: str, source: Path, output: Path, max_batch_bytes: int) -> None:
    """Convert one shard with the public readers and writers."""
    from interleaved_assets.io.parquet.reader import InterleavedParquetReader
    from interleaved_assets.io.parquet.writer import InterleavedParquetWriter
    from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
    from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter

    to_parquet = direction == "tar-parquet"
    reader = (
        InterleavedWebdatasetReader(str(source), materialize_on_read=True, max_batch_bytes=max_batch_bytes)
        if to_parquet
        else InterleavedParquetReader(str(source), max_batch_bytes=max_batch_bytes)
    )
    writer = (InterleavedParquetWriter if to_parquet else InterleavedWebdatasetWriter)(str(output))
    for batch in reader:
        writer.write(batch)


def child(direction: str, source: Path, output: Path, max_batch_bytes: int) -> None:
    """Measure one conversion in this process and print the peaks."""

    with PeakMemory() as memory:
        convert(direction, source, output, max_batch_bytes)
    print(json.dumps({**memory.peak, "arrow": pa.default_memory_pool().max_memory()}))


def measure(direction: str, source: Path, max_batch_bytes: int) -> dict[str, int]:
    """The peaks of one conversion in a process of its own."""
    with tempfile.TemporaryDirectory(dir=source.parent) as output:
        command = [
            sys.executable,
            "-m",
            "benchmarks.memory",
            "--child",
            direction,
            str(source),
            output,
            str(max_batch_bytes),
        ]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent)
    return json.loads(answer.stdout)


def main() -> None:
    """Make the shards, measure, print a table, delete the shards."""
    if "--child" in sys.argv:
        direction, source, output, limit = sys.argv[sys.argv.index("--child") + 1 :]
        child(direction, Path(source), Path(output), int(limit))
        return
    parser = argparse.ArgumentParser(description="Peak memory of reading and writing one big shard.")
    parser.add_argument("--work", type=Path, required=True, help="folder for the shards, 4 GB")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    canvases = draw_canvases(DatasetSize.seed)
    print("| direction | shard | max_batch_bytes | anonymous | mapped | Arrow's pool |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        for name, samples in SAMPLES.items():
            tar = Path(folder) / name.replace(" ", "") / "shard.tar"
            write_shard(tar, 0, canvases, DatasetSize(), "raw", samples)
            parquets = tar.parent / "parquet"
            convert("tar-parquet", tar, parquets, 2**40)
            for direction in DIRECTIONS:
                for limit in BATCHES:
                    peaks = measure(direction, tar if direction == "tar-parquet" else next(parquets.iterdir()), limit)
                    sizes = [f"{peaks[field] / MIB:.0f} MiB" for field in ("RssAnon", "RssFile", "arrow")]
                    print(
                        f"| {direction.replace('-', ' → ')} | {name} | {limit // MIB} MiB | {' | '.join(sizes)} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
