"""What all HTML pages share: the templates, their filters, style and pictures."""

import base64
import shlex
from typing import Final

import jinja2
from markupsafe import Markup

from interleaved_assets.model.shown import cut_text, escaped
from interleaved_assets.reporting import text
from interleaved_assets.reporting.prose import prose, visible

ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("interleaved_assets.reporting"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


def source(name: str) -> Markup:
    """The text of a constant file in the folder of the templates; it has no text from data."""
    loader = ENVIRONMENT.loader
    assert loader is not None
    return Markup(loader.get_source(ENVIRONMENT, name)[0])


def data_url(picture: bytes) -> str:
    """A picture as a URL that contains it: JPEG, PNG or WebP."""
    kind = "png" if picture.startswith(b"\x89PNG") else "webp" if picture.startswith(b"RIFF") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


ENVIRONMENT.filters |= {
    "count": text.count,
    "counted": text.counted,
    "share": text.share,
    "score": text.score,
    "without": str.removeprefix,
    "data_url": data_url,
    "cut_text": cut_text,
    "prose": prose,
    "plain": visible,
    "plain_text": escaped,
    "quoted": shlex.quote,
}
