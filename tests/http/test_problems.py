from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncekey.http.dialects import DIALECTS, dialect
from oncekey.http.problems import PROBLEMS, TYPE_BASE, Fault, Problem
from oncekey.http.shapes import ADYEN_CODES, AWS_TYPES, PAYPAL_CODES, SQUARE_CODES, STRIPE_CODES, STRIPE_TYPES
from tests.http.dialect_tables import TABLES

DOCS = Path(__file__).parents[2] / "docs"
HEADINGS = ["## What happened", "## As a client", "## As an operator"]


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_every_problem_has_its_page(problem: Problem) -> None:
    """Title, type, status and next step are those of the table, and all three readers' questions are answered."""
    text = (DOCS / "problems" / f"{problem.slug}.md").read_text()
    assert text.startswith(f"# {problem.title}\n")
    assert f"| type | `{TYPE_BASE}{problem.slug}` |" in text
    assert f"| status | {problem.status}, unless" in text
    assert f"| retry | `{problem.retry}`:" in text
    assert re.findall(r"^## .*", text, re.MULTILINE) == HEADINGS


def test_every_page_has_its_problem() -> None:
    """A page without a problem is a link that nobody follows."""
    assert {page.stem for page in (DOCS / "problems").glob("*.md")} == set(PROBLEMS)


def test_types_are_stable() -> None:
    """Clients compare them: a published name is never changed, only new ones are added."""
    assert set(PROBLEMS) >= {
        *("key-missing", "key-invalid", "key-repeated", "key-reused", "in-progress", "retry-later", "outcome-unknown"),
        *("lease-lost", "answer-not-kept", "key-expired", "attempts-exhausted", "not-executed", "body-too-large"),
        *("body-incomplete", "caller-unknown", "request-refused", "store-unavailable", "record-unreadable"),
    }
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", slug) for slug in PROBLEMS)


@pytest.mark.parametrize("codes", [SQUARE_CODES, ADYEN_CODES, PAYPAL_CODES])
def test_providers_have_a_code_for_every_problem(codes: dict) -> None:
    """A new problem must be given one."""
    assert set(codes) == set(PROBLEMS)


def test_the_other_tables_name_problems_only() -> None:
    """Their remaining problems have the common code."""
    assert set(STRIPE_TYPES) | set(STRIPE_CODES) | set(AWS_TYPES) <= set(PROBLEMS)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_on_dialects_shows_the_data(name: str) -> None:
    """docs/dialects.md is compared as a whole table; on a difference, put the table that is printed there."""
    text = (DOCS / "dialects.md").read_text()
    shown = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- end -->", text, re.DOTALL)
    assert shown is not None
    assert shown[1] == TABLES[name]()


def test_a_dialect_may_have_pages_of_its_own() -> None:
    """The base of the types is a choice of the dialect."""
    fault = Fault(PROBLEMS["key-reused"], 422, "x", PROBLEMS["key-reused"].retry, docs="https://docs.example.com/")
    extra, body = dialect("ietf").shape(fault)
    assert (extra, b'"type":"https://docs.example.com/key-reused"' in body) == ((), True)
    assert all(one.docs == TYPE_BASE for one in DIALECTS.values())
