"""A tiny CLIP model with random weights, and its embeddings computed with open_clip."""

import json
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import open_clip
import pyarrow as pa
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from interleaved_assets.scoring.clip.settings import ClipSettings

# at this size threads cost more than they gain, most of all on a busy machine
torch.set_num_threads(1)

# each model has a tokenizer, which takes longer to read its vocabulary than a tiny model to be made
open_clip.factory.SimpleTokenizer = lru_cache(open_clip.SimpleTokenizer)

WIDTH, SIDE, CONTEXT = 24, 32, 16
CONFIG = {
    "embed_dim": WIDTH,
    "quick_gelu": True,
    "vision_cfg": {"image_size": SIDE, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": CONTEXT, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def tiny_module(seed: int = 0) -> open_clip.CLIP:
    """A model with weights far enough from their initial values that images and texts differ."""
    torch.manual_seed(seed)
    module = open_clip.CLIP(**CONFIG)
    with torch.no_grad():
        for name, weights in module.named_parameters():
            if weights.ndim > 1:
                weights.normal_(0, 0.5 if "embedding" in name else 0.25)
    return module.eval()


def write_tiny(folder: Path, seed: int = 0) -> ClipSettings:
    """Configuration and checkpoint in ``folder``, and settings that name them."""
    config, checkpoint = folder / "tiny.json", folder / "tiny.pt"
    config.write_text(json.dumps(CONFIG))
    torch.save(tiny_module(seed).state_dict(), checkpoint)
    return ClipSettings(
        enabled=True, model="tiny", pretrained=str(checkpoint), model_config_path=str(config), device="cpu", threads=2
    )


def plain_scores(module: open_clip.CLIP, image: bytes, texts: list[str]) -> list[float]:
    """Cosine similarities of one image to texts, one at a time, in fp32, as open_clip's documentation computes them."""
    transform = image_transform_v2(PreprocessCfg(size=SIDE), is_train=False)
    tokenizer = _tokenizer()
    with torch.inference_mode():
        embedding = module.encode_image(transform(Image.open(BytesIO(image)))[None], normalize=True)
        return [float((embedding @ module.encode_text(tokenizer([text]), normalize=True).T)[0, 0]) for text in texts]


@lru_cache
def _tokenizer() -> open_clip.SimpleTokenizer:
    return open_clip.SimpleTokenizer(context_length=CONTEXT)


def picture(seed: int, width: int = 90, height: int = 60, image_format: str = "JPEG", mode: str = "RGB") -> bytes:
    """A random picture with something to see at every scale."""
    random = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for cells in (2, 5, 16):
        coarse = Image.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        pixels += np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR)) / 3
    buffer = BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(buffer, image_format)
    return buffer.getvalue()


def rows(*items: tuple[str, int, str, str | bytes | None]) -> pa.Table:
    """A table of (sample id, position, modality, content)."""
    return pa.table(
        {
            "sample_id": pa.array([item[0] for item in items], pa.string()),
            "position": pa.array([item[1] for item in items], pa.int32()),
            "modality": pa.array([item[2] for item in items], pa.string()),
            "text_content": pa.array([item[3] if item[2] == "text" else None for item in items], pa.string()),
            "binary_content": pa.array([item[3] if item[2] == "image" else None for item in items], pa.large_binary()),
            "materialize_error": pa.nulls(len(items), pa.string()),
        }
    )
