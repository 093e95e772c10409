"""The tables: what they refuse, how they come to be, and what is done with those of another version."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncekey.core.commands import Renewal, Swap, Won
from oncekey.core.record import State, replace
from oncekey.errors import RecordUnreadable, SchemaMissing
from oncekey.stores.planned import PlannedStore
from oncekey.stores.sqlite import open_sync
from oncekey.stores.sqlite.statements import STATEMENTS, migrations, sizes
from tests.stores.sqlite.items import claim, completed, id_of

INSERT = (
    "INSERT INTO oncekey_record (id, format, state, guarantee, token, fingerprint, claimed_at, scope, endpoint, key) "
    "VALUES (?, 1, ?, 1, x'01', x'02', ?, '', '', '')"
)


@pytest.mark.parametrize(
    "values",
    [(None, 1, 1), (1, 1, 1), ("text", 1, 1), (b"", 1, 1), (b"k" * 65, 1, 1), (b"k", None, 1), (b"k", 1, "2026-01-01")],
)
def test_wrong_types_are_refused(store: PlannedStore, path: Path, values: tuple[object, ...]) -> None:
    """A key is a short byte string, a time an integer: NULL, numbers and text are refused by the table itself."""
    store.migrate()
    with closing(sqlite3.connect(path)) as raw, pytest.raises(sqlite3.IntegrityError):
        raw.execute(INSERT, values)


def test_tables_are_made_at_the_first_use(store: PlannedStore) -> None:
    """A new file needs no command, and a migration after that has nothing to do."""
    assert store.claim([claim("a")]) == [Won(30_000)]
    assert store.migrate() == []


def test_migrate_names_what_it_did(store: PlannedStore) -> None:
    """Migrations are reported by name, and only once."""
    assert store.migrate() == [name for name, _ in migrations().values()]
    assert store.migrate() == []


def test_newer_schema_is_refused(store: PlannedStore, path: Path) -> None:
    """Tables that a newer release made are left alone, and so are their keys."""
    store.migrate()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT INTO oncekey_schema VALUES (99, 0)")
    store.close()
    newer = open_sync(store.url, store_for=1.0)
    with pytest.raises(SchemaMissing, match="newer OnceKey"):
        newer.claim([claim("a")])
    with pytest.raises(SchemaMissing, match="newer OnceKey"):
        newer.migrate()
    assert "refusal" in {finding.level for finding in newer.check()}
    newer.close()


@pytest.fixture
def foreign(store: PlannedStore, path: Path) -> bytes:
    """A record of a format that only newer code knows, completed and long past its expiry; and one in progress."""
    first = claim("foreign")
    store.claim([first, claim("foreign, running")])
    store.settle([completed(first, keep_for=1)])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE oncekey_record SET format = 2, expires_at = 1")
    return first.id


def test_unknown_format_is_never_executed_over(store: PlannedStore, foreign: bytes) -> None:
    """A claim on an unreadable record is refused, and its batch leaves nothing behind."""
    with pytest.raises(RecordUnreadable, match="format 2"):
        store.claim([claim("neighbour"), claim("foreign", "second")])
    assert store.get(id_of("neighbour")) is None
    assert store.claim([claim("neighbour")]) == [Won(30_000)]


def test_unknown_format_is_never_changed(store: PlannedStore, foreign: bytes) -> None:
    """No write and no purge touches a record that this code cannot read, whatever its columns say."""
    running = claim("foreign, running")
    with pytest.raises(RecordUnreadable):
        store.settle([completed(running)])
    with pytest.raises(RecordUnreadable):
        store.renew([Renewal(running.id, running.token, 60_000, 900_000)])
    with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as raw:
        assert raw.execute("SELECT version FROM oncekey_record ORDER BY seq").fetchall() == [(2,), (1,)]
    assert store.purge().deleted == 0
    assert store.scan(tuple(State)).records == []
    assert store.stats()["unreadable"] == 2
    assert "newer OnceKey" in " ".join(finding.what for finding in store.check())


def test_damaged_state_is_refused(store: PlannedStore, path: Path) -> None:
    """A state that does not exist is damage, not absence."""
    store.claim([claim("a")])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE oncekey_record SET state = 99")
    with pytest.raises(RecordUnreadable, match="damaged"):
        store.claim([claim("a", "second")])


@pytest.mark.parametrize(
    "name",
    ["scan_open", "scan_due", "scan_undated", "count_open", "count_final", "count_foreign", "purge", "expire_softly"],
)
def test_no_scan_of_all_keys(store: PlannedStore, path: Path, name: str) -> None:
    """Open records, counts and purge go by an index of their own."""
    store.migrate()
    sql = STATEMENTS[name]
    with closing(sqlite3.connect(path)) as raw:
        steps = raw.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?")).fetchall()
    assert any("INDEX oncekey_" in step[3] for step in steps)
    assert "SCAN oncekey_record" not in [step[3] for step in steps]


def test_no_placeholder_is_numbered() -> None:
    """Python 3.12.0 to 3.12.3 take `?1` for a name, and warn at every use."""
    assert [name for name, sql in STATEMENTS.items() if re.search(r"\?\d", sql)] == []


def test_any_batch_size_is_cut_into_few_sizes() -> None:
    """Every item of a batch is sent once, in at most sixteen different statement sizes."""
    seen: set[int] = set()
    for items in range(300):
        cuts = list(sizes(items))
        seen.update(size for _, size in cuts)
        assert [place for start, size in cuts for place in range(start, start + size)] == list(range(items))
    assert len(seen) <= 16


def test_batches_larger_than_a_statement(store: PlannedStore) -> None:
    """Batches beyond one statement's size keep their order and their answers."""
    claims = [claim(f"key {number}") for number in range(203)]
    assert store.claim(claims) == [Won(30_000)] * 203
    store.settle([completed(item, item.id) for item in claims])
    found = store.claim([item._replace(token=b"x" * 16) for item in claims])
    assert [seen.record.outcome for seen in found if not isinstance(seen, Won)] == [item.id for item in claims]


def test_odd_text_and_far_times_are_kept(store: PlannedStore) -> None:
    """Half a surrogate pair, NUL and an endless lease are stored, and neighbours do not suffer."""
    odd = claim("odd", lease_for=1 << 70)._replace(label=("\ud800", "a\0b", "kü"))  # type: ignore[arg-type]
    assert all(isinstance(answer, Won) for answer in store.claim([claim("a"), odd]))
    seen = store.get(odd.id)
    assert seen is not None
    assert seen.record.label == ("\\ud800", "a\0b", "kü")
    swapped = store.swap(Swap(seen.record, replace(seen.record, version=2, note="\udfff")))
    assert not hasattr(swapped, "found")
