from __future__ import annotations

import base64
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from oncekey.demo.openapi import document
from tests.demo.server import DemoServer

DOCUMENT = document()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
BASIC = base64.b64encode(b"client:secret").decode()
CALLERS = {"Authorization": "Bearer alice", "X-API-Key": "adyen-alice"}


@SCHEMA.parametrize()
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_demo_answers_as_its_document_says(case: Any, demo: DemoServer) -> None:
    """Whatever its OpenAPI document allows, and what it does not: 2xx or a documented 4xx, in the documented shape."""
    callers = {"Authorization": f"Basic {BASIC}"} if case.path == "/v1/oauth2/token" else CALLERS
    response = case.call(base_url=demo.url, headers=callers)
    case.validate_response(response, checks=CHECKS)
    # Ranges are there for what marks in a body ask for; these requests have none.
    operation = DOCUMENT["paths"][case.path].get(case.method.lower(), {"responses": {"405"}})
    assert str(response.status_code) in operation["responses"]
