"""To find out what became of unknown outcomes: resolvers, the worker that asks them, webhooks."""

from oncekey.reconcile.aio import AsyncReconciler
from oncekey.reconcile.findings import Finding, Inquiry, Landed, NotDone, Stopped, TooEarly, Unclear
from oncekey.reconcile.pace import Pace
from oncekey.reconcile.resolvers import Resolver, Resolvers
from oncekey.reconcile.rounds import Report
from oncekey.reconcile.signatures import SignatureRefused, StandardWebhooks, StripeSignature
from oncekey.reconcile.threaded import Reconciler
from oncekey.reconcile.triage import Ending, Rules
from oncekey.reconcile.webhooks import About, Known, Message, Webhook, about_key

__all__ = [
    "About",
    "AsyncReconciler",
    "Ending",
    "Finding",
    "Inquiry",
    "Known",
    "Landed",
    "Message",
    "NotDone",
    "Pace",
    "Reconciler",
    "Report",
    "Resolver",
    "Resolvers",
    "Rules",
    "SignatureRefused",
    "StandardWebhooks",
    "Stopped",
    "StripeSignature",
    "TooEarly",
    "Unclear",
    "Webhook",
    "about_key",
]
