"""Pages read by a model behind an OpenAI-compatible URL: the image of a page in, ordered blocks with boxes out.

Requests go to the configured URL alone: no redirect is followed and no proxy used.
"""

import base64
import http.client
import io
import json
import os
import time
import urllib.error
import urllib.request
from typing import Annotated, Any, Final, Literal

from PIL import Image
from pydantic import BaseModel, Field, ValidationError

from interleaved_assets.io.pdf.lines import Box
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets.model.errors import row_error

KEY_VARIABLE: Final = "PDF_MODEL_KEY"
"""Environment variable of the key that is sent as bearer token, if it is set."""
SIDE: Final = 1000
"""Width and height of a page in the coordinates of boxes; the origin is at the top left."""
_TRIES: Final = 3
_PAUSE: Final = 1.0
"""Seconds before the second request; twice that before the third."""
_MOST_ANSWER_BYTES: Final = 2**24
_MOST_FAILED: Final = 3
"""Pages in a row without an answer after which the model is no longer asked for the file."""
_SAME: Final = 0.5
"""Share of the area of two boxes that they must share for an image of the model to be the embedded one."""
_PASSING: Final = (408, 429, 500, 502, 503, 504)
_PROMPT: Final = (
    "Read this page of a document. Return its content in reading order as blocks. kind is text for a paragraph or a "
    "heading, table for a table, image for a picture, chart or diagram. text is the text of the block, a table in "
    "Markdown or HTML, and empty for an image. box is [left, top, right, bottom] in thousandths of the page: "
    "of its width and height. Leave out nothing and add nothing."
)
Place = Annotated[float, Field(ge=0, le=SIDE)]


class ModelBlock(BaseModel):
    """A piece of a page."""

    kind: Literal["text", "table", "image"]
    text: str = ""
    box: tuple[Place, Place, Place, Place]


class ModelPage(BaseModel):
    """A page as the model reads it."""

    blocks: list[ModelBlock]


class ModelError(Exception):
    """The model gave no answer that can be used."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class PageModel:
    """The model of the settings, for the pages of one file."""

    def __init__(self, settings: PdfSettings) -> None:
        assert settings.model_url is not None
        self._url = f"{settings.model_url.rstrip('/')}/chat/completions"
        self._name, self._seconds = settings.model, settings.model_seconds
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
        self._failed = 0

    def read(self, head: dict[str, Any], contents: list[bytes]) -> tuple[list[dict[str, Any]], list[bytes]]:
        """Return the blocks of a page and the bytes of their images, in place of those that the parser found.

        Args:
            head: frame of the page; ``page_image`` is the number of its image, and blocks of images have a ``box``.
            contents: the bytes that go with it.

        A page without a usable answer has one block with the error ``model_failed``.
        """
        if self._failed >= _MOST_FAILED:
            return _failed(f"page {head['page']} was not asked for, as {_MOST_FAILED} pages before it failed")
        png = contents[head["page_image"]]
        try:
            page = self._ask(png)
        except ModelError as error:
            self._failed += 1
            return _failed(f"page {head['page']}: {error}")
        self._failed = 0
        embedded = [block for block in head["blocks"] if block.get("image") is not None]
        blocks: list[dict[str, Any]] = []
        images: list[bytes] = []
        for block in page.blocks:
            if block.kind != "image":
                blocks += [{block.kind: block.text}] if block.text.strip() else []
                continue
            found = next((one for one in embedded if _share(Box(*one["box"]), Box(*block.box)) >= _SAME), None)
            if found is not None:
                embedded.remove(found)
                content, kind = contents[found["image"]], found["type"]
            else:
                content, kind = _crop(png, block.box), "image/png"
            if content:
                images.append(content)
                blocks.append({"image": len(images) - 1, "type": kind})
        return blocks, images

    def _ask(self, png: bytes) -> ModelPage:
        image = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        schema = {"name": "page", "schema": ModelPage.model_json_schema()}
        content = [{"type": "text", "text": _PROMPT}, {"type": "image_url", "image_url": {"url": image}}]
        asked = {
            "model": self._name,
            "temperature": 0,
            "messages": [{"role": "user", "content": content}],
            "response_format": {"type": "json_schema", "json_schema": schema},
        }
        answer = self._post(json.dumps(asked).encode())
        try:
            return ModelPage.model_validate_json(json.loads(answer)["choices"][0]["message"]["content"])
        except (ValidationError, ValueError, LookupError, TypeError) as error:
            raise ModelError(f"the answer has not the form asked for: {type(error).__name__}") from error

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._url, body, headers)
        for tried in range(1, _TRIES + 1):
            try:
                with self._opener.open(request, timeout=self._seconds) as response:
                    answer: bytes = response.read(_MOST_ANSWER_BYTES + 1)
                if len(answer) > _MOST_ANSWER_BYTES:
                    raise ModelError(f"the answer has more than {_MOST_ANSWER_BYTES} bytes")
                return answer
            except urllib.error.HTTPError as error:
                problem, may_pass = f"the model's server answered {error.code}", error.code in _PASSING
                error.close()
            except (OSError, http.client.HTTPException) as error:
                problem, may_pass = f"no answer of the model: {error}", True
            if tried == _TRIES or not may_pass:
                raise ModelError(problem)
            time.sleep(_PAUSE * tried)
        raise AssertionError("unreachable")


def _failed(detail: str) -> tuple[list[dict[str, Any]], list[bytes]]:
    return [{"error": row_error("model_failed", detail)}], []


def _share(one: Box, other: Box) -> float:
    """Return the area that two boxes share over the area that they cover; boxes with their origin at the top left."""
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.top, other.top) - max(one.bottom, other.bottom)
    shared = max(width, 0) * max(height, 0)
    covered = one.area + other.area - shared
    return shared / covered if covered > 0 else 0


def _crop(png: bytes, box: tuple[float, float, float, float]) -> bytes:
    """Return a part of the page as PNG; nothing if the box is empty."""
    with Image.open(io.BytesIO(png), formats=["PNG"]) as page:
        across, down = page.width / SIDE, page.height / SIDE
        left, top, right, bottom = (
            round(place * factor) for place, factor in zip(box, (across, down) * 2, strict=True)
        )
        if right <= left or bottom <= top:
            return b""
        buffer = io.BytesIO()
        page.crop((left, top, right, bottom)).save(buffer, "PNG")
    return buffer.getvalue()
