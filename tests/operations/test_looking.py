from __future__ import annotations

from typing import Any

import pytest

from oncekey.core.commands import Page
from oncekey.core.keys import key_ref
from oncekey.core.outcome import Answer, Tombstone, tombstone
from oncekey.core.record import State
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError
from oncekey.http.exchange import Exchange
from oncekey.http.gate import Gate
from oncekey.http.messages import Request
from oncekey.http.scope import by_header
from oncekey.operations import CHOICES, described, find, id_of, kept, listing, next_of
from oncekey.stores.memory import MemoryStore
from oncekey.testing.clock import ManualClock
from tests.operations.filled import ANSWER, CALLER, ENDPOINT, claim, complete, fill, settle


def keys_in(store: MemoryStore, state: str = "open", *, due: bool = False) -> set[str]:
    """The keys of a listing."""
    return {record.label.key for record in listing(store, state, due=due).records}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("open", {"running", "lapsed", "unknown", "failed"}),
        ("in_progress", {"running", "lapsed"}),
        ("unknown", {"unknown"}),
        ("failed_retryable", {"failed"}),
        ("completed", {"completed", "old"}),
        ("expired", set()),
        ("all", {"running", "lapsed", "unknown", "failed", "completed", "old"}),
    ],
)
def test_listing_shows_the_asked_states(store: MemoryStore, state: str, expected: set[str]) -> None:
    """Each word lists its states, and only those."""
    fill(store)
    assert keys_in(store, state) == expected


def test_every_state_can_be_listed() -> None:
    """No state is left out of `all`, and a word that is not known is answered with those that are."""
    assert set(CHOICES["all"]) == set(State)
    with pytest.raises(ConfigurationError, match="write one of open, in_progress"):
        listing(MemoryStore(), "done")


def test_due_shows_what_is_late(store: MemoryStore, clock: ManualClock) -> None:
    """With due, only lapsed leases and waiting times that are over are listed."""
    fill(store)
    assert keys_in(store, due=True) == set()
    clock.advance(10)
    assert keys_in(store, due=True) == {"lapsed", "unknown"}


def test_listing_goes_on_where_it_ended(store: MemoryStore) -> None:
    """Pages do not overlap, leave nothing out, and end with no cursor."""
    made = {complete(store, f"key-{number}").key for number in range(7)}
    first = listing(store, "all", limit=5)
    second = listing(store, "all", limit=5, after=first.after)
    assert (len(first.records), len(second.records), second.after) == (5, 2, None)
    assert {record.label.key for record in first.records + second.records} == made


class ShortPages(MemoryStore):
    """A store that gives less than a page, as one may that walks over keys."""

    def scan(self, *args: Any, **options: Any) -> Page:
        """Two at most."""
        return super().scan(*args, **options | {"limit": min(2, options["limit"])})


def test_listing_is_filled_from_short_pages() -> None:
    """A listing has as many as were asked for, and not one more, however small the store's pages are."""
    store = ShortPages()
    for number in range(7):
        complete(store, f"key-{number}")
    assert len(listing(store, "all", limit=5).records) == 5
    assert len(listing(store, "all", limit=50).records) == 7


def test_id_of_a_key_is_that_of_its_request(store: MemoryStore) -> None:
    """Key, caller and endpoint lead to the record, however the endpoint is spelled; another caller's do not."""
    made = claim(store, "k")
    assert {id_of("k", CALLER, text) for text in (ENDPOINT, "post /orders/", " POST  //orders ")} == {made.id}
    assert made.id not in {id_of("k", "Bearer bob", ENDPOINT), id_of("k", CALLER), id_of("k", CALLER, "PUT /orders")}


@pytest.mark.parametrize(("dialect", "endpoint"), [("ietf", ENDPOINT), ("stripe", "")])
def test_id_of_a_key_is_the_one_that_http_makes(dialect: str, endpoint: str) -> None:
    """A gate and an operator compute one id, with and without the endpoint in the scope."""
    gate = Gate(scope=by_header("Authorization"), dialect=dialect)
    request = Request("POST", "/orders/", b"", [(b"authorization", CALLER.encode())], b"{}")
    exchange = gate.prepare(request, "a-key-of-sixteen-characters")
    assert isinstance(exchange, Exchange)
    assert exchange.claim.id == id_of("a-key-of-sixteen-characters", CALLER, endpoint)


@pytest.mark.parametrize("endpoint", ["/orders", "POST", "POST orders", "POST  "])
def test_endpoint_needs_method_and_path(endpoint: str) -> None:
    """An endpoint that no request could have is refused with an example."""
    with pytest.raises(ConfigurationError, match="write 'POST /orders'"):
        id_of("k", CALLER, endpoint)


@pytest.mark.parametrize("cut", [6, 12, 39, 40])
def test_beginning_of_an_id_is_enough(store: MemoryStore, cut: int) -> None:
    """A unique beginning finds an unfinished operation, and so does the name that logs use."""
    made = fill(store)["unknown"]
    for reference in (made.id.hex()[:cut], made.id.hex()[:cut].upper(), key_ref(made.id)):
        [seen] = find(store, reference)
        assert seen.record.id == made.id


def test_finished_operations_are_looked_for_when_asked(store: MemoryStore) -> None:
    """A whole id finds any operation; the beginning of a finished one needs the word."""
    made = complete(store, "k")
    assert find(store, made.id.hex()[:12]) == []
    assert [seen.record.id for seen in find(store, made.id.hex()[:12], finished=True)] == [made.id]
    assert [seen.record.id for seen in find(store, made.id.hex())] == [made.id]
    assert find(store, "0" * 40) == []


def test_ambiguous_beginning_gives_all_it_may_mean() -> None:
    """Where several fit, none is chosen."""
    store = MemoryStore()
    for number in range(3):
        made = claim(store, f"k{number}")
        record = store._records.pop(made.id)
        id_ = b"\xab\xcd\xef" + bytes([number]) * 17
        store._put(type(record)(id_, record.state, 1, record.token, record.fingerprint))
    assert len(find(store, "abcdef")) == 3


@pytest.mark.parametrize("reference", ["", "abcde", "ok_abc", "xyzxyz", "a" * 41, "%" * 6])
def test_reference_of_another_kind_is_refused(store: MemoryStore, reference: str) -> None:
    """What cannot be the beginning of an id is answered with what to write."""
    with pytest.raises(ConfigurationError, match="at least the first 6"):
        find(store, reference)


def test_next_is_what_time_will_do(store: MemoryStore, clock: ManualClock) -> None:
    """Each state counts down to its own instant; without an instant there is nothing to count."""
    made = fill(store)
    clock.advance(1000)
    found = {key: next_of(store._records[one.id], clock()) for key, one in made.items()}
    assert {key: (coming.what, coming.left_for) for key, coming in found.items() if coming} == {
        "running": ("lease", 86_399_000),
        "lapsed": ("lease", -999),
        "unknown": ("due", -999),
        "failed": ("retry", 86_399_000),
        "completed": ("expires", 86_399_000),
        "old": ("expires", -999),
    }
    held = settle(store, claim(store, "held"), State.UNKNOWN)
    assert next_of(store._records[held.id], clock()) is None


def test_kept_answer_is_read_sealed_or_not(store: MemoryStore) -> None:
    """An answer is shown as it was given, whether it was stored plain, compressed or encrypted with our ring."""
    sealer = Sealer(compress_above=10, keys={"k1": bytes(32)})
    made = claim(store, "k")
    for outcome in (ANSWER, Sealer(10).seal(made.id, ANSWER), sealer.seal(made.id, ANSWER)):
        record = type(store._records[made.id])(made.id, State.COMPLETED, 2, b"", b"", outcome=outcome)
        found = kept(record, sealer if outcome[0] == 0x12 else None)
        assert found is not None
        assert isinstance(found.outcome, Answer), found.problem
        assert (found.outcome.status, found.outcome.headers[1]) == (201, (b"location", b"/orders/1"))


def test_unreadable_answer_says_why(store: MemoryStore) -> None:
    """Without the ring, with a damaged one, or none at all, the operation can still be looked at."""
    made = claim(store, "k")
    record = store._records[made.id]
    assert kept(record) is None
    for outcome, why in (
        (Sealer(None, {"k1": bytes(32)}).seal(made.id, ANSWER), "sealed with the key 'k1'"),
        (b"\x7f", "cannot read"),
        (ANSWER[:-1], "damaged"),
    ):
        found = kept(type(record)(made.id, State.COMPLETED, 2, b"", b"", outcome=outcome))
        assert found is not None
        assert why in found.problem


def test_tombstone_is_read(store: MemoryStore) -> None:
    """An answer that was not kept is known as one."""
    made = complete(store, "k", outcome=tombstone(200, "a stream"))
    found = kept(store._records[made.id])
    assert found is not None
    assert found.outcome == Tombstone(200, "a stream")


def test_keys_are_described_only_on_request(store: MemoryStore, clock: ManualClock) -> None:
    """The client's key is in the fields only if it was asked for, and the token never."""
    made = claim(store, "a-secret-key")
    record = store._records[made.id]
    assert "a-secret-key" not in str(described(record, clock()))
    fields = described(record, clock(), keys=True)
    assert fields["key"] == "a-secret-key"
    assert record.token.hex() not in str(fields)
