import json
from collections import Counter

import numpy as np

from interleaved_assets.demo.web_pages import web_pages


def test_each_kind_of_page_has_the_texts_that_its_filter_is_for() -> None:
    pages = [json.loads(member.data) for member in web_pages(np.random.default_rng(1)) if member.name.endswith(".json")]
    texts = {kind: " ".join(filter(None, page["texts"])) for page in pages for kind in [page["kind"]]}
    assert Counter(page["kind"] for page in pages) == dict.fromkeys(texts, 3)
    assert "$$$" in texts["spam"] or "#sale" in texts["spam"]
    assert max(Counter(texts["repetition"].split(". ")).values()) >= 5
    assert "die Grenzsteine" in texts["German"]
    assert all(part in texts["personal data"] for part in ("jane.doe@example.org", "192.0.2.17", "078-05-1120"))
    assert "We use cookies" in texts["boilerplate"]
    assert not any(sign in texts["ordinary"] for sign in ("$", "#sale", "@", "cookies"))
