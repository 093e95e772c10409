"""A console without a server: requests to it as a browser sends them."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx

from oncekey.console import Console
from oncekey.stores.memory import MemoryStore

TOKEN = "opens the console"
HOST = "http://shop.example"


class Visitor:
    """Somebody with a browser: cookies are kept, and forms are sent with what the page has put into them."""

    def __init__(self, console: Any, root: str = "") -> None:
        transport = httpx.ASGITransport(console, root_path=root, raise_app_exceptions=True)
        self.root = root
        self.console = console
        self.http = httpx.AsyncClient(transport=transport, base_url=HOST, follow_redirects=False)

    async def get(self, place: str = "") -> httpx.Response:
        """Open a page."""
        return await self.http.get(f"{self.root}/{place}")

    async def post(self, place: str, headers: dict[str, str] | None = None, /, **fields: str) -> httpx.Response:
        """Send a form, with its pair."""
        paired = next((value for name, value in self.http.cookies.items() if name.startswith("oncekey_form")), "")
        sent = {"form": paired} | fields
        said = {"sec-fetch-site": "same-origin"} if headers is None else headers
        return await self.http.post(f"{self.root}/{place}", data=sent, headers=said)

    async def sign_in(self, name: str = "Alice", token: str = TOKEN, **fields: str) -> httpx.Response:
        """Through the form."""
        await self.get("login")
        return await self.post("login", name=name, token=token, **fields)

    async def decide(self, id_: bytes, kind: str, **fields: str) -> httpx.Response:
        """Send one of the forms of an operation, made for how it stands now; with step="do", the confirmed one."""
        page = await self.get(f"operations/{id_.hex()}")
        fields.setdefault("mark", hidden(page, "mark"))
        return await self.post(f"operations/{id_.hex()}/{kind}", **fields)


def hidden(page: httpx.Response, name: str) -> str:
    """What a page put into its forms under a name."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    return html.unescape(found[1]) if found else ""


def words(page: httpx.Response) -> str:
    """What a page says, without its marks."""
    text = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page.text, flags=re.DOTALL)
    return " ".join(html.unescape(text).split())


async def let_in(store: Any, **choices: Any) -> Visitor:
    """Somebody who has signed in to a console of this store."""
    visitor = Visitor(Console(store, token=TOKEN, **choices))
    assert (await visitor.sign_in()).status_code == 303
    return visitor


__all__ = ["HOST", "TOKEN", "MemoryStore", "Visitor", "hidden", "let_in", "words"]
