"""How long a device waits for its host, measured with a stand-in for it: a fixed time a batch, all else real.

    python -m benchmarks.clip_stand_in                       # 640 x 480 JPEG, a device half as fast as decoding here
    python -m benchmarks.clip_stand_in --device-rate 300     # images a second
    python -m benchmarks.clip_stand_in --workers 2 --write benchmarks/results/2026-11-22-clip.md

Prints, as Markdown, the share of the time between its first batch and its last in which the device had nothing to do;
what decoding costs with threads and, with --workers, with the worker processes of a torch DataLoader; and from these
the rate of a device that cores can keep busy, with the arithmetic:

    by the cores          cores ÷ CPU seconds an image takes on the host, all threads together
    by the interpreter    1 ÷ seconds of them that hold the interpreter's lock: all but the decoder and the scaling
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import open_clip
import torch
from open_clip.transform import PreprocessCfg
from torch.utils.data import DataLoader

from benchmarks.clip import photo, read, write_shards
from benchmarks.figures import markdown_table, replace_figures
from interleaved_assets.io.rows.processors import processors
from interleaved_assets.scoring.clip.image import Preprocess
from interleaved_assets.scoring.clip.samples import Pixels, Tokens
from interleaved_assets.scoring.clip.scorer import ClipScorer
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.clip.stream import ClipStats, ScoreStream
from interleaved_assets.scoring.clip.text import Tokenizer
from interleaved_assets.scoring.images.decoders import decoders_for_threads

WIDTH = 768
CONFIG = PreprocessCfg(size=224)
TEXT_SHARE = 0.1
"""Time for a batch of texts, of that for a batch of as many images."""
LIMIT = 0.10


class Result:
    """Values that are there at a time."""

    def __init__(self, rows: int, ready: float) -> None:
        self._rows, self._ready = rows, ready

    def result(self) -> np.ndarray:
        """Unit vectors, once the time has come."""
        time.sleep(max(0.0, self._ready - time.perf_counter()))
        values = np.zeros((self._rows, WIDTH), np.float32)
        values[:, 0] = 1
        return values


class StandIn:
    """A device that works off its queue, each batch of images in the same time.

    Attributes:
        waited: seconds for which the queue was empty, from the first batch to the last.
        ready: when it is done with all it was given.
    """

    is_on_cpu = False
    width = WIDTH

    def __init__(self, batch_size: int, seconds: float) -> None:
        self.batch_size, self._seconds = batch_size, seconds
        self.waited, self.ready, self.began = 0.0, 0.0, 0.0

    def pixel_buffer(self) -> Pixels:
        """A buffer in plain memory."""
        return np.empty((self.batch_size, CONFIG.size, CONFIG.size, 3), np.uint8)

    def images(self, pixels: Pixels) -> Result:
        """Put images in the queue."""
        return self._queued(len(pixels), self._seconds / self.batch_size)

    def texts(self, tokens: Sequence[Tokens]) -> Result:
        """Put texts in the queue."""
        return self._queued(len(tokens), self._seconds / self.batch_size * TEXT_SHARE)

    def _queued(self, items: int, seconds: float) -> Result:
        now = time.perf_counter()
        if not self.began:
            self.began = self.ready = now
        self.waited += max(0.0, now - self.ready)
        self.ready = max(now, self.ready) + items * seconds
        return Result(items, self.ready)


def run_stream(paths: list[Path], device: StandIn, preprocess: Preprocess, threads: int) -> int:
    """Score the shards with the device; how many images it was given."""
    tokenizer = Tokenizer(open_clip.SimpleTokenizer(), "truncate")
    scorer = ClipScorer(ClipSettings(threads=threads), device, tokenizer, preprocess)
    stats = ClipStats()
    for _, scores in ScoreStream(scorer, None, stats).run(read(paths)):
        if scores["clip_score"].null_count:
            raise RuntimeError("an image was not scored, so the times mean nothing")
    return stats.embedded


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds and CPU seconds of this process."""
    started, used = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - used


def by_threads(files: list[bytes], preprocess: Preprocess, threads: int) -> None:
    """Decode all into one buffer."""
    pixels = np.empty((len(files), CONFIG.size, CONFIG.size, 3), np.uint8)

    def decode(row: int) -> None:
        pixels[row] = preprocess(files[row])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, range(len(files))))


class Collate:
    """What a worker process makes of the files of a batch: their pixels, and the CPU seconds it took."""

    def __init__(self, preprocess: Preprocess) -> None:
        self._preprocess = preprocess

    def __call__(self, files: list[bytes]) -> tuple[torch.Tensor, float]:
        """Pixels, n x height x width x 3, and CPU seconds."""
        torch.set_num_threads(1)
        used = time.process_time()
        pixels = torch.from_numpy(np.stack([self._preprocess(file) for file in files]))
        return pixels, time.process_time() - used


def by_processes(files: list[bytes], preprocess: Preprocess, workers: int) -> tuple[float, float]:
    """Decode all with the workers of a DataLoader: seconds and CPU seconds, once the workers have started.

    They are spawned: forked ones, with the threads of this process gone in them, did not end.
    """
    loader = DataLoader(
        files,  # type: ignore[arg-type]  # a list does as a Dataset
        batch_size=32,
        num_workers=workers,
        collate_fn=Collate(preprocess),
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    for _ in loader:
        pass
    in_workers: list[float] = []
    seconds, cpu = timed(lambda: in_workers.extend(used for _, used in loader))
    return seconds, cpu + sum(in_workers)


def without_lock(files: list[bytes]) -> None:
    """The two calls that leave the interpreter's lock, alone: decoding, and scaling by torch."""
    height, width = cv2.imdecode(np.frombuffer(files[0], np.uint8), cv2.IMREAD_COLOR).shape[:2]
    size = (CONFIG.size * height // min(height, width), CONFIG.size * width // min(height, width))
    for file in files:
        image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
        values = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
        torch.nn.functional.interpolate(values, size, mode="bicubic", antialias=True)


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1024, help="images in all (default 1024)")
    parser.add_argument("--batch-size", type=int, default=64, help="images at once (default 64)")
    parser.add_argument("--device-rate", type=float, help="images a second of the device (default: half of decoding)")
    parser.add_argument("--threads", type=int, default=processors(), help="decoding threads (default one a processor)")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers to measure too (default none)")
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 16], help="cores to compute for (default 2 16)")
    parser.add_argument("--write", type=Path, help="Markdown page whose tables are to be replaced")
    options = parser.parse_args()
    preprocess = Preprocess(CONFIG, "torch")
    random = np.random.default_rng(0)
    files = [photo(random, 640, 480) for _ in range(64)] * 4
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory(prefix="benchmark-clip-") as folder, decoders_for_threads():
        paths = write_shards(Path(folder), options.images, 4, (640, 480))
        by_threads(files, preprocess, options.threads)
        threads_s, threads_cpu = timed(lambda: by_threads(files, preprocess, options.threads))
        decoding = {f"{options.threads} threads": (threads_s, threads_cpu)}
        if options.workers:
            label = f"{options.workers} DataLoader worker processes"
            decoding[label] = by_processes(files, preprocess, options.workers)
        _, free_cpu = timed(lambda: without_lock(files))
        decoded = len(files) / threads_s
        rate = options.device_rate or decoded / 2
        device = StandIn(options.batch_size, options.batch_size / rate)
        images = 0

        def run() -> None:
            nonlocal images
            images = run_stream(paths, device, preprocess, options.threads)

        _, stream_cpu = timed(run)

    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"640 x 480 JPEG, {len(files[0]) / 1000:.0f} kB, to {CONFIG.size} x {CONFIG.size}, resize = 'torch'; {load}")
    costs = markdown_table(
        ["decoding with", "images/s", "CPU ms an image"],
        [
            [name, f"{len(files) / seconds:.0f}", f"{1000 * cpu / len(files):.2f}"]
            for name, (seconds, cpu) in decoding.items()
        ],
    )
    span = device.ready - device.began
    waiting = markdown_table(
        ["device of", "in batches of", "decoders", "had nothing to do for", "share", "limit"],
        [
            [
                f"{rate:.0f} images/s",
                f"{options.batch_size}",
                f"{options.threads} threads",
                f"{device.waited:.2f} s of {span:.2f} s",
                f"{100 * device.waited / span:.1f} %",
                f"{100 * LIMIT:.0f} %",
            ]
        ],
    )
    an_image, free = stream_cpu / images, free_cpu / len(files)
    held = max(an_image - free, 1e-9)
    host = (
        f"An image costs the host {1000 * an_image:.2f} CPU ms, with texts, tables and reading; {1000 * free:.2f} ms "
        f"of these decode and scale without the interpreter's lock, {1000 * held:.2f} ms hold it at most."
    )
    busy = markdown_table(
        ["cores", "by the cores", "by the interpreter's lock", "keep busy a device of"],
        [
            [
                f"{cores}",
                f"{cores} ÷ {1000 * an_image:.2f} ms = {cores / an_image:.0f} images/s",
                f"1 ÷ {1000 * held:.2f} ms = {1 / held:.0f} images/s",
                f"{min(cores / an_image, 1 / held):.0f} images/s",
            ]
            for cores in options.cores
        ],
    )
    report = "\n\n".join((f"Measured at {load}.", waiting, costs, host, busy))
    print(report)
    if options.write:
        replace_figures(options.write, "stand-in", report)


if __name__ == "__main__":
    main()
