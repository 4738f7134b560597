"""Work of the project that is made wrong, for the tests of what finds it: the one place where they replace it."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.io.archive.writer import MemberWriter
from interleaved_assets.pipeline.run import counts
from interleaved_assets.pipeline.tasks import clip_scores as score_clip
from interleaved_assets.pipeline.tasks import image_scores as score_images


def lose_first_row(monkeypatch: pytest.MonkeyPatch, shard: str) -> None:
    """Normalization loses the first row of a shard, without an entry in its ledger."""
    apply = counts.apply_error_policy

    def lossy(table: pa.Table, policy: Any, **names: Any) -> tuple[pa.Table, pa.Table]:
        kept, ledger = apply(table, policy, **names)
        return kept.slice(1) if names["shard"] == shard else kept, ledger

    monkeypatch.setattr(counts, "apply_error_policy", lossy)


def lose_first_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first image of each batch has no row of scores."""
    score = score_images.score_batches
    monkeypatch.setattr(
        score_images, "score_batches", lambda *given, **named: (scores.slice(1) for scores in score(*given, **named))
    )


def change_members(monkeypatch: pytest.MonkeyPatch, change: Callable[[str, str, bytes], tuple[str, bytes]]) -> None:
    """Other members are written than should be: ``change`` gets the URI of the tar, the name and the bytes of each."""
    put = MemberWriter.put

    def changed(self: MemberWriter, name: str, content: bytes) -> None:
        put(self, *change(self._sink.uri, name, content))

    monkeypatch.setattr(MemberWriter, "put", changed)


def replace_model(monkeypatch: pytest.MonkeyPatch, **parts: Callable[..., Any]) -> None:
    """In place of a CLIP model: ``load_scorer``, ``score_shards`` or ``score_together``, by name."""
    for name, part in parts.items():
        monkeypatch.setattr(score_clip, name, part)
