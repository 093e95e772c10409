"""Behind a real PgBouncer in transaction mode, where it is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import ClassVar

import psycopg
import pytest

from oncekey.core.commands import DONE, Won
from oncekey.stores.postgres import open_sync
from tests.conftest import started
from tests.infra import EngineMissing, Server
from tests.stores.postgres.items import claim, done


class PgBouncer(Server):
    """A pooler before one database of one server."""

    name: ClassVar[str] = "PgBouncer"
    user: ClassVar[str | None] = "postgres"

    def __init__(self, behind: str) -> None:
        super().__init__()
        self.behind = psycopg.conninfo.conninfo_to_dict(behind)

    @property
    def url(self) -> str:
        return f"postgresql://oncekey@127.0.0.1:{self.port}/behind"

    def command(self) -> list[str]:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise EngineMissing("PgBouncer is not installed; run: tools/provision")
        return [program, str(self.folder / "ini")]

    def prepare(self) -> None:
        """Two server connections for whoever comes, and any user is believed."""
        place = f"host=127.0.0.1 port={self.behind['port']} dbname={self.behind['dbname']} user=oncekey"
        (self.folder / "ini").write_text(
            f"[databases]\nbehind = {place}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nunix_socket_dir =\n"
        )

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


@pytest.fixture
def bouncer(postgres_url: str) -> Iterator[PgBouncer]:
    """A pooler before this test's database."""
    with started(lambda: PgBouncer(postgres_url)) as server:
        yield server


def test_a_pooler_in_transaction_mode_is_noticed_and_safe(bouncer: PgBouncer) -> None:
    """The store finds out by itself, works, warns about LISTEN, and leaves no setting to others."""
    store = open_sync(bouncer.url, store_for=5)
    store.migrate()
    claims = [claim() for _ in range(20)]
    assert all(isinstance(answer, Won) for answer in store.claim(claims))
    assert store.settle([done(one) for one in claims]) == [DONE] * 20
    findings = store.check()
    store.close()
    assert any(finding.fix.startswith("add oncekey_listen=") for finding in findings)
    assert not [finding for finding in findings if finding.level == "refusal"]
    for _ in range(5):  # whichever of the two server connections it gets
        with psycopg.connect(bouncer.url, prepare_threshold=None) as other:
            assert other.execute("SELECT current_setting('enable_seqscan')").fetchone() == ("on",)
