"""What an OpenAPI page says of a guarded route: where the key travels, and the refusals that clients may get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncekey.http.gate import Gate

TOLD = "The name of this operation, made once by the client and sent with every retry of it."
REFUSALS = {
    "key-missing": "The key is missing or malformed",
    "in-progress": "The operation is in progress, or its outcome is not known yet",
    "key-reused": "The key was used for another request; or the request is not valid",
    "store-unavailable": "Nothing was done: send the same request with the same key again",
}


def documented(gate: Gate, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """The members of an operation (OpenAPI 3.1), added to those that are given."""
    from oncekey.http.problems import PROBLEMS  # noqa: PLC0415 - only who documents loads it

    dialect, said = gate.dialect, dict(given or {})
    if dialect.header is not None:
        rule = dialect.rule
        schema = {"type": "string", "minLength": rule.min_length, "maxLength": rule.max_length}
        parameter = {"name": dialect.header, "in": "header", "required": gate.required, "schema": schema}
        said["parameters"] = [*said.get("parameters", ()), parameter | {"description": TOLD}]
    media = dialect.media.decode()
    responses: dict[str, Any] = {}
    for slug, description in REFUSALS.items():
        status = str(dialect.status_of(PROBLEMS[slug]))
        responses.setdefault(status, {"description": description, "content": {media: {"schema": {"type": "object"}}}})
    said["responses"] = responses | dict(said.get("responses", ()))
    return said
