"""The shared parts of all HTML pages: the templates, their filters, style and pictures."""

import base64
import hashlib
import shlex
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from interleaved_assets.model import digits
from interleaved_assets.model.shown import cut_text, escaped
from interleaved_assets.reporting.wording import text
from interleaved_assets.reporting.wording.prose import prose, visible

if TYPE_CHECKING:
    import jinja2


@cache
def _environment() -> "jinja2.Environment":
    """Return the templates with their filters."""
    import jinja2  # services and commands that draw no page do not load it

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("interleaved_assets.reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "count": text.count,
        "counted": text.counted,
        "share": text.share,
        "score": digits.score,
        "measured": digits.measured,
        "bound": digits.bound,
        "without": str.removeprefix,
        "data_url": data_url,
        "cut_text": cut_text,
        "prose": prose,
        "plain": visible,
        "plain_text": escaped,
        "quoted": shlex.quote,
    }
    return made


def template(name: str) -> "jinja2.Template":
    """Return a file in the folder of the templates."""
    return _environment().get_template(name)


def source(name: str) -> Markup:
    """Return the text of a constant file in the folder of the templates; it has no text from data."""
    loader = _environment().loader
    assert loader is not None
    return Markup(loader.get_source(_environment(), name)[0])


def policy_hash(content: str) -> str:
    """Return the hash by which a content security policy names a script or style, from its text between the tags."""
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def data_url(picture: bytes) -> str:
    """Return a picture (JPEG, PNG or WebP) as a URL that contains it."""
    kind = "png" if picture.startswith(b"\x89PNG") else "webp" if picture.startswith(b"RIFF") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
