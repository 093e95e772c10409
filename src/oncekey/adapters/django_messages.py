"""Requests and responses of Django, as we read and write them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase

from oncekey.adapters.views import Answer
from oncekey.adapters.wsgi_upload import LengthRequired
from oncekey.errors import ConfigurationError
from oncekey.http.messages import Headers, Reply


def body_of(request: HttpRequest) -> bytes:
    """The whole body; that it ends early is found out by its length."""
    if request.headers.get("Transfer-Encoding") and "wsgi.input" in request.META:
        raise LengthRequired("this server cannot tell where the body ends: send it with a Content-Length")
    try:
        whole: bytes = request.body
    except RawPostDataException:
        raise ConfigurationError(
            "a middleware has read this upload before its view: let it look at headers only, as X-CSRFToken for CSRF"
        ) from None
    return whole


def answer_of(response: Any) -> Answer:
    """What is kept of a response."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    return Answer(response.status_code, headers, None if response.streaming else response.content)


def response_of(reply: Reply) -> HttpResponse:
    """An answer of ours as Django sends it."""
    response = HttpResponse(reply.body, status=reply.status)
    del response["content-type"]
    for name, value in reply.headers:
        name_, said = name.decode("latin-1"), value.decode("latin-1")
        # Django has one line for each name; those that HTTP lets be a list are joined.
        response[name_] = f"{response[name_]}, {said}" if name_ in response else said
    return response


def mark(response: HttpResponseBase, marks: Headers) -> None:
    """Add headers to a response on its way out."""
    for name, value in marks:
        response[name.decode("latin-1")] = value.decode("latin-1")
