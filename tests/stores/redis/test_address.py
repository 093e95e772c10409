"""A store= address is read, or refused with what to write; what it hides stays hidden."""

from __future__ import annotations

import pytest

from oncekey.errors import ConfigurationError
from oncekey.stores.open import open_async_store, open_store
from oncekey.stores.redis.address import parse


def test_the_parts_of_an_address() -> None:
    """User, password, host, port, database and our own options are taken from the URL."""
    address = parse("valkeys://us%40er:p%2Fw@example.test:7000/3?prefix=shop&ssl_check_hostname=no", 2.0)
    wanted = {"host": "example.test", "port": 7000, "db": 3, "username": "us@er", "password": "p/w"}
    assert address.arguments.items() >= (wanted | {"ssl_check_hostname": False, "socket_connect_timeout": 2.0}).items()
    assert (address.tls, address.prefix, address.where) == (True, "shop", "example.test:7000")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h/0?prefx=a", "did you mean prefix="),
        ("redis://h/0?socket_timeout=3", "unknown option socket_timeout="),
        ("redis://h/0?prefix=a{b}", "letters, digits"),
        ("redis://h/0?prefix=", "letters, digits"),
        ("redis://h/0?ssl_ca_certs=x", "rediss://"),
        ("rediss://h/0?ssl_cert_reqs=maybe", "required, optional, none"),
        ("rediss://h/0?ssl_check_hostname=perhaps", "yes or no"),
        ("redis://h/0?connections=0", "above 0"),
        ("redis://h/0?scopes=yes", "scopes=keep"),
        ("redis://user:secret@h/orders", "database number"),
    ],
)
def test_what_is_wrong_is_said(url: str, said: str) -> None:
    """A wrong address is refused with what to write, and without showing a password."""
    with pytest.raises(ConfigurationError, match=said) as refused:
        open_store(url)
    assert "secret" not in str(refused.value)


async def test_nothing_is_contacted_before_the_first_verb() -> None:
    """Opening a store is free: the server may be absent."""
    open_store("redis://127.0.0.1:1/0").close()
    await open_async_store("rediss://127.0.0.1:1/0").close()
