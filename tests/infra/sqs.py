"""A stand-in for Amazon SQS: moto's server, which keeps all in memory and proves nothing about AWS itself."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import sys
from pathlib import Path
from typing import ClassVar

from tests.infra.process import EngineMissing, Server


class SqsServer(Server):
    """Any region and any credentials will do. Pass `url` as `endpoint_url`."""

    name: ClassVar[str] = "the SQS stand-in"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        if not (found := shutil.which("moto_server", path=str(Path(sys.executable).parent))):
            raise EngineMissing("moto is not installed; run: make env")
        return [found, "-H", "127.0.0.1", "-p", str(self.port)]

    def answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            try:
                connection.request("GET", "/moto-api/data.json")
                return connection.getresponse().status == http.client.OK
            finally:
                connection.close()
        return False
