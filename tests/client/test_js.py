"""The TypeScript client: compiled, packed, and run in Node and in Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CLIENTS = Path(__file__).parents[2] / "clients"
BIN = Path(sys.executable).parent
CHROMIUM = shutil.which("chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def run(folder: Path, *words: str) -> str:
    """One program of Node's, to its end."""
    environment = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "npm_config_update_notifier": "false",
    }
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, installed by its lock and compiled: every warning of the compiler is an error."""
    clients = tmp_path_factory.mktemp("clients")
    shutil.copytree(CLIENTS / "vectors", clients / "vectors")
    made = clients / "js"
    shutil.copytree(CLIENTS / "js", made, ignore=shutil.ignore_patterns("node_modules", "dist"))
    npm = shutil.which("npm") if not (BIN / "npm").exists() else str(BIN / "npm")
    assert npm
    run(made, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", f"--cache={tmp_path_factory.getbasetemp()}/npm")
    run(made, str(BIN / "node"), "node_modules/typescript/bin/tsc")
    return made


def test_it_passes_its_tests_in_node(package: Path) -> None:
    """The shared vectors, and its manners on sockets that misbehave."""
    said = run(package, str(BIN / "node"), "--test", "test/*.test.js")
    passed = re.search(r"^. pass (\d+)$", said, re.MULTILINE)
    assert passed
    assert int(passed[1]) >= 160


def examples() -> list[str]:
    """The code of the package's own page, each with an import of its own."""
    return re.findall(r"^```ts\n(.*?)^```", (CLIENTS / "js" / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_what_is_published(package: Path) -> None:
    """The compiled modules with their types, without dependencies; the lock names no place to download from."""
    told = json.loads(run(package, str(BIN / "npm"), "pack", "--dry-run", "--json", "--ignore-scripts"))
    names = {file["path"] for file in told[0]["files"]}
    modules = {path.stem for path in (package / "src").glob("*.ts")}
    assert names == {"package.json", "README.md", "LICENSE"} | {
        f"dist/{name}{end}" for name in modules for end in (".js", ".d.ts")
    }
    described = json.loads((package / "package.json").read_text("utf-8"))
    assert "dependencies" not in described
    assert (package / "LICENSE").read_text("utf-8") == (CLIENTS.parent / "LICENSE").read_text("utf-8")
    assert "://" not in (package / "package-lock.json").read_text("utf-8").replace("https://github.com", "")


CONSUMER = """
import { Client, type Entry, GaveUp, Journal, MemoryStorage, OutcomeUnknown, type Report } from "@oncekey/client";
import { FolderStorage } from "@oncekey/client/node";

const client = new Client({ journal: new Journal(new FolderStorage("intents")), retries: { attempts: 2 } });
const paid: Promise<Response> = client.intent("pay", ["17", 1], (fetch, key: string) => fetch("/pay", { method: key }));
const report: Promise<Report> = client.resume({ queue: "default" });
export const trouble = (error: unknown): string => (error instanceof OutcomeUnknown ? error.key : "");
// @ts-expect-error -- an intent needs to say whose it is
client.intent("pay", () => undefined);
// @ts-expect-error -- durations are numbers
new Client({ retries: { tryFor: "1 minute" } });
export { type Entry, GaveUp, MemoryStorage, paid, report };
"""


def test_the_tarball_can_be_used(package: Path, tmp_path: Path) -> None:
    """Installed from what would be published, it is imported by Node, and its types say what is wrong."""
    told = json.loads(
        run(package, str(BIN / "npm"), "pack", "--json", "--ignore-scripts", f"--pack-destination={tmp_path}")
    )
    inside = tmp_path / "node_modules" / "@oncekey" / "client"
    inside.mkdir(parents=True)
    run(tmp_path, "tar", "xzf", str(tmp_path / told[0]["filename"]), "--strip-components=1", "-C", str(inside))
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    (tmp_path / "consumer.ts").write_text(CONSUMER, "utf-8")
    known = "declare const order: { id: string }, body: string, token: string;\n"
    (tmp_path / "readme.ts").write_text(known + "\n".join(examples()), "utf-8")
    strict = ("--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "consumer.ts", "readme.ts")
    run(tmp_path, str(BIN / "node"), str(package / "node_modules/typescript/bin/tsc"), *strict)
    script = """
        import * as whole from "@oncekey/client"; import * as node from "@oncekey/client/node";
        console.log(typeof whole.Client, typeof node.FolderStorage)
    """
    assert run(tmp_path, str(BIN / "node"), "--input-type=module", "-e", script) == "function function\n"


class Shop(ThreadingHTTPServer):
    """Serves the page, and loses the first answers to each order."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.keys: list[str] = []
        self.losing = 0


class Handler(BaseHTTPRequestHandler):
    server: Shop

    def log_message(self, *words: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        file = (self.server.root / self.path.lstrip("/")).resolve()
        if not file.is_file():
            self.send_error(404)
            return
        kind = {".js": "text/javascript", ".html": "text/html"}.get(file.suffix, "application/json")
        self.answer(200, file.read_bytes(), kind)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.keys.append(self.headers["Idempotency-Key"])
        if self.server.losing > 0:
            self.server.losing -= 1
            self.close_connection = True
            return
        self.answer(201, b'{"id":"a"}', "application/json")

    def answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def shop(package: Path) -> Iterator[Shop]:
    server = Shop(package.parent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's own; none is downloaded."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, shop: Shop) -> Iterator[Page]:
    context = browser.new_context()
    yield opened(context.new_page(), shop)
    context.close()


def opened(page: Page, shop: Shop) -> Page:
    page.goto(f"http://127.0.0.1:{shop.server_port}/js/test/page.html")
    page.wait_for_function("window.ready")
    return page


def test_a_browser_decides_as_python_does(page: Page) -> None:
    """The shared vectors, in Chromium."""
    count = sum(len(json.loads(path.read_text("utf-8"))) for path in (CLIENTS / "vectors").glob("*.json"))
    assert page.evaluate("vectors()") == {"wrong": [], "count": count}


def test_an_intent_survives_its_page(page: Page, shop: Shop) -> None:
    """A page is closed without an answer; the next one sends the same key, a third has the answer without asking."""
    shop.losing = 3
    assert page.evaluate("pay('17')") == "OutcomeUnknown"
    again = opened(page.context.new_page(), shop)
    page.close()
    assert again.evaluate("pay('17')") == {"id": "a"}
    assert opened(again, shop).evaluate("pay('17')") == {"id": "a"}
    assert len(shop.keys) == 4
    assert len(set(shop.keys)) == 1


def test_the_example_of_its_page_runs(page: Page, shop: Shop) -> None:
    """In a browser, as it stands there: an order, a charge that is an intent, and what was left."""
    first = examples()[0].replace('"@oncekey/client"', f'"http://127.0.0.1:{shop.server_port}/js/dist/index.js"')
    known = 'const order = { id: "7" }, body = "{}", token = "t";\n'
    script = "(text) => import(URL.createObjectURL(new Blob([text], { type: 'text/javascript' }))).then(() => true)"
    assert page.evaluate(script, known + first)
    assert len(shop.keys) == len(set(shop.keys)) == 2


def test_tabs_agree_on_a_key(page: Page, shop: Shop) -> None:
    """Two tabs that begin the same intent send the same key."""
    other = opened(page.context.new_page(), shop)
    assert page.evaluate("begin('18')") == other.evaluate("begin('18')")
    assert page.evaluate("begin('19')") != page.evaluate("begin('18')")


def test_a_page_resumes_what_another_left(page: Page, shop: Shop) -> None:
    """Everything without an answer is sent again under its key."""
    shop.losing = 3
    assert page.evaluate("pay('20')") == "OutcomeUnknown"
    report = opened(page.context.new_page(), shop).evaluate("resume()")
    assert report["done"] == [shop.keys[0]]
    assert len(set(shop.keys)) == 1
