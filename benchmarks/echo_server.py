"""The least that a server on uvicorn can do: it reads a request and answers with a text of a submission's size.

``echo_server.py SOCKET`` serves until it is ended. The daemon's submissions are held against it.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

ANSWER = b'{"job": "' + b"x" * 400 + b'"}'


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ARG001 - as ASGI has it
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


if __name__ == "__main__":
    uvicorn.run(app, uds=sys.argv[1], http="h11", loop="asyncio", lifespan="off", ws="none", log_level="warning")
