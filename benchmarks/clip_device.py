"""Measure how fast a device runs the two models of CLIP alone, and how far their values are from fp32.

    python -m benchmarks.clip_device --device cuda --model ViT-L-14-quickgelu --batch-size 256
    python -m benchmarks.clip_device --model scenes --batch-size 16      # the repository's model, on the CPU

Every image of a batch is compared with every text of it. Texts fill the context, or have ten words. A difference is the
largest of a cosine from fp32, which the device computes without TF32. Architectures have random weights.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import open_clip
import torch

from benchmarks.clip import WORDS
from benchmarks.clip_precision import inputs, load
from benchmarks.figures import markdown_table
from interleaved_assets.scoring.clip.model import HALF_DTYPES, compute_in_half

ROUNDS = 6


def rate(run: Callable[[], torch.Tensor]) -> float:
    """Items a second, after one call that does not count; the last value is brought to the host."""
    items = len(run().cpu())
    started = time.perf_counter()
    for _ in range(ROUNDS):
        last = run()
    last.cpu()
    return ROUNDS * items / (time.perf_counter() - started)


def vectors(module: Any, batches: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Embeddings of a batch of images, of long texts and of short texts."""
    encoders = (module.encode_image, module.encode_text, module.encode_text)
    return [encode(batch, normalize=True).float() for encode, batch in zip(encoders, batches, strict=True)]


def row(precision: str, module: Any, batches: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> list[str]:
    """Rates of images and long texts, and differences of images, long and short texts."""
    images, *texts = vectors(module, batches)
    differences = [
        (images - exact[0]) @ exact[1].T,
        *(exact[0] @ (text - exact_text).T for text, exact_text in zip(texts, exact[1:], strict=True)),
    ]
    rates = (rate(lambda: module.encode_image(batches[0])), rate(lambda: module.encode_text(batches[1])))
    return [precision, *(f"{value:,.0f}" for value in rates), *(f"{values.abs().max():.1e}" for values in differences)]


def measured(model: str, device: str, batch_size: int) -> list[list[str]]:
    """A row for each precision."""
    module = load(model).to(device)
    images, short = inputs(module, batch_size)
    random = np.random.default_rng(2)
    tokenizer = open_clip.SimpleTokenizer(context_length=module.context_length)
    long = tokenizer([" ".join(random.choice(WORDS, 120)) for _ in range(batch_size)])
    batches = [values.to(device) for values in (images, long, short)]
    with torch.inference_mode():
        exact = vectors(module, batches)
        rows = [row("fp32", module, batches, exact)]
        for precision, dtype in HALF_DTYPES.items():
            module = load(model).to(device)
            compute_in_half(module, device, dtype)
            rows.append(row(precision, module, batches, exact))
    return rows


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scenes", help="architecture of open_clip, or scenes (default)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="default cpu")
    parser.add_argument("--batch-size", type=int, default=16, help="images, and texts, at once (default 16)")
    options = parser.parse_args()
    print(f"{options.model} on {options.device}, batches of {options.batch_size}, torch {torch.__version__}\n")
    header = ["precision", "images/s", "texts/s", "images differ by", "long texts", "short texts"]
    print(markdown_table(header, measured(options.model, options.device, options.batch_size)))


if __name__ == "__main__":
    main()
