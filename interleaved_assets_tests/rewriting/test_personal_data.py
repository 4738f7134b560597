"""What is taken for personal data, and what is not; redaction changes nothing else, and twice is as once."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets_tests.rewriting.rows import IMAGE, rewritten, rows_of, texts_after

REDACT = "redact_personal_data"
MARKS = re.compile(r"\[(?:EMAIL|SSN|IP_ADDRESS|PHONE)\]")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("write to a.b+c@x-y.example.co.uk.", "write to [EMAIL]."),
        ("联系abc@example.com谢谢", "联系[EMAIL]谢谢"),
        ("SSN 123-45-6789, and 987-65-4321", "SSN [SSN], and [SSN]"),
        ("from 192.168.0.255 to 10.0.0.0/8, 1.1.1.1.", "from [IP_ADDRESS] to [IP_ADDRESS]/8, [IP_ADDRESS]."),
        ("1.1.1.1 2.2.2.2 3.3.3.3 4.4.4.4", "[IP_ADDRESS] [IP_ADDRESS] [IP_ADDRESS] [IP_ADDRESS]"),
        ("(212) 555-1234, 212.555.1234, 212 555 1234 x12", "[PHONE], [PHONE], [PHONE]"),
        ("+1-800-555-1234; +49 (0)30 1234567; +442071234567", "[PHONE]; [PHONE]; [PHONE]"),
    ],
)
def test_personal_data_is_replaced(text: str, left: str) -> None:
    assert texts_after(REDACT, text) == [left]


@pytest.mark.parametrize(
    "text",
    [
        "a@b, @name, a@b.c",
        "version v1.2.3.4, 1.2.3.4.5 and 256.1.1.1",
        "order 2125551234, 212-555-1234-99, 1212-555-12345, 978-0-306-40615-7",
        "0123-45-6789 and 123-45-67890",
        "on 2024-01-02 at 12:34, C++ 14, 1,000,000,000",
        "",
    ],
)
def test_other_numbers_and_names_stay(text: str) -> None:
    result = rewritten(rows_of([text]), REDACT)
    assert result.rows["text_content"].to_pylist() == [None, text]
    assert result.changes.num_rows == 0


def test_the_reason_counts_what_was_replaced() -> None:
    result = rewritten(rows_of(["a@b.com, c@d.com [EMAIL] 123-45-6789", "nothing"]), REDACT)
    assert result.changes["reason"].to_pylist() == ["2 [EMAIL], 1 [SSN]"]


PIECES = st.sampled_from(
    ["a@b.com", "x.y@z.org", "123-45-6789", "1.2.3.4", "10.0.0.1", "(212) 555-1234", "+49 30 1234567", "212-555-1234"]
)
GLUE = st.sampled_from(["", " ", "-", ".", ",", "\n", "(", "+", "x", "7", "[EMAIL]", "é", "@"])
TEXTS = st.one_of(
    st.lists(st.one_of(PIECES, GLUE), max_size=12).map("".join),
    st.text(alphabet=st.sampled_from("0123456789.-+@ ()axé\n[]"), max_size=60),
    st.text(max_size=40),
)


@given(st.lists(TEXTS, max_size=5))
def test_redaction_is_idempotent_and_touches_nothing_else(texts: list[str]) -> None:
    before = rows_of([*texts, IMAGE, None], ["untouched"])
    once = rewritten(before, REDACT)
    assert once.ledger.num_rows == 0
    for name in before.column_names:
        if name != "text_content":
            # a NaN is not equal to itself
            assert repr(once.rows[name].to_pylist()) == repr(before[name].to_pylist())
    after = once.rows["text_content"].to_pylist()
    for old, new in zip(before["text_content"].to_pylist(), after, strict=True):
        if old is None:
            assert new is None
            continue
        # what stands around the marks was in the text, in this order
        place = 0
        for part in MARKS.split(new):
            place = old.find(part, place)
            assert place >= 0
            place += len(part)
    changed = [position for position, old in enumerate(texts) if after[position + 1] != old]
    assert once.changes["position"].to_pylist() == changed
    twice = rewritten(once.rows, REDACT)
    assert twice.changes.num_rows == 0
    assert isinstance(twice.rows, pa.Table)
    assert twice.rows["text_content"].equals(once.rows["text_content"])
