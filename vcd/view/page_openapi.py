"""The OpenAPI 3.1 description of ``/api/*``, generated from the questions and the types of their answers.

The page serves it at ``/openapi.json`` without a token, like the page itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from vcd.model.version import __version__
from vcd.view.page_documents import PageError
from vcd.view.questions import PARAMETERS, QUESTIONS, PageQuestion

_ERRORS = {
    "400": "a parameter that cannot be read",
    "401": "no valid bearer token, where one is needed",
    "403": "not permitted by the user's rights in the cluster, or a request of another website",
    "404": "something that is not in the log",
    "500": "a log that cannot be read, or a plugin that fails",
    "503": "the answer takes too long, or too many requests are waiting",
}


def description() -> dict[str, Any]:
    """Return the OpenAPI document as plain dicts and lists."""
    kinds = [question.answer for question in QUESTIONS.values()]
    (*answers, error), parts = msgspec.json.schema_components(
        [*kinds, PageError], ref_template="#/components/schemas/{name}"
    )
    paths = {
        f"/api/{name}": {"get": _operation(name, question, schema, error)}
        for (name, question), schema in zip(QUESTIONS.items(), answers, strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vcd view",
            "version": __version__,
            "description": "What the page shows, read from an event log. Without a token only where the page is served"
            " on the machine itself; a user with a token gets what their rights in the cluster include.",
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(parts.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(name: str, question: PageQuestion, answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": {"description": "the answer", "content": {"application/json": {"schema": answer}}}}
    for status, what in _ERRORS.items():
        responses[status] = {"description": what, "content": {"application/json": {"schema": error}}}
    return {
        "operationId": name,
        "summary": question.about,
        "parameters": [_parameter(each) for each in question.parameters],
        "responses": responses,
    }


def _parameter(name: str) -> dict[str, Any]:
    about = PARAMETERS[name].removesuffix("; required")
    return {
        "name": name,
        "in": "query",
        "required": about != PARAMETERS[name],
        "description": about,
        "schema": {"type": "integer" if name in ("from", "number", "session", "to") else "string"},
    }
