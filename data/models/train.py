"""Train ``scenes-clip``, the CLIP model of the demo and the tests, on drawn scenes with captions.

    python data/models/train.py                       # writes scenes-clip.safetensors beside this file
    python data/models/train.py --drawn scenes.npz    # keeps the drawn scenes, or takes them from there

Seeded throughout. README.md beside this file says how long it took, on what, and how good the model is. Needs the
packages of the ``clip`` extra (torch, open_clip).
"""

import argparse
import copy
import io
import json
import math
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody knows it by
from evaluate import evaluate
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from open_clip.transform import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from PIL import Image
from safetensors.torch import save_file

from interleaved_assets.demo.backdrops import LANDSCAPES, PAPERS
from interleaved_assets.demo.prose import heading, paragraph, pick_topic
from interleaved_assets.demo.scenes import COLOURS, PLACES, RELATIONS, Composition, blur, draw_scene
from interleaved_assets.demo.shapes import SHAPES
from interleaved_assets.scoring.clip.model import DEMO_MARKER

HERE: Final = Path(__file__).parent
CONFIG: Final = HERE / "scenes-clip.json"
CHECKPOINT: Final = HERE / "scenes-clip.safetensors"

SEED: Final = 1  # scene i of the training is drawn from [SEED, i]; no test uses this seed
THRESHOLD: Final = 0.15  # the cosine that parts matching captions from others: the default of `min_clip`
STEEPNESS: Final = 24.0  # of the calibration loss around the threshold
NEGATIVES: Final = 4.0  # weight of the pairs that do not match: a swapped caption gets several tries in a document
SIZES: Final = ((320, 240), (400, 300), (480, 360), (600, 450), (800, 600), (640, 360), (900, 260), (256, 256))
OPPOSITE: Final = {
    "above": "below",
    "below": "above",
    "to the left of": "to the right of",
    "to the right of": "to the left of",
}
WHERE: Final = (*PLACES, "above", "to the left of")
BACKDROPS: Final = (*PAPERS, *LANDSCAPES)
LABEL_SIZES: Final = (len(SHAPES), len(COLOURS), 5, len(SHAPES) + 1, len(COLOURS) + 1, 5, len(WHERE), 3, len(BACKDROPS))
"""Number of values of each attribute in the order of :func:`labels_of`."""


@dataclass(frozen=True)
class Examples:
    """Drawn scenes ready for training.

    Attributes:
        images: uint8 RGB of shape (n, 3, size, size), resized and cropped as open_clip does.
        captions: (n, 2); the scene's caption, and the same said from the second group's side where there is one.
        labels: int64 of shape (n, attributes), see :func:`labels_of`. Equal rows: the captions fit both scenes.
    """

    images: np.ndarray
    captions: np.ndarray
    labels: np.ndarray


def labels_of(composition: Composition) -> list[int]:
    """Each attribute as a number, the upper or left group first, so that two ways to say it give one row."""
    groups, place = composition.groups, composition.place
    if place in RELATIONS and place not in WHERE:
        groups, place = groups[::-1], OPPOSITE[place]
    colours = list(COLOURS)
    first = groups[0]
    row = [SHAPES.index(first.shape), colours.index(first.colour), first.count]
    if len(groups) == 2:
        row += [SHAPES.index(groups[1].shape), colours.index(groups[1].colour), groups[1].count]
    else:
        row += [len(SHAPES), len(colours), 0]
    return [*row, WHERE.index(place), ("", "small", "large").index(first.size), BACKDROPS.index(composition.backdrop)]


def draw_examples(count: int, image_size: int, processes: int) -> Examples:
    """Draw ``count`` scenes in ``processes`` processes; the outcome does not depend on how many."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        drawn = pool.starmap(_draw_example, ((index, image_size) for index in range(count)), chunksize=64)
    images, captions, labels = zip(*drawn, strict=True)
    return Examples(np.stack(images), np.array(captions), np.array(labels, np.int64))


def _draw_example(index: int, image_size: int) -> tuple[np.ndarray, tuple[str, str], list[int]]:
    rng = np.random.default_rng([SEED, index])
    width, height = SIZES[int(rng.integers(len(SIZES)))]
    if rng.integers(3) == 0:
        width, height = height, width
    scene = draw_scene(rng, width, height)
    composition = scene.composition
    other = composition
    if len(composition.groups) == 2:
        other = Composition(composition.groups[::-1], OPPOSITE[composition.place], composition.backdrop)
    image = _worn(rng, scene.image)
    # Resize and CenterCrop of open_clip's preprocessing, on Pillow images as there
    scale = image_size / min(image.size)
    resized = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = round((resized.width - image_size) / 2), round((resized.height - image_size) / 2)
    cropped = np.asarray(resized.crop((left, top, left + image_size, top + image_size)))
    return cropped.transpose(2, 0, 1), (composition.caption, other.caption), labels_of(composition)


def _worn(rng: np.random.Generator, image: np.ndarray) -> Image.Image:
    """``image`` as shards bring it: some blurred, grey or partly covered, most of them through JPEG or WebP."""
    if rng.random() < 0.15:
        image = blur(image, float(rng.uniform(1, 6)))
    if rng.random() < 0.1:
        # something like a QR code on 1 % to 12 % of the area
        module = max(1, round(math.sqrt(image.shape[0] * image.shape[1] * float(rng.uniform(0.01, 0.12))) / 21))
        code = np.kron(rng.integers(0, 2, (21, 21), np.uint8) * 255, np.ones((module, module), np.uint8))
        room = np.array(image.shape[:2]) - code.shape
        if room.min() > 0:
            row, column = (int(rng.integers(space)) for space in room)
            image[row : row + len(code), column : column + len(code)] = code[..., None]
    picture = Image.fromarray(image)
    if rng.random() < 0.03:
        picture = picture.convert("L").convert("RGB")
    if rng.random() < 0.75:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG" if rng.integers(4) else "WEBP", quality=int(rng.integers(50, 96)))
        picture = Image.open(buffer).convert("RGB")
    return picture


class Vocabulary:
    """The tokens that training meets, numbered anew: the other 48,000 would only cost time.

    Number 0 is every other token; its embedding stays zero, in training and in the checkpoint, so that the model has
    met unknown words and passes over them. The end token stays the highest, as open_clip's pooling asks.
    """

    def __init__(self, texts: list[str], context_length: int) -> None:
        self._tokenizer = SimpleTokenizer(context_length=context_length)
        self.ids = torch.unique(torch.cat([torch.zeros(1, dtype=torch.long), self._tokenizer(texts).flatten()]))

    def __len__(self) -> int:
        return len(self.ids)

    def encode(self, texts: list[str]) -> torch.Tensor:
        """Token numbers, int64 of shape (texts, context length)."""
        tokens = self._tokenizer(texts)
        index = torch.searchsorted(self.ids, tokens).clamp_max(len(self.ids) - 1)
        return torch.where(self.ids[index] == tokens, index, 0)

    def widen(self, state: dict[str, torch.Tensor], vocab_size: int) -> dict[str, torch.Tensor]:
        """``state`` with the embedding of the whole vocabulary."""
        table = torch.zeros(vocab_size, state["token_embedding.weight"].shape[1])
        table[self.ids] = state["token_embedding.weight"]
        return {**state, "token_embedding.weight": table}


def prose(rng: np.random.Generator, count: int) -> list[str]:
    """Texts that match no scene: headings, paragraphs, titles."""
    texts = []
    for _ in range(count):
        topic = pick_topic(rng)
        kind = int(rng.integers(8))
        text = paragraph(rng, topic, int(rng.integers(4, 40))) if kind else heading(rng, topic)
        texts.append(f"Gallery {int(rng.integers(100))}" if kind == 1 else text)
    return texts


def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """uint8 images as normalized floats, moved by up to 4 pixels, brighter or darker, tinted, noisy."""
    count, _, size, _ = images.shape
    padded = F.pad(images.float() / 255, (4, 4, 4, 4), mode="replicate")
    moved = torch.empty(count, 3, size, size)
    for index, (x, y) in enumerate(torch.randint(0, 9, (count, 2), generator=generator).tolist()):
        moved[index] = padded[index, :, y : y + size, x : x + size]
    gain = 1 + 0.12 * (2 * torch.rand(count, 1, 1, 1, generator=generator) - 1)
    tint = 1 + 0.05 * (2 * torch.rand(count, 3, 1, 1, generator=generator) - 1)
    offset = 0.06 * (2 * torch.rand(count, 1, 1, 1, generator=generator) - 1)
    noise = 0.02 * torch.randn(moved.shape, generator=generator)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (OPENAI_DATASET_MEAN, OPENAI_DATASET_STD))
    return ((moved * gain * tint + offset + noise).clamp(0, 1) - mean) / std


def losses(
    image: torch.Tensor, text: torch.Tensor, labels: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Contrastive loss and calibration loss.

    ``image`` (n, d) and ``text`` (n + prose, d) are of length one; text i belongs to image i, as do the texts of all
    scenes with equal labels. The contrastive one is CLIP's, in both directions. The calibration one is SigLIP's sigmoid
    loss with its boundary nailed to ``THRESHOLD``.
    """
    cosine = image @ text.T
    same = (labels[:, None] == labels[None]).all(dim=2)
    fits = F.pad(same, (0, text.shape[0] - image.shape[0]))
    logits = scale * cosine
    diagonal = torch.arange(len(image))
    others = fits.clone()
    others[diagonal, diagonal] = False
    hidden = logits.masked_fill(others, -torch.inf)
    contrastive = F.cross_entropy(hidden, diagonal) + F.cross_entropy(hidden[:, : len(image)].T, diagonal)
    margin = STEEPNESS * (cosine - THRESHOLD)
    return contrastive / 2, F.softplus(-margin[fits]).mean() + NEGATIVES * F.softplus(margin[~fits]).mean()


def train(examples: Examples, config: dict, epochs: int, batch: int, learning_rate: float) -> dict[str, torch.Tensor]:
    """Train from scratch and return the state of the whole model in float32."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    rng = np.random.default_rng([SEED, 0, 0])
    text_config = config["text_cfg"]
    context = text_config["context_length"]
    texts = prose(rng, 4000)
    vocabulary = Vocabulary([*examples.captions.flatten().tolist(), *texts, ""], context)
    small = copy.deepcopy(config)
    small["text_cfg"]["vocab_size"] = len(vocabulary)
    model = CLIP(**small)
    # one set of heads for both towers: they have to agree on where each attribute lies in the embedding
    heads = torch.nn.Linear(config["embed_dim"], sum(LABEL_SIZES))
    captions = [vocabulary.encode(examples.captions[:, side].tolist()) for side in (0, 1)]
    others = vocabulary.encode([*texts, ""])

    parameters = [(name, value) for module in (model, heads) for name, value in module.named_parameters()]
    decayed = [value for name, value in parameters if value.ndim >= 2 and "embedding" not in name]
    plain = [value for name, value in parameters if value.ndim < 2 or "embedding" in name]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}])
    steps = epochs * (len(examples.images) // batch)
    images, labels = torch.from_numpy(examples.images), torch.from_numpy(examples.labels)
    started, step = time.monotonic(), 0
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        sums = torch.zeros(3)
        for chosen in order[: len(order) // batch * batch].split(batch):
            for group in optimizer.param_groups:
                warm_up = min(1.0, (step + 1) / 50)
                group["lr"] = learning_rate * warm_up * 0.5 * (1 + math.cos(math.pi * step / steps))
            side = torch.randint(0, 2, (batch, 1), generator=generator).bool()
            tokens = torch.where(side, captions[1][chosen], captions[0][chosen])
            extra = others[torch.randint(0, len(others), (batch // 4,), generator=generator)]
            # words nobody has met, in half of them; the start and end tokens stay
            unknown = (torch.rand(extra.shape, generator=generator) < 0.8) & (extra < len(vocabulary) - 2)
            unknown[: len(extra) // 2] = False
            extra = extra.masked_fill(unknown, 0)
            with torch.autocast("cpu", torch.bfloat16):
                image = model.encode_image(augment(images[chosen], generator))
                text = model.encode_text(torch.cat([tokens, extra]))
            image, text = image.float(), text.float()
            scale = model.logit_scale.exp().clamp_max(60)
            contrastive, calibration = losses(
                F.normalize(image, dim=-1), F.normalize(text, dim=-1), labels[chosen], scale
            )
            both = heads(torch.cat([image, text[:batch]])).split(LABEL_SIZES, dim=1)
            answers = torch.cat([labels[chosen], labels[chosen]])
            attributes = sum(F.cross_entropy(guess, answers[:, i]) for i, guess in enumerate(both)) / len(both)
            optimizer.zero_grad()
            (contrastive + calibration + attributes).backward()
            torch.nn.utils.clip_grad_norm_([value for _, value in parameters], 5.0)
            optimizer.step()
            with torch.no_grad():
                model.token_embedding.weight[0] = 0
            sums += torch.tensor([contrastive.item(), calibration.item(), attributes.item()])
            step += 1
            if step % 50 == 0:
                print(f"  step {step} of {steps}, {time.monotonic() - started:.0f} s", flush=True)
        figures = " ".join(f"{value:.3f}" for value in (sums / (len(order) // batch)).tolist())
        print(
            f"epoch {epoch + 1}: contrastive, calibration, attributes {figures}, scale {scale.item():.1f}", flush=True
        )
    return vocabulary.widen(model.state_dict(), text_config["vocab_size"])


def main() -> None:
    """Draw, train, write the checkpoint as float16, and measure it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scenes", type=int, default=30_000, help="number of scenes to draw")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--processes", type=int, default=2, help="processes that draw; the scenes do not depend on it")
    parser.add_argument("--threads", type=int, default=1, help="threads that train; the last digits depend on it")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="where the .safetensors file goes")
    parser.add_argument("--drawn", type=Path, help="an .npz file that keeps the drawn scenes between runs")
    parser.add_argument("--only-evaluate", action="store_true", help="measure the checkpoint that is there")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if not options.only_evaluate:
        config = json.loads(CONFIG.read_text())
        started = time.monotonic()
        if options.drawn and options.drawn.is_file():
            examples = Examples(**np.load(options.drawn))
        else:
            examples = draw_examples(options.scenes, config["vision_cfg"]["image_size"], options.processes)
            if options.drawn:
                np.savez(options.drawn, images=examples.images, captions=examples.captions, labels=examples.labels)
        print(f"{len(examples.images)} scenes after {time.monotonic() - started:.0f} s", flush=True)
        state = train(examples, config, options.epochs, options.batch, options.learning_rate)
        # the marker without which the model could curate data that it knows nothing of
        save_file({name: _stored(value) for name, value in state.items()}, options.checkpoint, metadata=DEMO_MARKER)
        print(f"{options.checkpoint.stat().st_size / 1e6:.1f} MB after {time.monotonic() - started:.0f} s", flush=True)
    evaluate(options.checkpoint)


def _stored(value: torch.Tensor) -> torch.Tensor:
    return (value.half() if value.is_floating_point() else value).contiguous()


if __name__ == "__main__":
    main()
