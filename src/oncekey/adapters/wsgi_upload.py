"""The request's half of a WSGI exchange: what was asked, and the body, read whole and up to a cap before any claim."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from oncekey.errors import BodyIncomplete, RequestRefused
from oncekey.http.messages import Headers, Reply, Request

if TYPE_CHECKING:
    from wsgiref.types import InputStream, WSGIEnvironment

    from oncekey.http.gate import Gate

# Ways by which bytes would reach the client past us, or work would hear that the client has left: on a guarded request
# they are not offered.
BYPASSES = frozenset(
    {"wsgi.file_wrapper", "wsgi.early_hints", "gunicorn.socket", "gunicorn.http2.send_trailers", "werkzeug.socket"}
    | {"waitress.client_disconnected"}
)
PIECE = 1 << 16
# Where the application finds its Operation. With a dot: the others are texts, by the rules of WSGI.
OPERATION = "oncekey.operation"


class LengthRequired(RequestRefused):
    """Nobody says where the body ends."""

    status = 411


def request_of(environ: WSGIEnvironment) -> Request:
    """The request, its body still unread."""
    path = _bytes(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))
    # Escaped bytes that are no UTF-8 stay apart from each other.
    text = path.decode("utf-8", "surrogateescape") or "/"
    return Request(environ["REQUEST_METHOD"], text, _bytes(environ.get("QUERY_STRING", "")), _headers(environ), b"")


def _headers(environ: WSGIEnvironment) -> Headers:
    headers = [
        (name[5:].replace("_", "-").lower().encode(), _bytes(value))
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    ]
    for name, header in (("CONTENT_TYPE", b"content-type"), ("CONTENT_LENGTH", b"content-length")):
        if environ.get(name):
            headers.append((header, _bytes(environ[name])))
    return headers


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:  # against the rules of WSGI; it must not turn into something else
        return text.encode("utf-8", "surrogatepass")


def read(environ: WSGIEnvironment, request: Request, gate: Gate) -> Reply | None:
    """Read the body into the request, or return its refusal. What the server raises is passed on: nothing has begun."""
    stream: InputStream = environ["wsgi.input"]
    declared = environ.get("CONTENT_LENGTH") or ""
    if environ.get("HTTP_TRANSFER_ENCODING"):
        declared = ""
    elif not declared and environ.get("SERVER_PROTOCOL", "HTTP/1.1").startswith("HTTP/1"):
        return None
    if declared:
        return _read_declared(stream, declared, request, gate)
    if not environ.get("wsgi.input_terminated"):
        raise LengthRequired("this server cannot tell where the body ends: send it with a Content-Length")
    return _read_to_end(stream, request, gate)


def _read_declared(stream: InputStream, declared: str, request: Request, gate: Gate) -> Reply | None:
    if not (declared.isascii() and declared.isdigit()):
        raise RequestRefused("the Content-Length is no number: send the length of the body in bytes")
    # With more digits than these it is too large anyway, and Python reads no number of any length.
    size = left = int(declared.lstrip("0")[:19] or "0")
    if (refusal := gate.too_large(size)) is not None:
        return refusal
    pieces = []
    while left and (piece := stream.read(min(left, PIECE))):
        pieces.append(piece)
        left -= len(piece)
    if left:
        raise BodyIncomplete(f"the upload ended {left} bytes before the body did; nothing was done, send it again")
    request.body = b"".join(pieces)
    return None


def _read_to_end(stream: InputStream, request: Request, gate: Gate) -> Reply | None:
    pieces, size = [], 0
    while piece := stream.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        if (refusal := gate.too_large(size)) is not None:
            return refusal
    request.body = b"".join(pieces)
    return None


def with_body(environ: WSGIEnvironment, body: bytes) -> dict[str, Any]:
    """An environment of its own, in which the body that we have read can be read again."""
    own = {**environ, "wsgi.input": BytesIO(body), "wsgi.input_terminated": True}
    if own.pop("HTTP_TRANSFER_ENCODING", None) or body:
        own["CONTENT_LENGTH"] = str(len(body))
    return own


def guarded(environ: WSGIEnvironment, body: bytes, operation: object) -> dict[str, Any]:
    """What the application gets when it runs under a claim."""
    own = {name: value for name, value in with_body(environ, body).items() if name not in BYPASSES}
    own[OPERATION] = operation
    return own
