"""Every transport behind one function, so that one test holds all of them to the same words."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import aiohttp
import httpx
import requests

from oncekey.client.aiohttp import RetryMiddleware
from oncekey.client.httpx import AsyncRetryTransport, RetryTransport
from oncekey.client.requests import RetryAdapter
from oncekey.client.urllib3 import RetryPoolManager


class Got(NamedTuple):
    status: int
    body: bytes


def by_httpx(method: str, url: str, body: bytes, headers: dict[str, str], **terms: Any) -> Got:
    with httpx.Client(transport=RetryTransport(**terms), follow_redirects=True) as client:
        response = client.request(method, url, content=body, headers=headers)
        return Got(response.status_code, response.content)


def by_async_httpx(method: str, url: str, body: bytes, headers: dict[str, str], **terms: Any) -> Got:
    async def call() -> Got:
        async with httpx.AsyncClient(transport=AsyncRetryTransport(**terms), follow_redirects=True) as client:
            response = await client.request(method, url, content=body, headers=headers)
            return Got(response.status_code, response.content)

    return asyncio.run(call())


def by_requests(method: str, url: str, body: bytes, headers: dict[str, str], **terms: Any) -> Got:
    with requests.Session() as session:
        session.mount("http://", RetryAdapter(**terms))
        session.mount("https://", RetryAdapter(**terms))
        response = session.request(method, url, data=body, headers=headers)
        return Got(response.status_code, response.content)


def by_urllib3(method: str, url: str, body: bytes, headers: dict[str, str], **terms: Any) -> Got:
    terms["retries_by"] = terms.pop("retries", None)
    with RetryPoolManager(**terms) as http:
        response = http.request(method, url, body=body, headers=headers)
        return Got(response.status, response.data)


def by_aiohttp(method: str, url: str, body: bytes, headers: dict[str, str], **terms: Any) -> Got:
    async def call() -> Got:
        async with (
            aiohttp.ClientSession(middlewares=[RetryMiddleware(**terms)]) as session,
            session.request(method, url, data=body, headers=headers) as response,
        ):
            return Got(response.status, await response.read())

    return asyncio.run(call())


CALLERS = {
    "httpx": by_httpx,
    "httpx-async": by_async_httpx,
    "requests": by_requests,
    "urllib3": by_urllib3,
    "aiohttp": by_aiohttp,
}
FOREIGN: dict[str, type[Exception]] = {
    "httpx": httpx.TransportError,
    "httpx-async": httpx.TransportError,
    "requests": requests.ConnectionError,
    "urllib3": __import__("urllib3").exceptions.HTTPError,
    "aiohttp": aiohttp.ClientConnectionError,
}
