"""To find out what became of unknown outcomes: resolvers, the worker that asks them, webhooks."""

from oncekey.reconcile.aio import AsyncReconciler
from oncekey.reconcile.findings import Finding, Inquiry, Landed, NotDone, Stopped, TooEarly, Unclear
from oncekey.reconcile.pace import Pace
from oncekey.reconcile.resolvers import Resolver, Resolvers
from oncekey.reconcile.rounds import Report
from oncekey.reconcile.threaded import Reconciler
from oncekey.reconcile.triage import Ending, Rules

__all__ = [
    "AsyncReconciler",
    "Ending",
    "Finding",
    "Inquiry",
    "Landed",
    "NotDone",
    "Pace",
    "Reconciler",
    "Report",
    "Resolver",
    "Resolvers",
    "Rules",
    "Stopped",
    "TooEarly",
    "Unclear",
]
