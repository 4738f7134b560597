"""Parts of the package that tests replace: the one place for it.

Only what no file, storage, setting, variable or library can bring about is replaced: work that is made wrong, for the
tests of what finds it; code in another order, for tests that have to fail by it; a device or a cluster that is not
there; and limits that a test would take minutes or gigabytes to reach.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.io.archive.writer import MemberWriter
from interleaved_assets.pipeline.run import counts
from interleaved_assets.pipeline.stages import clip_scores as score_clip
from interleaved_assets.pipeline.stages import dag
from interleaved_assets.pipeline.stages import image_scores as score_images


def stand_in(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, by: object) -> None:
    """Put ``by`` in the place of a function or a constant of a module of the package, or of a method of a class."""
    getattr(owner, name)
    monkeypatch.setattr(owner, name, by)


def keep_only(monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], *names: str) -> None:
    """Leave only these entries of a table of the package, so that a test takes less time."""
    for name in table.keys() - set(names):
        monkeypatch.delitem(table, name)


def lose_first_row(monkeypatch: pytest.MonkeyPatch, shard: str) -> None:
    """Normalization loses the first row of a shard, without an entry in its ledger."""
    apply = counts.apply_error_policy

    def lossy(table: pa.Table, policy: Any, **names: Any) -> tuple[pa.Table, pa.Table]:
        kept, ledger = apply(table, policy, **names)
        return kept.slice(1) if names["shard"] == shard else kept, ledger

    stand_in(monkeypatch, counts, "apply_error_policy", lossy)


def lose_first_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first image of each batch has no row of scores."""
    score = score_images.score_batches

    def lossy(*given: Any, **named: Any) -> Iterator[pa.Table]:
        return (scores.slice(1) for scores in score(*given, **named))

    stand_in(monkeypatch, score_images, "score_batches", lossy)


def change_members(monkeypatch: pytest.MonkeyPatch, change: Callable[[str, str, bytes], tuple[str, bytes]]) -> None:
    """Other members are written than should be: ``change`` gets the URI of the tar, the name and the bytes of each."""
    put = MemberWriter.put

    def changed(self: MemberWriter, name: str, content: bytes) -> None:
        put(self, *change(self._sink.uri, name, content))

    stand_in(monkeypatch, MemberWriter, "put", changed)


def replace_model(monkeypatch: pytest.MonkeyPatch, **parts: Callable[..., Any]) -> None:
    """In place of a CLIP model: ``load_scorer``, ``score_shards`` or ``score_together``, by name."""
    if (together := parts.pop("score_together", None)) is not None:
        stages = [replace(one, together=together) if one.name == score_clip.STAGE.name else one for one in dag._STAGES]
        stand_in(monkeypatch, dag, "_STAGES", stages)
    for name, part in parts.items():
        stand_in(monkeypatch, score_clip, name, part)
