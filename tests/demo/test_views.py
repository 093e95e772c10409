"""Health, metrics, the OpenAPI document and the start page."""

from __future__ import annotations

import re

from oncekey.demo.apis import APIS
from oncekey.telemetry.metrics import METRICS
from tests.demo.server import DemoServer, ask, fresh

SEEDS = {
    "reserve": ("created", "replay", "in_progress", "key_misuse", "failed_retry", "unknown"),
    "reconcile": ("scheduled", "resolved", "failed"),
    "store": ("error",),
    "zombie": ("key",),
    "ttl": ("pruned",),
}


def scraped(demo: DemoServer) -> dict[str, int]:
    """The metrics page as Prometheus reads it."""
    answer = demo.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", answer.text, re.MULTILINE)}


def test_all_counters_are_there_from_the_first_scrape(demo: DemoServer) -> None:
    """Every counter of the seeds has a line, with help and type, though nothing may have moved it yet."""
    wanted = {f"api_idempotency_{first}_{last}_count" for first, lasts in SEEDS.items() for last in lasts}
    assert wanted <= set(scraped(demo))
    text = demo.get("/metrics").text
    for metric in METRICS:
        name = metric.name.replace(".", "_")
        assert f"# HELP {name} {metric.help}\n# TYPE {name} counter\n{name}" in text
        labels = "".join(f'{{{label}="{value}"}}' for label, value in metric.labels)
        assert f"\n{name}{labels} " in text


def test_counters_are_summed_over_workers(demo: DemoServer) -> None:
    """Whichever worker serves a request or a scrape, the sums are those of all."""
    before = scraped(demo)
    requests = [ask("stripe", fresh()) for _ in range(8)]
    for request in requests * 2:
        demo.send(request)
    demo.send(requests[0]._replace(body=b"amount=1"))
    for _ in range(4):
        after = scraped(demo)
        names = {name: f"api_idempotency_reserve_{name}_count" for name in ("created", "replay", "key_misuse")}
        moved = {name: after[full] - before[full] for name, full in names.items()}
        assert moved == {"created": 8, "replay": 8, "key_misuse": 1}


def test_the_feed_shows_requests_beside_charges(demo: DemoServer) -> None:
    """Each request has its verdict; keys do not appear, only references."""
    key, ref = fresh("secretkey"), fresh("ref")
    request = ask("ietf", key, f"probe:ref={ref}")
    for _ in range(2):
        demo.send(request)
    demo.send(request._replace(body=b"{}"))
    told = demo.recent()
    mine = [line for line in told["requests"] if line["api"] == "ietf"][:3]
    assert [line["verdict"] for line in mine] == ["mismatch", "replayed", "executed"]
    assert len({line["ref"] for line in mine}) == 1
    assert [run["ref"] for run in told["runs"]].count(ref) == 1
    assert key not in demo.get("/__probe__/recent").text


def test_the_console_is_closed(demo: DemoServer) -> None:
    """Nobody sees anything of it without the token that was made up for this run."""
    answer = demo.get("/console/")
    assert (answer.status_code, "Sign in" in answer.text) == (401, True)
    assert demo.get("/console").headers["location"] == "console/"


def test_health_names_the_worker(demo: DemoServer) -> None:
    """Anybody may ask, and HEAD is answered like GET without a body."""
    told = demo.get("/healthz").json()
    assert (told["status"], told["worker"] > 1) == ("ok", True)
    head = demo.http.head(f"{demo.url}/healthz")
    assert (head.status_code, head.content) == (200, b"")


def test_the_openapi_document_has_every_route(demo: DemoServer) -> None:
    """All routes of all APIs are documented with their methods, and every reference resolves."""
    answer = demo.get("/openapi.json")
    document = answer.json()
    documented = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert {(route.method, route.path) for api in APIS for route in api.routes} <= documented
    names = re.findall(r'"#/components/schemas/(\w+)"', answer.text)
    assert set(names) == set(document["components"]["schemas"])


def test_the_start_page_needs_nothing_from_elsewhere(demo: DemoServer) -> None:
    """Its parts are served here, under a policy that forbids all else."""
    page = demo.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    linked = re.findall(r'(?:href|src)="([^"#]+)', page.text)
    assert {"/static/page.js", "/static/style.css", "/favicon.svg"} <= set(linked)
    for link in linked:
        assert link.startswith("/")
        assert demo.get(link).status_code == 200
    assert "://" not in page.text + demo.get("/static/style.css").text
