"""How fast CLIP scoring is, against the model alone and against one sample at a time.

Times in one run, on the same images and texts, with a model of random weights (speed does not depend on them):

    pipeline    Parquet shards in, score tables out, as the clip_scores asset does it
    model       the model alone, on pixels and tokens that are ready on the device, in the same batches and precision
    decoding    decoding and scaling alone, on all threads: what the host can feed a device at most
    one by one  a loop in the manner of NeMo Curator's filter: sample by sample, in fp32, decoding in between;
                timed on the first shard, and multiplied by the number of shards

    python -m benchmarks.clip                                   # CPU, ViT-B-32, two or three minutes
    python -m benchmarks.clip --device cuda --model ViT-L-14 --images 8192

On a CPU, and on a machine that has other work, the CPU seconds say more than the clock.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
import open_clip
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from open_clip.transform import image_transform_v2
from PIL import Image

from interleaved_assets.scoring.clip.scorer import ClipScorer, load_scorer
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.clip.stream import ClipStats, score_shards

IMAGES_PER_SAMPLE = 4
DISTINCT_IMAGES = 64
WORDS = [
    "red",
    "blue",
    "green",
    "small",
    "large",
    "round",
    "square",
    "tree",
    "house",
    "river",
    "mountain",
    "road",
    "people",
    "light",
    "shadow",
    "morning",
]

TARGETS = {"cpu": {"model": 0.85}, "cuda": {"model": 0.70, "one by one": 10.0}}


def photo(random: np.random.Generator, width: int = 1000, height: int = 800) -> bytes:
    """A JPEG of quality 90, about 170 kB for 1000 x 800 pixels, similar to a photograph of that size."""
    base = Image.fromarray(random.integers(0, 256, (height // 20, width // 20, 3), dtype=np.uint8))
    pixels = np.asarray(base.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    pixels += random.integers(-9, 10, pixels.shape, dtype=np.int16)
    buffer = BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def write_shards(folder: Path, images: int, shards: int, size: tuple[int, int] = (1000, 800)) -> list[Path]:
    """Parquet shards of samples with one text, longer than the model's context, and four images each."""
    random = np.random.default_rng(0)
    photos = [photo(random, *size) for _ in range(min(images, DISTINCT_IMAGES))]
    paths = []
    for shard in range(shards):
        rows = []
        for sample in range(images // IMAGES_PER_SAMPLE // shards):
            name = f"{shard}-{sample}"
            rows.append((name, 0, "text", " ".join(random.choice(WORDS, 120)), None))
            for position in range(1, IMAGES_PER_SAMPLE + 1):
                rows.append((name, position, "image", None, photos[int(random.integers(len(photos)))]))
        names = ("sample_id", "position", "modality", "text_content", "binary_content")
        types = (pa.string(), pa.int32(), pa.string(), pa.string(), pa.large_binary())
        columns = [pa.array(values, dtype) for values, dtype in zip(zip(*rows, strict=True), types, strict=True)]
        paths.append(folder / f"{shard}.parquet")
        group = 16 * (IMAGES_PER_SAMPLE + 1)
        pq.write_table(pa.table(columns, names=names), paths[-1], row_group_size=group, compression="none")
    return paths


def read(paths: list[Path]) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Shards with their row groups, which end between samples."""
    for path in paths:
        file = pq.ParquetFile(path)
        yield path.stem, (file.read_row_group(group) for group in range(file.num_row_groups))


def pipeline(paths: list[Path], scorer: ClipScorer) -> None:
    """From Parquet shards to score tables."""
    stats = ClipStats()
    scored = sum(table["clip_score"].null_count == 0 for _, table in score_shards(read(paths), scorer, stats=stats))
    if scored != len(paths):
        raise RuntimeError("an image was not scored, so the times mean nothing")


def model_alone(scorer: ClipScorer, images: int) -> Callable[[], None]:
    """The model on ready tensors: open_clip's own calls, as many images and texts as the shards have."""
    model, size = scorer.embedder.model, scorer.embedder.batch_size
    pixels = torch.rand(min(size, images), 3, *scorer.preprocess.height_width, device=model.device)
    tokens = torch.randint(1, 40000, (min(size, images), model.tokenizer.context_length), device=model.device)
    tokens[:, -1] = model.tokenizer.eot_token_id

    def run() -> None:
        with torch.inference_mode():
            for start in range(0, images, size):
                model.module.encode_image(pixels[: images - start], normalize=True).cpu()
            for start in range(0, images // IMAGES_PER_SAMPLE, size):
                model.module.encode_text(tokens[: images // IMAGES_PER_SAMPLE - start], normalize=True).cpu()

    return run


def decoding(paths: list[Path], scorer: ClipScorer, threads: int) -> None:
    """Only decoding and scaling."""
    with ThreadPoolExecutor(threads) as pool:
        for _, tables in read(paths):
            for table in tables:
                data = [value.as_buffer() for value in table["binary_content"] if value.is_valid]
                for _ in pool.map(scorer.preprocess, data):
                    pass


def one_by_one(paths: list[Path], scorer: ClipScorer) -> None:
    """Sample by sample in fp32: decode, scale, embed, compare, then the next."""
    model = scorer.embedder.model
    transform = image_transform_v2(model.preprocess_config, is_train=False)
    for _, tables in read(paths):
        for table in tables:
            for name in dict.fromkeys(table["sample_id"].to_pylist()):
                sample = table.filter(pa.compute.equal(table["sample_id"], name)).to_pylist()
                texts = [row["text_content"].strip() for row in sample if row["modality"] == "text"]
                images = []
                for row in sample:
                    if row["modality"] == "image":
                        pixels = cv2.imdecode(np.frombuffer(row["binary_content"], np.uint8), cv2.IMREAD_COLOR)
                        images.append(transform(Image.fromarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))))
                with torch.inference_mode():
                    image = model.module.encode_image(torch.stack(images).to(model.device), normalize=True)
                    text = model.module.encode_text(model.tokenizer(texts).to(model.device), normalize=True)
                    (image @ text.T).max(dim=1).values.cpu()


def best_times(
    contenders: dict[str, Callable[[], None]], rounds: int, shares: dict[str, int]
) -> dict[str, tuple[float, float]]:
    """Seconds and CPU seconds of each: the minimum of several alternating rounds.

    A contender in ``shares`` does that part of the work, and its times are multiplied.
    """
    times: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            started, used = time.perf_counter(), time.process_time()
            run()
            share = shares.get(name, 1)
            seconds, cpu = (time.perf_counter() - started) * share, (time.process_time() - used) * share
            best, best_cpu = times.get(name, (seconds, cpu))
            times[name] = min(best, seconds), min(best_cpu, cpu)
    return times


def report(times: dict[str, tuple[float, float]], images: int, device: str) -> None:
    """A table of images per second, and the speed of the pipeline relative to the others."""
    print(f"{'':<12}{'seconds':>10}{'images/s':>10}{'CPU s':>10}{'pipeline is':>14}{'by CPU s':>10}{'target':>10}")
    ours, our_cpu = times["pipeline"]
    for name, (seconds, cpu) in times.items():
        target = TARGETS[device].get(name)
        wanted = "" if target is None else f">= {target:g}x"
        print(
            f"{name:<12}{seconds:>10.2f}{images / seconds:>10.1f}{cpu:>10.2f}"
            f"{seconds / ours:>13.2f}x{cpu / our_cpu:>9.2f}x{wanted:>10}"
        )


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="ViT-B-32", help="open_clip model (default ViT-B-32)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="default cpu")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16", "fp16"), help="default auto")
    parser.add_argument("--images", type=int, default=256, help="images in all shards (default 256)")
    parser.add_argument("--shards", type=int, default=4, help="shards they are in (default 4)")
    parser.add_argument("--batch-size", type=int, help="images at once (default 32 on a CPU, 256 on a GPU)")
    parser.add_argument("--threads", type=int, help="decoding threads (default one per core)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds, of which the best counts (default 2)")
    options = parser.parse_args()
    images = options.images - options.images % (IMAGES_PER_SAMPLE * options.shards)

    with tempfile.TemporaryDirectory(prefix="benchmark-clip-") as folder:
        paths = write_shards(Path(folder), images, options.shards)
        torch.manual_seed(0)
        checkpoint = Path(folder, "random.pt")
        torch.save(open_clip.create_model(options.model).state_dict(), checkpoint)
        settings = ClipSettings(
            enabled=True,
            model=options.model,
            pretrained=str(checkpoint),
            device=options.device,
            precision=options.precision,
            batch_size=options.batch_size,
            threads=options.threads,
        )
        scorer = load_scorer(settings)
        contenders = {
            "pipeline": lambda: pipeline(paths, scorer),
            "model": model_alone(scorer, images),
            "decoding": lambda: decoding(paths, scorer, options.threads or torch.get_num_threads()),
            "one by one": lambda: one_by_one(paths[:1], scorer),
        }
        model_alone(scorer, scorer.embedder.batch_size)()  # kernels are chosen and memory is taken at the first call
        times = best_times(contenders, options.rounds, {"one by one": options.shards})
    facts = scorer.facts()
    print(f"{options.model}, {facts['precision']}, on {facts['device']}, torch {torch.__version__}")
    print(
        f"{images} JPEG of 1000 x 800 in {options.shards} shards, "
        f"{images // IMAGES_PER_SAMPLE} texts that fill the context"
    )
    report(times, images, options.device)
    print(f"load average of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
