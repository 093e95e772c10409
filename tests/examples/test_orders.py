"""The order service: killed at every step, and shown by its own command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

from tests.examples.steps import STEPS
from tests.infra import RabbitServer

ROOT = Path(__file__).parents[2]


def run(*words: str, **told: str) -> str:
    """What a module of this tree says."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", *words],
        cwd=ROOT,
        env=os.environ | told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_killed_at_every_step_there_is_one_of_each(postgres_url: str, rabbitmq_server: RabbitServer) -> None:
    """Whatever dies where, and is started again: as many orders, messages and shipments as there were wishes."""
    said = run(
        *("tests.examples.storm", "--orders", "60", "--kills", str(len(STEPS))),
        *("--database", postgres_url, "--broker", rabbitmq_server.url),
        QUEUE=uuid.uuid4().hex,
    )
    assert {line.partition("kills")[2].strip() for line in said.splitlines() if ": " in line} == set(map(str, STEPS))
    assert "60 orders, 60 messages, 60 shipments, 60 answers\none of each\n" in said


def test_the_example_runs_as_its_page_says(postgres_url: str, rabbitmq_server: RabbitServer) -> None:
    """`make example` starts everything, kills at random, and counts."""
    said = run(
        *("examples.orders.run", "--orders", "8", "--kills", "2"),
        DATABASE=postgres_url,
        BROKER=rabbitmq_server.url,
        QUEUE=uuid.uuid4().hex,
    )
    assert len(re.findall(r"^kill -9 \d+ +the (shop|relay|warehouse)$", said, re.MULTILINE)) == 2
    assert "orders 8   messages 8   shipments 8" in said
