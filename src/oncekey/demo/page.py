"""The start page and its two companions, read once and sent with headers that allow nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from oncekey.demo.web import answered
from oncekey.http.messages import Reply

_FOLDER = Path(__file__).with_name("static")
_FILES = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/static/style.css": ("style.css", b"text/css; charset=utf-8"),
    "/static/page.js": ("page.js", b"text/javascript; charset=utf-8"),
    "/favicon.svg": ("favicon.svg", b"image/svg+xml"),
}
_POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        _POLICY,
    ),
]


def pages() -> dict[str, Reply]:
    """Path -> the whole answer."""
    return {
        path: answered(200, media, (_FOLDER / name).read_bytes(), _HEADERS) for path, (name, media) in _FILES.items()
    }
