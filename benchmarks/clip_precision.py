"""Which parts of a CLIP model cost how much of a score's accuracy where they compute in bf16, on the CPU.

    python -m benchmarks.clip_precision                                     # the model that the repository ships
    python -m benchmarks.clip_precision --model ViT-B-32 ViT-L-14 --images 8   # random weights
    python -m benchmarks.clip_precision --model scenes ViT-B-32 --write benchmarks/results/2026-11-22-clip.md

Every image is compared with every text; a difference is from open_clip's own scores in fp32. *All* is the whole model
under autocast, as open_clip's documentation has it; *chosen* are the parts that clip.precision = "bf16" computes in it.
Random weights have what open_clip draws for an architecture before it is trained.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from open_clip.transform import PreprocessCfg

from benchmarks.clip import WORDS, photo
from benchmarks.clip_differences import MODELS
from benchmarks.figures import markdown_table, replace_figures
from interleaved_assets.scoring.clip.image import Preprocess
from interleaved_assets.scoring.clip.model import half_image_parts, half_text_parts

_AT_ONCE = 8

Encode = Callable[[torch.Tensor], torch.Tensor]


def load(name: str) -> Any:
    """The shipped model as ``scenes``, or an architecture of open_clip with random weights."""
    torch.manual_seed(0)
    if name == "scenes":
        open_clip.add_model_config(MODELS / "scenes-clip.json")
        checkpoint = str(MODELS / "scenes-clip.safetensors")
        module = open_clip.create_model("scenes-clip", pretrained=checkpoint, weights_only=True)
    else:
        module = open_clip.create_model(name)
    return module.eval().requires_grad_(False)


def inputs(module: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Drawn images, normalized, and tokens of as many texts."""
    random = np.random.default_rng(0)
    config = module.visual.preprocess_cfg
    preprocess = Preprocess(PreprocessCfg(**config), "pillow")
    pixels = np.stack([preprocess(photo(random, 320, 240)) for _ in range(count)])
    values = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
    mean, deviation = (torch.tensor(config[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    texts = ["a drawing of " + " ".join(random.choice(WORDS, 8)) for _ in range(count)]
    return (values - mean) / deviation, open_clip.SimpleTokenizer(context_length=module.context_length)(texts)


@contextmanager
def in_bf16(parts: Iterable[Any]) -> Iterator[None]:
    """Let modules compute under autocast, and give out float32."""
    with ExitStack() as stack:
        for part in parts:
            part.forward = _autocast(part.forward)
            stack.callback(delattr, part, "forward")
        yield


def _autocast(forward: Callable[..., Any]) -> Callable[..., Any]:
    def in_half(*arguments: Any, **keywords: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            result = forward(*arguments, **keywords)
        return tuple(map(_float, result)) if isinstance(result, tuple) else _float(result)

    return in_half


def _float(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) else value


def embeddings(encode: Encode, values: torch.Tensor, parts: Iterable[Any] = ()) -> torch.Tensor:
    """Unit vectors, count x width, float32, with ``parts`` in bf16."""
    with torch.inference_mode(), in_bf16(parts):
        found = torch.cat([encode(batch).float() for batch in values.split(_AT_ONCE)])
    return torch.nn.functional.normalize(found, dim=-1)


def whole(encode: Encode) -> Encode:
    """All of it under autocast."""

    def encode_all(batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return encode(batch)

    return encode_all


def differences(module: Any, count: int) -> Iterator[tuple[str, str, float, float]]:
    """Parts of the image model and of the text model in bf16, and the largest difference of all pairs and of equals."""
    values, tokens = inputs(module, count)
    blocks = module.transformer.resblocks
    images = {
        "none": embeddings(module.encode_image, values),
        "all": embeddings(whole(module.encode_image), values),
        "chosen": embeddings(module.encode_image, values, half_image_parts(module.visual)),
    }
    texts = {
        "none": embeddings(module.encode_text, tokens),
        "all": embeddings(whole(module.encode_text), tokens),
        "attention": embeddings(module.encode_text, tokens, [block.attn for block in blocks]),
        "chosen": embeddings(module.encode_text, tokens, half_text_parts(module)),
    }
    wanted = images["none"] @ texts["none"].T
    pairs = [("all", "none"), ("chosen", "none"), *(("none", name) for name in texts if name != "none")]
    for image, text in (*pairs, ("all", "all"), ("chosen", "chosen")):
        difference = (images[image] @ texts[text].T - wanted).abs()
        yield image, text, float(difference.max()), float(difference.diagonal().max())


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["scenes"], help="scenes, or architectures (default scenes)")
    parser.add_argument("--images", type=int, nargs="+", default=[32], help="images and texts of each (default 32)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--write", type=Path, help="Markdown page whose table is to be replaced")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    counts = options.images * len(options.model) if len(options.images) == 1 else options.images
    found: dict[tuple[str, str], list[str]] = {}
    for name, count in zip(options.model, counts, strict=True):
        for image, text, largest, equal in differences(load(name), count):
            found.setdefault((image, text), []).append(f"{largest:.1e} ({equal:.1e})")
    heads = [f"{name}, {count} images" for name, count in zip(options.model, counts, strict=True)]
    report = markdown_table(
        ["image model in bf16", "text model in bf16", *heads], [[*pair, *row] for pair, row in found.items()]
    )
    print(f"torch {torch.__version__}, open_clip {open_clip.__version__}\n{report}")
    if options.write:
        replace_figures(options.write, "precision", report)


if __name__ == "__main__":
    main()
