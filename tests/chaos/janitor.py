"""Sweeps, purges and reconciles beside the workers, ten times a second. Two of them run at once.

The reconciler asks the provider alone: cancel first, then read. What has landed is the answer; what has not cannot.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress

from oncekey.core.commands import Done, Swap
from oncekey.core.keys import key_ref
from oncekey.core.outcome import pack
from oncekey.core.policy import ms
from oncekey.core.record import Record, State
from oncekey.core.transitions import Aftermath, Facts, moved
from oncekey.errors import OnceKeyError
from oncekey.http.capture import kept_headers
from oncekey.operations import purge, sweep
from oncekey.stores.contract import Store
from oncekey.stores.open import open_store
from tests.chaos import mutants, speech, versions
from tests.chaos.payment import payment
from tests.chaos.settings import KEEP_FOR, PROVIDER_WITHIN, STORE_FOR, TERMS, Settings, sealer
from tests.chaos.trace import Trace


class Janitor:
    """One of them."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.provider = settings.provider
        self.trace = Trace(settings.trace)
        self.store = store
        self.seals = sealer(settings.version)

    def run_once(self) -> None:
        """Sweep what has lapsed, purge what has expired, reconcile what is due."""
        swept = sweep(self.store, TERMS)
        purged = purge(self.store)
        for word, times in (("lapsed", swept.unknown), ("purged", purged.deleted)):
            if times:
                self.trace.note(word, times=times)
        page = self.store.scan((State.UNKNOWN,), due_before=-1)
        for record in page.records:
            self.reconcile(record, page.now)

    def reconcile(self, record: Record, now: int) -> None:
        """Find out what happened to one operation, and record it."""
        ref = key_ref(record.id)
        data = json.dumps({"ref": ref, "upto": record.attempts}).encode()
        landed = asyncio.run(speech.ask(self.provider, speech.request("/cancel", {}, data), PROVIDER_WITHIN)).json()
        if landed:
            status, headers, body = payment(**landed[0])
            outcome = self.seals.seal(record.id, pack(status, kept_headers(headers), body))
            after = Aftermath(keep_for=ms(KEEP_FOR), note="the provider has it", outcome=outcome)
            new, word = moved("reconcile_done", record, Facts(now, effect_seen=True), after), "unknown-done"
        else:
            after = Aftermath(keep_for=ms(KEEP_FOR), note="cancelled at the provider before it landed")
            new, word = moved("reconcile_not_done", record, Facts(now, cannot_land=True), after), "unknown-not-done"
        if new is not None:
            done = isinstance(self.store.swap(Swap(record, new)), Done)
            self.trace.note(word if done else "reconciliation-refused", ref=ref)


def main() -> None:
    settings = Settings.ours()
    versions.write(settings.version)
    mutants.install(settings.mutant)
    janitor = Janitor(
        settings, mutants.janitors_store(open_store(settings.store, store_for=STORE_FOR), settings.mutant)
    )
    while True:
        with suppress(OnceKeyError, speech.Cut, speech.NotSent):  # the store or the provider is away: next time
            janitor.run_once()
        time.sleep(settings.each)
