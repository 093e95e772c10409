"""What the marks do, and what a retry after a failure gets: the dialect's outcome table."""

from __future__ import annotations

import pytest

from oncekey.demo.marks import LONGEST_DELAY, Marks, marks_of
from tests.demo.server import KINDS, DemoServer, ask, fresh

# API, status of the failure, statuses of the first answer and the retry, executions after both.
FAILURES = [
    ("ietf", 402, (402, 402), 1),
    ("ietf", 422, (422, 422), 1),
    ("ietf", 500, (500, 409), 1),
    ("ietf", 503, (503, 409), 1),
    ("stripe", 400, (400, 400), 1),
    ("stripe", 402, (402, 402), 1),
    ("stripe", 500, (500, 500), 1),
    ("stripe", 503, (503, 503), 1),
    ("square", 400, (400, 400), 1),
    ("square", 402, (402, 402), 1),
    ("square", 500, (500, 409), 1),
    ("adyen", 422, (422, 422), 1),
    ("adyen", 500, (500, 500), 2),
    ("paypal", 422, (422, 422), 1),
    ("paypal", 500, (500, 500), 2),
    ("paypal", 503, (503, 503), 2),
]
# API, status of a failure that happens once, statuses of three requests, executions after them.
ONCE = [
    ("ietf", 402, [402, 402, 402], 1),
    ("ietf", 500, [500, 409, 409], 1),
    ("stripe", 500, [500, 500, 500], 1),
    ("square", 503, [503, 409, 409], 1),
    ("adyen", 503, [503, 200, 200], 2),
    ("paypal", 500, [500, 201, 200], 2),
]
SHAPES = {
    "ietf": lambda told: (told["status"], told["title"]),
    "stripe": lambda told: (told["error"]["type"], told["error"]["message"]),
    "square": lambda told: (told["errors"][0]["category"], told["errors"][0]["code"]),
    "adyen": lambda told: (told["errorCode"], told["errorType"]),
    "paypal": lambda told: (told["name"], told["details"][0]["issue"]),
}


@pytest.mark.parametrize(("api", "status", "answers", "runs"), FAILURES)
def test_a_retry_after_a_failure_goes_by_the_dialect(
    demo: DemoServer, api: str, status: int, answers: tuple[int, int], runs: int
) -> None:
    """Stored and replayed, unknown, or declared without effect and run again; a failed run counts as a run."""
    ref = fresh("ref")
    request = ask(api, fresh(), f"probe:ref={ref} probe:fail={status}")
    first, again = demo.send(request), demo.send(request)
    assert (first.status_code, again.status_code) == answers
    assert demo.executions(ref) == runs
    if answers == (status, status) and runs == 1:
        assert first.content == again.content
    assert all(SHAPES[api](first.json()))


@pytest.mark.parametrize(("api", "status", "answers", "runs"), ONCE)
def test_a_failure_may_happen_once(demo: DemoServer, api: str, status: int, answers: list[int], runs: int) -> None:
    """Only the first run of the ref fails; whether there is a second one is the dialect's decision."""
    ref = fresh("ref")
    request = ask(api, fresh(), f"probe:ref={ref} probe:fail-once={status}")
    assert [demo.send(request).status_code for _ in answers] == answers
    assert demo.executions(ref) == runs


def test_adyen_says_which_failures_are_transient(demo: DemoServer) -> None:
    """The header is on the failure that may be sent again, and not on the refusal that is final."""
    transient, final = (demo.send(ask("adyen", fresh(), f"probe:fail={status}")) for status in (503, 422))
    assert transient.headers["transient-error"] == "true"
    assert "transient-error" not in final.headers


def test_a_stored_stripe_failure_tells_the_sdk_not_to_retry(demo: DemoServer) -> None:
    """The first 500 and its replay carry Stripe-Should-Retry: false."""
    request = ask("stripe", fresh(), "probe:fail=500")
    assert [demo.send(request).headers["stripe-should-retry"] for _ in range(2)] == ["false", "false"]


@pytest.mark.parametrize("api", KINDS)
def test_marks_are_found_in_url_encoded_bodies_too(demo: DemoServer, api: str) -> None:
    """Form encoding hides the colon and the equals sign, and they are found all the same."""
    ref = fresh("ref")
    assert demo.send(ask(api, fresh(), f"probe:ref={ref} probe:fail=418")).status_code == 418
    assert demo.executions(ref) == 1


@pytest.mark.parametrize(
    ("body", "marks"),
    [
        (b"probe:ref=a.b-c_d~1. That was a sentence.", Marks("a.b-c_d~1")),
        (b"probe%3Aref%3Dabc+probe%3Adelay%3D20", Marks("abc", 20)),
        (b'{"x": "probe:ref=abc", "probe:fail=503": 1}', Marks("abc", 0, 503)),
        (b"probe:ref=a:probe:fail-once=500", Marks("a", 0, None, 500)),
        (b"probe:ref=a probe:fail=200 probe:fail=5000 probe:delay=x", Marks("a")),
        (b"probe:ref=a probe:ref=b probe:delay=999999999", Marks("a", LONGEST_DELAY)),
        (b"\xff\xfe probe:ref=a", Marks("a")),
    ],
)
def test_marks_are_read_as_written(body: bytes, marks: Marks) -> None:
    """The first of a kind counts; what is no mark is left alone."""
    assert marks_of(body) == marks


def test_without_a_ref_equal_bodies_count_together() -> None:
    """A ref is never empty, so that fail-once works without one."""
    assert marks_of(b"one").ref == marks_of(b"one").ref != marks_of(b"two").ref
    assert marks_of(b"probe:delay=5").ref.startswith("body-")
