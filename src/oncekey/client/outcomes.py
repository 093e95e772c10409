"""From a definite answer to what the caller may do: a refusal becomes an error that says it."""

from __future__ import annotations

from typing import Any, TypeVar

from oncekey.client.errors import Mismatch, Rejected
from oncekey.client.exchange import lower
from oncekey.client.judging import Answer, Verdict, error_of, judge

Response = TypeVar("Response")
_REFUSED = 400


def check(response: Response, key: str = "") -> Response:
    """Return a success as it is; raise Mismatch or Rejected for a refusal.

    It takes the responses of httpx, requests, urllib3 and aiohttp.
    """
    answer = _answer(response)
    if answer.status < _REFUSED:
        return response
    said = _words(answer)
    if judge(answer) is Verdict.MISMATCH:
        raise Mismatch(
            f"the key {key!r} belongs to another request, and nothing was done for this one ({said}): make a key for "
            "each thing that you want done, and find out why these two share one",
            key=key,
            status=answer.status,
            response=response,
        )
    raise Rejected(
        f"the server refused with {answer.status} ({said}): correct the request and send it as a new operation, with "
        "a new key",
        key=key,
        status=answer.status,
        response=response,
    )


def _answer(response: Any) -> Answer:
    status = getattr(response, "status_code", None) or response.status
    # aiohttp keeps what was read in `_body`; its `content` is a stream.
    found = (getattr(response, name, None) for name in ("_body", "content", "data"))
    body = next((part for part in found if isinstance(part, bytes)), b"")
    return Answer(status, lower({str(name): value for name, value in response.headers.items()}), body)


def _words(answer: Answer) -> str:
    body = error_of(answer)
    if isinstance(body, dict):
        error = body.get("error")
        places = [body, error] if isinstance(error, dict) else [body]
        for place in places:
            for name in ("detail", "title", "message", "description"):
                if isinstance(place.get(name), str) and place[name]:
                    return str(place[name])[:300]
    return "without a reason"
