"""Prometheus, with rules and targets of the test's own."""

from __future__ import annotations

import contextlib
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import ClassVar

from tests.infra.process import EngineMissing, Server

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: oncekey
    static_configs: [{{targets: ["{target}"]}}]
"""


class PrometheusServer(Server):
    """A Prometheus that scrapes one target each second and evaluates one file of rules."""

    name: ClassVar[str] = "Prometheus"

    def __init__(self, target: str, rules: Path) -> None:
        super().__init__()
        self.target = target
        self.rules = rules

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        (self.folder / "prometheus.yml").write_text(CONFIG.format(rules=self.rules, target=self.target))

    def command(self) -> list[str]:
        return [
            program("prometheus"),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def answers(self) -> bool:
        with contextlib.suppress(OSError, urllib.error.URLError):
            return bool(urllib.request.urlopen(f"{self.url}/-/ready", timeout=1).status == 200)
        return False


def program(name: str) -> str:
    """Return the path of Prometheus or of its promtool."""
    if found := shutil.which(name, path="/usr/bin:/usr/local/bin:/opt/homebrew/bin"):
        return found
    raise EngineMissing("Prometheus is not installed; run: tools/provision servers")
