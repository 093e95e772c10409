from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oncekey.core.record import FORMAT, Guarantee, Record, State
from oncekey.errors import RecordUnreadable
from oncekey.stores.postgres import plan as postgres
from oncekey.stores.sqlite import plan as sqlite

ID = bytes(range(20))
small = st.sampled_from([1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 0, 7, -1])
formats = st.sampled_from([1, 1, 1, 0, 2])
instants = st.none() | st.integers(0, 2**62)
blobs = st.binary(max_size=40)
counts = st.integers(0, 2**31 - 1)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_row_of_sqlite_is_a_record_or_refused(data: st.DataObject) -> None:
    """A state, guarantee or format that nobody has written is never guessed at."""
    draw = data.draw
    format_, state, guarantee = draw(formats), draw(small), draw(small)
    times = [draw(instants) for _ in range(3)]
    texts = [draw(st.text(max_size=20)) for _ in range(4)]
    middle = (draw(st.integers(0, 1)), guarantee, draw(counts), draw(counts), draw(blobs), draw(blobs), draw(counts))
    row = (ID, format_, state, *middle, *times, *texts, draw(blobs))
    good = format_ == sqlite.FORMAT and state in set(State) and guarantee in set(Guarantee)
    found = _read(sqlite.read, row)
    assert (found is not None) == good
    if found is not None:
        assert (found.id, found.state, found.guarantee, found.outcome) == (ID, state, guarantee, row[-1])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_row_of_postgres_is_a_record_or_refused(data: st.DataObject) -> None:
    """The same there, and texts may be any bytes: they are for reading only."""
    draw = data.draw
    format_, state, guarantee = draw(formats), draw(small), draw(small)
    head = (draw(counts), ID, format_, state, draw(counts), draw(st.none() | blobs), draw(blobs))
    times = [draw(counts), *(draw(instants) for _ in range(3))]
    row = (*head, guarantee, draw(counts), *times, draw(st.booleans()), *(draw(blobs) for _ in range(5)))
    good = format_ == FORMAT and state in set(State) and guarantee in set(Guarantee)
    found = _read(lambda row: postgres.seen(row).record, row)
    assert (found is not None) == good
    if found is not None:
        assert (found.id, found.state, found.guarantee, found.outcome) == (ID, state, guarantee, row[-1])


def _read(read: Any, row: tuple[Any, ...]) -> Record | None:
    try:
        found: Record = read(row)
    except RecordUnreadable:
        return None
    return found
