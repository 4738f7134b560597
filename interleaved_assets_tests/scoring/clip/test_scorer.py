import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("open_clip")
import torch
from safetensors.torch import save_file

from interleaved_assets.model.errors import OptionError, SettingsError
from interleaved_assets.scoring.clip.model import DEMO_MARKER
from interleaved_assets.scoring.clip.scorer import ClipScorer, load_scorer
from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings, PrescreenSettings
from interleaved_assets.scoring.clip.stream import ClipStats, score_shards, score_table
from interleaved_assets_tests.scoring.clip_tiny import (
    CONTEXT,
    WIDTH,
    picture,
    plain_scores,
    rows,
    tiny_module,
    write_tiny,
)

pytestmark = pytest.mark.torch

TEXTS = [
    "a red square",
    "Two blue circles on a green field.",
    "caf\u00e9 &amp; more",
    "a text of very many words " * 30,
    "12 + 30 = 42",
]
FORMATS = [("JPEG", "RGB"), ("PNG", "RGB"), ("PNG", "RGBA"), ("JPEG", "L"), ("PNG", "P"), ("WEBP", "RGB")]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ClipSettings:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def changed(settings: ClipSettings, **values: object) -> ClipSettings:
    return ClipSettings.model_validate(settings.model_dump() | values)


def sample(number: int) -> pa.Table:
    """A sample of two images and one to five texts."""
    texts = TEXTS[: number % 5 + 1]
    images = [picture(10 * number + at, 70 + 9 * number, 60 + 5 * at, *FORMATS[(number + at) % 6]) for at in range(2)]
    name = f"sample {number}"
    return rows(
        *((name, at, "text", text) for at, text in enumerate(texts)),
        *((name, 10 + at, "image", image) for at, image in enumerate(images)),
    )


def plain(table: pa.Table) -> list[tuple[float, int]]:
    """Score and text position of each image of a sample, computed one image and one text at a time."""
    module = tiny_module()
    texts = [(row["position"], row["text_content"]) for row in table.to_pylist() if row["modality"] == "text"]
    found = []
    for row in table.to_pylist():
        if row["modality"] == "image":
            scores = plain_scores(module, row["binary_content"], [text.strip() for _, text in texts])
            best = max(range(len(scores)), key=scores.__getitem__)
            found.append((scores[best], texts[best][0]))
    return found


def shards(*counts: int) -> Iterator[tuple[str, list[pa.Table]]]:
    first = 0
    for number, count in enumerate(counts):
        yield f"shard {number}", [sample(at) for at in range(first, first + count)]
        first += count


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("bf16", 5e-3)])
def test_scores_agree_with_open_clip_one_image_at_a_time(precision: str, tolerance: float, tiny: ClipSettings) -> None:
    scorer = load_scorer(changed(tiny, precision=precision, batch_size=5))
    wanted = [pair for number in range(6) for pair in plain(sample(number))]
    found = [pair for _, table in score_shards(shards(2, 0, 4), scorer) for pair in scored(table)]
    assert len(found) == len(wanted) == 12
    assert max(abs(score - other) for (score, _), (other, _) in zip(found, wanted, strict=True)) < tolerance
    if precision == "fp32":
        assert [position for _, position in found] == [position for _, position in wanted]
        # and the agreement is no accident of all being alike
        assert max(score for score, _ in wanted) - min(score for score, _ in wanted) > 0.2


def scored(table: pa.Table) -> list[tuple[float, int]]:
    assert table["clip_error"].null_count == table.num_rows
    return list(zip(table["clip_score"].to_pylist(), table["clip_text_position"].to_pylist(), strict=True))


def test_shards_together_and_alone_give_the_same_scores(tiny: ClipSettings) -> None:
    scorer = load_scorer(changed(tiny, batch_size=7))
    together = dict(score_shards(shards(3, 5, 2), scorer))
    assert list(together) == ["shard 0", "shard 1", "shard 2"]
    for name, tables in shards(3, 5, 2):
        ((_, alone),) = score_shards([(name, tables)], scorer)
        assert alone.drop(["clip_score"]).equals(together[name].drop(["clip_score"]))
        assert alone["clip_score"].to_pylist() == pytest.approx(together[name]["clip_score"].to_pylist(), abs=1e-6)


def test_the_same_run_gives_the_same_bits(tiny: ClipSettings) -> None:
    for threads in (1, 4):
        scorer = load_scorer(changed(tiny, batch_size=7, threads=threads))
        found = list(score_shards(shards(3, 5), scorer))
        again = list(score_shards(shards(3, 5), scorer))
        assert all(one.equals(other) for (_, one), (_, other) in zip(found, again, strict=True))


def test_a_window_finds_what_truncation_never_reads(tiny: ClipSettings) -> None:
    module = tiny_module()
    image = picture(5)
    # words enough to fill the context, then the text that suits the image best
    best = max(TEXTS[:3], key=lambda text: plain_scores(module, image, [text])[0])
    filler = " ".join(["filler"] * (CONTEXT - 2))
    table = rows(("a", 0, "text", f"{filler} {best}"), ("a", 1, "image", image))
    ((_, cut),) = score_shards([("s", [table])], load_scorer(tiny))
    ((_, windows),) = score_shards([("s", [table])], load_scorer(changed(tiny, long_text="window")))
    filler_score, best_score = plain_scores(module, image, [filler, best])
    assert cut["clip_score"].to_pylist() == pytest.approx([filler_score], abs=1e-5)
    assert windows["clip_score"].to_pylist() == pytest.approx([max(filler_score, best_score)], abs=1e-5)


def test_every_way_an_image_can_go_unscored(tiny: ClipSettings) -> None:
    table = rows(
        ("a", 0, "text", "text"),
        ("a", 1, "image", b"no image"),
        ("a", 2, "image", None),
        ("a", 3, "image", picture(0)[:400]),
        ("a", 4, "image", picture(0)),
        ("b", 0, "image", picture(1)),
        ("b", 1, "text", "  \n "),
        ("c", 0, "text", "x" * 10**6),
        ("c", 1, "image", picture(2)),
    )
    ((_, found),) = score_shards([("s", [table])], load_scorer(tiny))
    assert [(error or "").partition(":")[0] for error in found["clip_error"].to_pylist()] == [
        "undecodable_image",
        "missing_source",
        "undecodable_image",
        "",
        "no_text",
        "",
    ]
    assert [score is None for score in found["clip_score"].to_pylist()] == [True, True, True, False, True, False]
    assert found["clip_text_position"].to_pylist() == [None, None, None, 0, None, 0]


def test_heads_and_kept_embeddings(tiny: ClipSettings, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(1, WIDTH, generator=generator) for name in ("taste", "safe", "mine")}
    for name, weight in weights.items():
        torch.save({"weight": weight, "bias": torch.zeros(1)}, tmp_path / f"{name}.pth")
    heads = {
        "taste": HeadSettings(path=str(tmp_path / "taste.pth"), kind="aesthetic"),
        "safe": HeadSettings(path=str(tmp_path / "safe.pth"), kind="nsfw"),
        "mine": HeadSettings(path=str(tmp_path / "mine.pth")),
    }
    scorer = load_scorer(changed(tiny, heads=heads, keep_embeddings=True))
    table = pa.concat_tables([sample(1), rows(("lonely", 0, "image", picture(3)))])
    ((_, found),) = score_shards([("s", [table])], scorer)
    assert found.schema == scorer.schema
    embeddings = torch.tensor(found["embedding"].to_pylist())
    assert embeddings.norm(dim=1) == pytest.approx([1, 1, 1], abs=1e-3)
    for column, name in (("aesthetic_score", "taste"), ("mine", "mine")):
        assert found[column].to_pylist() == pytest.approx((embeddings @ weights[name][0]).tolist(), abs=5e-3)
    assert found["nsfw_clip_score"].to_pylist() == pytest.approx(
        torch.sigmoid(embeddings @ weights["safe"][0]).tolist(), abs=5e-3
    )
    assert [error is None for error in found["clip_error"].to_pylist()] == [True, True, False]


def test_a_repeated_text_is_computed_once(tiny: ClipSettings) -> None:
    tables = [rows((f"s{n}", 0, "text", "same text"), (f"s{n}", 1, "image", picture(n))) for n in range(6)]
    stats = ClipStats()
    ((_, found),) = score_shards([("s", tables)], load_scorer(changed(tiny, batch_size=2)), stats=stats)
    assert (stats.texts, stats.embedded) == (1, 6)
    assert found["clip_score"].null_count == 0


def test_out_of_memory_in_mid_run_changes_no_score(
    tiny: ClipSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = dict(score_shards(shards(4, 4), load_scorer(tiny)))
    scorer = load_scorer(changed(tiny, batch_size=8))
    encode = scorer.embedder.model.module.encode_image

    def short(batch: torch.Tensor) -> torch.Tensor:
        if len(batch) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(batch)

    monkeypatch.setattr(scorer.embedder.model.module, "encode_image", short)
    with caplog.at_level(logging.WARNING):
        found = dict(score_shards(shards(4, 4), scorer))
    assert scorer.embedder.batch_size == 2
    assert caplog.text.count("out of memory") == 2
    for name, table in wanted.items():
        assert found[name]["clip_score"].to_pylist() == pytest.approx(table["clip_score"].to_pylist(), abs=1e-6)
        assert found[name]["clip_error"].null_count == table.num_rows


def test_errors_come_at_once_and_not_with_the_first_shard(tiny: ClipSettings, tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1, 768)}, tmp_path / "wide.pth")
    with pytest.raises(SettingsError, match=f"width 768, and the model's have width {WIDTH}"):
        load_scorer(changed(tiny, heads={"wide": {"path": str(tmp_path / "wide.pth")}}))
    with pytest.raises(OptionError, match="image_scores="):
        score_shards([], load_scorer(changed(tiny, prescreen=PrescreenSettings(min_short_side=10).model_dump())))


def test_one_table_on_its_own(tiny: ClipSettings) -> None:
    found = score_table(sample(3), load_scorer(tiny))
    assert scored(found) == [(pytest.approx(score, abs=1e-5), position) for score, position in plain(sample(3))]
    cheap = pa.table({"sample_id": ["sample 3"], "position": pa.array([10], pa.int32()), "sharpness": [1.0]})
    screening = load_scorer(changed(tiny, prescreen=PrescreenSettings(min_sharpness=2).model_dump()))
    screened = score_table(sample(3), screening, image_scores=cheap)
    assert [(error or "")[:11] for error in screened["clip_error"].to_pylist()] == ["prescreened", ""]
    assert screened["clip_score"][1].as_py() == pytest.approx(found["clip_score"][1].as_py(), abs=1e-6)


def test_scoring_goes_on_while_the_caller_is_at_work_on_a_table(tiny: ClipSettings) -> None:
    stats = ClipStats()
    run = score_shards(shards(1, 1, 1), load_scorer(changed(tiny, batch_size=1)), stats=stats)
    assert next(run)[0] == "shard 0"
    deadline = time.monotonic() + 60
    while stats.embedded < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stats.embedded == 6
    assert [name for name, _ in run] == ["shard 1", "shard 2"]


def test_facts_for_a_report(tiny: ClipSettings) -> None:
    scorer: ClipScorer = load_scorer(tiny)
    facts = scorer.facts()
    assert (facts["device"], facts["model"], facts["precision"]) == ("cpu", "tiny/tiny.pt", "fp32")
    assert len(facts["fingerprint"]) == 32


def never() -> bool:
    raise AssertionError("asked about the data although the model is not the demo's")


def test_the_shipped_model_is_refused_for_other_data_with_what_to_set() -> None:
    models = Path(__file__).parents[3] / "data/models"
    settings = ClipSettings(
        model="scenes-clip",
        model_config_path=str(models / "scenes-clip.json"),
        pretrained=str(models / "scenes-clip.safetensors"),
        device="cpu",
    )
    with pytest.raises(SettingsError, match=r"drawn scenes only .*clip\.model .*clip\.allow_demo_model = true"):
        load_scorer(settings)
    # it stays loaded, and is refused again
    with pytest.raises(SettingsError, match="drawn scenes only"):
        load_scorer(settings, is_demo_data=lambda: False)
    assert load_scorer(settings, is_demo_data=lambda: True).facts()["model"] == "scenes-clip/scenes-clip.safetensors"
    load_scorer(changed(settings, allow_demo_model=True), is_demo_data=never)


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_a_model_without_the_marker_may_judge_any_data(
    metadata: dict[str, str] | None, tiny: ClipSettings, tmp_path: Path
) -> None:
    save_file(tiny_module().state_dict(), tmp_path / "mine.safetensors", metadata=metadata)
    load_scorer(changed(tiny, pretrained=str(tmp_path / "mine.safetensors")), is_demo_data=never)


def test_the_marker_counts_and_not_the_name(tiny: ClipSettings, tmp_path: Path) -> None:
    save_file(tiny_module().state_dict(), tmp_path / "mine.safetensors", metadata=DEMO_MARKER | {"format": "pt"})
    with pytest.raises(SettingsError, match="the demo's model"):
        load_scorer(changed(tiny, pretrained=str(tmp_path / "mine.safetensors")))
