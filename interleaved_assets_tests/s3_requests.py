"""Count the requests that this process sends to S3, each with retries and every part of an upload."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiobotocore.httpsession import AIOHTTPSession


@contextmanager
def counted_requests() -> Iterator[list[str]]:
    """Method, path and query of each request in the block, in order, such as ``GET /bucket/out/a.json``."""
    requests: list[str] = []
    send = AIOHTTPSession.send

    async def counted(session: AIOHTTPSession, request: Any) -> Any:
        url = urlsplit(request.url)
        requests.append(f"{request.method} {url.path}{'?' if url.query else ''}{url.query}")
        return await send(session, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AIOHTTPSession, "send", counted)
        yield requests
