"""A server whose certificate is not trusted: it may be somebody else's, so it is neither asked again nor told more."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from oncekey.client import ClientError, Retries
from tests.client.callers import CALLERS

QUICK = Retries(attempts=5, wait_for=0.001, longest_wait_for=0.002, budget=None)


def certificate(path: Path) -> Path:
    """A key and a certificate that nobody has signed but itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    today = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(today).not_valid_after(today + dt.timedelta(days=1))
    signed = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    how = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(key.private_bytes(*how) + signed)
    return path


class Untrusted:
    """Shakes hands, and counts how often it was asked to."""

    def __init__(self, file: Path) -> None:
        self.asked = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self._socket.getsockname()[1]}/pay"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.asked += 1
                with connection, suppress(OSError):
                    self._context.wrap_socket(connection, server_side=True).close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Untrusted]:
    made = Untrusted(certificate(tmp_path / "server.pem"))
    yield made
    made.close()


@pytest.mark.parametrize("name", CALLERS)
def test_a_wrong_certificate_is_no_reason_to_try_again(server: Untrusted, name: str) -> None:
    """The library's own error, at once."""
    with pytest.raises(Exception, match=r"(?i)certificate") as caught:
        CALLERS[name]("POST", server.url, b"{}", {}, retries=QUICK)
    assert not isinstance(caught.value, ClientError)
    assert server.asked == 1
