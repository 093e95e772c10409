"""From a definite answer to what the caller may do: a refusal becomes an error that says it."""

from __future__ import annotations

from typing import Any, TypeVar

from oncekey.client.errors import GaveUp, IntentOver, Mismatch, OutcomeUnknown, Rejected
from oncekey.client.exchange import lower
from oncekey.client.judging import Answer, Verdict, error_of, judge, operation_of

Response = TypeVar("Response")
_REFUSED = 400
_REASONS = {Verdict.STALE: "age", Verdict.STOP: "told"}


def check(response: Response, key: str = "") -> Response:
    """Return a success as it is; raise Mismatch or Rejected for a refusal, and for the rest what is known.

    It takes the responses of httpx, requests, urllib3 and aiohttp.
    """
    answer = _answer(response)
    if answer.status < _REFUSED:
        return response
    verdict, said = judge(answer), _words(answer)
    if verdict is Verdict.OVER:
        raise IntentOver(
            f"it was done, and its answer is not kept ({said}): read what it made by other means, and send it neither "
            "with this key nor with a new one",
            key=key,
        )
    if verdict in {Verdict.ANSWER, Verdict.MISMATCH, Verdict.DENIED}:
        kind = Mismatch if verdict is Verdict.MISMATCH else Rejected
        raise kind(_refusal(verdict, answer, said, key), key=key, status=answer.status, response=response)
    nothing = verdict in {Verdict.LATER, Verdict.NOT_DONE}
    unsure = GaveUp if nothing else OutcomeUnknown
    reason = _REASONS.get(verdict, "attempts")
    raise unsure(key=key, attempts=1, reason=reason, operation=operation_of(answer), response=response)


def _refusal(verdict: Verdict, answer: Answer, said: str, key: str) -> str:
    if verdict is Verdict.MISMATCH:
        named = f"the key {key!r}" if key else "the key"
        return (
            f"{named} belongs to another request, and nothing was done for this one ({said}): make a key for each "
            "thing that you want done, and find out why these two share one"
        )
    if verdict is Verdict.DENIED:
        return (
            f"the server did not let this caller in, with {answer.status} ({said}): bring other credentials, and send "
            "it again with the same key"
        )
    return (
        f"the server refused with {answer.status} ({said}): correct the request and send it as a new operation, with "
        "a new key"
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
