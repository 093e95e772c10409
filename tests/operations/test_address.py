from __future__ import annotations

from pathlib import Path

import pytest

from oncekey.errors import ConfigurationError, SchemaMissing
from oncekey.operations import masked, opened, scrubbed

PLAIN = [
    "memory://",
    "sqlite:////data/a:b@c/token=1.db",
    "redis://localhost:6379/0",
    "postgresql://app@db:5432/app?sslmode=require",
    "postgresql:///app?host=/var/run",
]
SECRET = [
    ("postgresql://app:hunter2@db:5432/app", "postgresql://app:***@db:5432/app"),
    ("redis://:hunter2@db/0", "redis://:***@db/0"),
    ("redis://app:hunter2/with@both@db/0", "redis://app:***@db/0"),
    ("rediss://app:hunter2%40x@db/0?ssl_ca=x", "rediss://app:***@db/0?ssl_ca=x"),
    (
        "postgresql://db/app?user=app&password=hunter2&sslmode=require",
        "postgresql://db/app?user=app&password=***&sslmode=require",
    ),
    ("postgresql://db/app?sslpassword=hunter2", "postgresql://db/app?sslpassword=***"),
    (
        "redis+sentinel://a:hunter2@one,two/x?sentinel_password=hunter2",
        "redis+sentinel://a:***@one,two/x?sentinel_password=***",
    ),
]


@pytest.mark.parametrize("url", PLAIN)
def test_address_without_password_stays(url: str) -> None:
    """Nothing is hidden where nothing is secret."""
    assert masked(url) == url
    assert scrubbed(f"no {url} here", url) == f"no {url} here"


@pytest.mark.parametrize(("url", "shown"), SECRET)
def test_password_is_masked_wherever_it_stands(url: str, shown: str) -> None:
    """Before the host, in the options, escaped or not: a password is never shown."""
    assert masked(url) == shown


@pytest.mark.parametrize(("url", "shown"), SECRET)
def test_message_is_scrubbed(url: str, shown: str) -> None:
    """A driver's message that repeats the address, or the password alone, loses the password and nothing else."""
    assert scrubbed(f"cannot reach {url}: refused", url) == f"cannot reach {shown}: refused"


@pytest.mark.parametrize("url", [url for url, _ in SECRET if "hunter2@" in url or url.endswith("hunter2")])
def test_password_alone_is_scrubbed(url: str) -> None:
    """A message that repeats only the password loses it too."""
    assert scrubbed("user app, password 'hunter2', refused", url) == "user app, password '***', refused"


def test_unescaped_form_of_a_password_is_scrubbed() -> None:
    """A driver repeats the password as it understood it."""
    assert scrubbed("bad password p@ss/word", "redis://a:p%40ss%2Fword@db") == "bad password ***"


def test_short_password_does_not_eat_words() -> None:
    """A password of one letter is hidden where a password stands, and words keep their letters."""
    url = "redis://a:e@db/0"
    assert scrubbed(f"the server {url} refused", url) == "the server redis://a:***@db/0 refused"


def test_missing_file_is_refused_unless_it_may_be_made(tmp_path: Path) -> None:
    """A typo in a file's name makes no empty store; only a migration may make one."""
    url = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(SchemaMissing, match="correct --store"):
        opened(url, store_for=1)
    assert list(tmp_path.iterdir()) == []
    store = opened(url, store_for=5, create=True)
    store.migrate()
    store.close()
    opened(url, store_for=1).close()


def test_no_store_is_answered_with_an_example() -> None:
    """Without an address there is a sentence that says how to give one."""
    with pytest.raises(ConfigurationError, match="ONCEKEY_STORE"):
        opened("", store_for=1)
