"""The alert rules and the dashboard: checked by Prometheus itself, and held to the figures that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics import GAUGES
from oncekey.telemetry.prometheus import page
from tests.conftest import on_missing, started
from tests.demo.server import DemoServer, ask, fresh, until
from tests.docs.pages import DOCS
from tests.infra import EngineMissing, PrometheusServer
from tests.infra.prometheus import program

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "oncekey.rules.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "oncekey.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
COLUMNS = 24


def queried(text: str) -> set[str]:
    """The metrics that a text asks for."""
    return set(re.findall(r"api_idempotency_\w+", text))


@pytest.fixture(scope="module")
def names() -> set[str]:
    """The samples of the page."""
    samples = page(Counters(), dict.fromkeys(GAUGES, 0)).decode()
    return {line.split()[0].partition("{")[0] for line in samples.splitlines() if not line.startswith("#")}


# ---- what can be seen without a server -----------------------------------------------------------------------------


def test_everything_that_is_asked_for_is_there(names: set[str]) -> None:
    """A rule or a panel on a metric that nobody has would be silent for ever."""
    assert queried(RULES.read_text()) <= names
    asked = {name for query in QUERIES for name in queried(query)}
    assert asked <= names
    # And what happens to requests is on the dashboard whole.
    decisions = {name for name in names if name.startswith("api_idempotency_reserve_") and "by_scope" not in name}
    assert decisions <= asked


def test_panels_are_told_apart_and_lie_side_by_side() -> None:
    """Ids are unique, and no panel lies on another or beyond the edge."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= COLUMNS
        taken |= cells


def test_panels_ask_the_source_that_is_chosen() -> None:
    """A dashboard that names its author's data source is of no use to anybody else."""
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "job"}
    for panel in PANELS:
        assert panel["description"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    assert all('{job=~"$job"}' in query for query in QUERIES)


# ---- promtool and Prometheus ---------------------------------------------------------------------------------------


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it beside the rules."""
    try:
        command = program("promtool")
    except EngineMissing as missing:
        on_missing(missing)
    return subprocess.run([command, *words], cwd=RULES.parent, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [("check", "rules", RULES.name), ("check", "config", "prometheus.yml"), ("test", "rules", "oncekey.test.yml")],
    ids=lambda words: " ".join(words[:2]),
)
def test_prometheus_own_tool_is_content(words: tuple[str, ...]) -> None:
    """The rules are well formed, and fire in the stories in which they should, and in no other."""
    done = promtool(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_its_story() -> None:
    """An alert that no story makes fire may never fire."""
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    stories = (RULES.parent / "oncekey.test.yml").read_text()
    fired = re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", stories)
    assert set(alerts) == set(fired)
    page = (DOCS / "howto" / "telemetry.md").read_text(encoding="utf-8")
    assert set(alerts) == set(re.findall(r"^\| `(Oncekey\w+)`", page, re.MULTILINE))


@pytest.fixture(scope="module")
def scraping() -> Iterator[httpx.Client]:
    """A Prometheus that scrapes a demo of two workers, after a request and its retry."""
    with DemoServer() as demo, started(lambda: PrometheusServer(f"127.0.0.1:{demo.port}", RULES)) as server:
        request = ask("stripe", fresh())
        assert demo.send(request).status_code == demo.send(request).status_code == 200
        with httpx.Client(base_url=server.url, timeout=60) as client:
            yield client


def found(client: httpx.Client, query: str) -> list[Any]:
    """What a query finds now."""
    told = client.get("/api/v1/query", params={"query": query}).json()
    assert told["status"] == "success", (query, told)
    result: list[Any] = told["data"]["result"]
    return result


def test_a_real_prometheus_reads_the_demo(scraping: httpx.Client) -> None:
    """It takes the page as it is, histograms and labels too, and evaluates every rule."""
    [replays] = until(lambda: found(scraping, "api_idempotency_reserve_replay_count > 0"))
    assert replays["value"][1] == "1"
    assert len(found(scraping, 'api_idempotency_decide_seconds_bucket{le="+Inf"} >= 1')) == 1
    assert len(found(scraping, "api_idempotency_reserve_key_misuse_by_scope_count")) == 16
    assert found(scraping, "api_idempotency_store_up")[0]["value"][1] == "1"

    def evaluated() -> bool:
        rules = scraping.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
        assert not [rule for rule in rules if rule["health"] == "err"]
        return all(rule["health"] == "ok" for rule in rules)

    until(evaluated)


def test_a_real_prometheus_understands_the_dashboard(scraping: httpx.Client) -> None:
    """Each query is one, and finds something; only what divides by nothing finds none."""
    until(lambda: found(scraping, "rate(api_idempotency_reserve_created_count[1m])"))
    for query in QUERIES:
        asked = query.replace("$__rate_interval", "1m").replace("$job", "oncekey")
        assert found(scraping, asked), query
