"""Pixels and tokens to embeddings, in batches on a device, with fewer at once where its memory does not do."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.image import Pixels
from interleaved_assets.scoring.clip.model import ClipModel
from interleaved_assets.scoring.clip.text import Tokens

logger = logging.getLogger(__name__)

Embeddings = NDArray[np.float32]
"""n x width, float32, each row of length 1."""

_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
_DEFAULT_BATCH: Final = {"cuda": 256, "cpu": 32}


class Launched:
    """Embeddings that the device may still be computing."""

    def __init__(self, parts: Sequence[torch.Tensor], precision: str) -> None:
        self._parts, self._precision = parts, precision

    def result(self) -> Embeddings:
        """The embeddings, waited for.

        Raises:
            SettingsError: the model gave values that are not finite.
        """
        embeddings = np.concatenate([part.cpu().numpy() for part in self._parts])
        if not np.isfinite(embeddings).all():
            raise SettingsError(
                f"clip.precision: the model gives values that are not finite in {self._precision}; choose 'bf16' or "
                "'fp32', and see whether the checkpoint is sound"
            )
        return embeddings


class Embedder:
    """A model and how many items it is given at once.

    Attributes:
        batch_size: images, or texts, at once. Halved for good when the device runs out of memory.
        is_on_cpu: whether it computes on the cores that decoding takes too.
    """

    def __init__(self, model: ClipModel, batch_size: int | None = None) -> None:
        self.model = model
        self.batch_size = batch_size or _DEFAULT_BATCH[model.device.type]
        self.is_on_cpu = model.device.type == "cpu"
        config = model.preprocess_config
        self._mean, self._std = (
            torch.tensor(config[key], device=model.device).view(1, 3, 1, 1) for key in ("mean", "std")
        )
        self._is_trimmable = _is_trimmable(model)

    def images(self, pixels: Sequence[Pixels]) -> Launched:
        """Start embedding images, each height x width x 3 as the model takes them."""
        stacked = torch.from_numpy(np.stack(pixels))

        def embed(part: slice) -> torch.Tensor:
            batch = self._to_device(stacked[part]).permute(0, 3, 1, 2)
            # in this order, and in float32, as torchvision's to_tensor and normalize do it
            values = (
                batch.to(torch.float32, memory_format=torch.contiguous_format).div(255).sub(self._mean).div(self._std)
            )
            with self._autocast():
                return self.model.module.encode_image(values)

        return self._launch(embed, len(pixels))

    def texts(self, tokens: Sequence[Tokens]) -> Embeddings:
        """Embeddings of token sequences, in their order. Sequences of like length go together."""
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index]))

        def embed(part: slice) -> torch.Tensor:
            batch = self._to_device(torch.from_numpy(self._padded([tokens[index] for index in order[part]])))
            with self._autocast():
                if self._is_trimmable:
                    return _encode_trimmed(self.model.module, batch)
                return self.model.module.encode_text(batch)

        found = self._launch(embed, len(tokens)).result()
        embeddings = np.empty_like(found)
        embeddings[order] = found
        return embeddings

    def _launch(self, embed: Callable[[slice], torch.Tensor], count: int) -> Launched:
        parts = []
        start = 0
        with torch.inference_mode():
            while start < count:
                size = min(self.batch_size, count - start)
                try:
                    part = embed(slice(start, start + size))
                except torch.OutOfMemoryError:
                    if size == 1:
                        raise
                    part = None
                # outside of the except clause, whose exception still holds the tensors of the failed attempt
                if part is None:
                    self._halve(size)
                    continue
                parts.append(torch.nn.functional.normalize(part.float(), dim=-1))
                start += size
        return Launched(parts, self.model.precision)

    def _halve(self, size: int) -> None:
        self.batch_size = size // 2
        logger.warning(
            "out of memory on %s with a batch of %d: going on with %d. Set clip.batch_size to %d to start there.",
            self.model.device_name,
            size,
            self.batch_size,
            self.batch_size,
        )
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _to_device(self, batch: torch.Tensor) -> torch.Tensor:
        if self.model.device.type == "cuda":
            # from pinned memory the copy runs beside the kernels of the batch before
            return batch.pin_memory().to(self.model.device, non_blocking=True)
        return batch

    def _autocast(self) -> AbstractContextManager[object]:
        dtype = _DTYPES.get(self.model.precision)
        return nullcontext() if dtype is None else torch.autocast(self.model.device.type, dtype=dtype)

    def _padded(self, tokens: Sequence[Tokens]) -> NDArray[np.int64]:
        length = max(map(len, tokens))
        if not self._is_trimmable:
            length = max(length, self.model.tokenizer.context_length)
        padded = np.zeros((len(tokens), length), np.int64)
        for row, sequence in zip(padded, tokens, strict=True):
            row[: len(sequence)] = sequence
        return padded


def _is_trimmable(model: ClipModel) -> bool:
    """Whether padding behind a text's end marker cannot change its embedding, so that it can be left out.

    So it is where attention looks back only and the embedding is taken at the end marker, the largest id of all: in
    OpenAI's architecture, which open_clip's plain CLIP class is.
    """
    module = model.module
    return type(module) is open_clip.CLIP and module.text_pool_type == "argmax" and module.attn_mask is not None


def _encode_trimmed(module: open_clip.CLIP, tokens: torch.Tensor) -> torch.Tensor:
    """``module.encode_text(tokens)`` for tokens that are shorter than the context, n x length.

    A caption of 20 tokens takes a third of the time that it takes when padded to 77.
    """
    length = tokens.shape[1]
    dtype = module.transformer.get_cast_dtype()
    hidden = module.token_embedding(tokens).to(dtype) + module.positional_embedding[:length].to(dtype)
    hidden = module.ln_final(module.transformer(hidden, attn_mask=module.attn_mask[:length, :length]))
    at_end = hidden[torch.arange(len(tokens), device=tokens.device), tokens.argmax(dim=-1)]
    projection = module.text_projection
    if projection is None:
        return at_end
    return projection(at_end) if isinstance(projection, torch.nn.Linear) else at_end @ projection
