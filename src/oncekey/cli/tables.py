"""Tables and progress for people. Text of strangers (keys, notes, bodies) is shown as text, never as markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from oncekey.cli.outputs import Showing, Told
from oncekey.core.journal import Asked, Audit, Call, Journal, Step, Trace
from oncekey.core.keys import key_ref
from oncekey.core.outcome import Answer, Tombstone, Value
from oncekey.core.record import Record, Seen, State
from oncekey.operations import (
    AppHealth,
    Change,
    CopyReport,
    EraseReport,
    Exported,
    Finding,
    Health,
    Kept,
    Listing,
    MigrationReport,
    PurgeReport,
    Risk,
    digest,
    history,
    kept,
)
from oncekey.operations.words import brief, coming, instant, many, size, visible
from oncekey.reconcile.rounds import Report

STYLES = {
    State.CLAIMED: "cyan",
    State.EXECUTING: "cyan",
    State.COMPLETED: "green",
    State.FAILED_RETRYABLE: "yellow",
    State.UNKNOWN: "bold red",
    State.EXPIRED: "dim",
}
LEVELS = {"ok": "green", "warning": "yellow", "exposed": "bold red", "refusal": "bold red"}


class Paper(Console):
    """A console that leaves a broken pipe to whoever runs the command; rich would end the program by itself."""

    def on_broken_pipe(self) -> NoReturn:
        """Say so."""
        raise BrokenPipeError


class TableOutput:
    """Results as tables on standard output; hints and progress on standard error."""

    def __init__(self, *, color: bool = True) -> None:
        no_color = None if color else True  # None: as NO_COLOR and the terminal say
        self.out = Paper(no_color=no_color, highlight=False)
        self.err = Paper(stderr=True, no_color=no_color, highlight=False)

    def listing(self, found: Listing, showing: Showing) -> None:
        """One line for each operation, and another for its key and its note where it has them."""
        if not found.records:
            self.err.print("no such operations")
            return
        table = _table("REF", "STATE", "AGE", "NEXT", "TRY", "SCOPE")
        table.add_column("ENDPOINT, NOTE", overflow="fold")
        for record in found.records:
            table.add_row(
                key_ref(record.id),
                Text(record.state.word, STYLES[record.state]),
                brief(found.now - record.claimed_at),
                coming(record, found.now),
                str(record.attempts),
                Text(visible(record.label.scope[:6]) or "-"),
                _details(record, showing),
            )
        self.out.print(table)
        if found.after is not None:
            self.err.print(Text(f"there are more: add --after {found.after}", overflow="ignore", no_wrap=True))

    def operation(self, seen: Seen, showing: Showing) -> None:
        """All that is known of one."""
        record, now = seen
        found = kept(record, showing.sealer)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        rows = [*_facts(record, now, showing), *_outcome(found), *_trail(history(record, showing.sealer), now)]
        for name, value in rows:
            table.add_row(name, value if isinstance(value, Text) else Text(value))
        self.out.print(table)
        if showing.body:
            self.out.print()
            self.out.print(Text(_body(found)), soft_wrap=True)

    def changed(self, change: Change) -> None:
        """From where to where; or why not."""
        ref = key_ref(change.before.id)
        if change.moved_on:
            self.out.print(Text(f"{ref}: nothing was done: it changed meanwhile, look again"))
            return
        where = _way(change.before.state, change.after.state)
        self.out.print(Text(f"{'would be' if change.rehearsed else 'done'}: {ref} {where}"))

    def reconciled(self, report: Report) -> None:
        """What a round came to, in a line."""
        named = ("landed", "not_done", "unclear", "dead_letter", "moved_on")
        counts = {name.replace("_", " "): getattr(report, name) for name in named}
        swept = report.swept.unknown + report.swept.failed_retryable
        said = [f"{count} {name}" for name, count in ({"swept": swept} | counts).items() if count]
        self.out.print(f"asked about {report.asked}: {', '.join(said) or 'nothing was due'}")

    def migrated(self, report: MigrationReport) -> None:
        """What was done, or is to be done."""
        if not report.done:
            self.out.print("nothing to do")
        for line in report.done:
            self.out.print(Text(f"{'missing' if report.rehearsed else 'done'}: {line}"))

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Told]:
        """Progress while it runs, on a terminal only."""
        if not self.err.is_terminal:
            yield lambda done: None
            return
        columns = (SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.err, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)

    def erased(self, report: EraseReport) -> None:
        """How many are gone, and what is left and why."""
        self.out.print(f"{'would be' if report.rehearsed else 'done'}: {many(report.erased, 'answer')} erased")
        for count, said in (
            (report.unfinished, "not finished, so their answers are still to come: settle them, and run this again"),
            (report.unreadable, "cannot be read here: give the application's ring in ONCEKEY_SEAL_KEYS"),
            (report.moved_on, "changed meanwhile: run this again"),
            (report.nameless, "finished ones do not say whose they are: see docs/howto/erase.md"),
        ):
            if count:
                self.out.print(Text(f"left: {count} {said}"))
        if not report.finished:
            self.out.print("stopped before the end: run this again")

    def purged(self, report: PurgeReport) -> None:
        """What is gone and what was swept."""
        swept = report.swept
        would = "would be " if report.rehearsed else ""
        self.out.print(f"{would}swept: {swept.unknown} to unknown, {swept.failed_retryable} to failed_retryable")
        if swept.moved_on:
            self.out.print(f"  {swept.moved_on} more were settled or renewed by others meanwhile")
        end = "" if report.finished else "; stopped before the end" if report.stopped else "; limit reached"
        self.out.print(f"{would}deleted: {report.deleted} expired{end}")

    def copied(self, report: CopyReport) -> None:
        """What was written, what stands now, and what must still be done."""
        last = report.last
        self.out.print(
            f"{'would be' if report.rehearsed else 'done'}: {report.copied} copied, {report.brought} replaced by newer "
            f"ones, in {report.passes} {'pass' if report.passes == 1 else 'passes'}"
        )
        states = ", ".join(f"{count} {word}" for word, count in sorted(last.states.items()))
        self.out.print(f"the source has {states or 'nothing'}; {last.expired} expired and left out")
        if report.identical:
            self.out.print(Text(f"identical: {many(last.same, 'record')}, digest {digest(last.sum_source)}", "green"))
        elif not report.rehearsed:
            self.out.print(Text("not identical yet", "bold red"))
        for line in _to_do(report):
            self.out.print(Text(line))

    def exported(self, done: Exported) -> None:
        """What is in the file."""
        if done.stopped:
            self.out.print("stopped: there is no file")
            return
        self.out.print(f"done: {many(done.contents.records, 'record')}, digest {done.contents.digest}")
        if done.running:
            self.out.print(f"{done.running} were in progress and may have ended since: {QUIET}")

    def stats(self, counted: dict[str, int | str]) -> None:
        """Names and numbers."""
        table = _table("WHAT")
        table.add_column("VALUE", justify="right", overflow="fold")
        words = [state.word for state in State]
        for name in sorted(counted, key=lambda name: (words.index(name) if name in words else len(words), name)):
            value = counted[name]
            table.add_row(Text(visible(name)), Text(f"{value:,}" if isinstance(value, int) else visible(value)))
        self.out.print(table if counted else "the store is empty")

    def health(self, health: Health) -> None:
        """The findings, worst last, so that they stand where the eye is."""
        versions = ", ".join(f"{name} {version}" for name, version in health.versions.items())
        head = Table.grid(padding=(0, 2))
        head.add_column(style="bold", no_wrap=True)
        head.add_column(overflow="fold")
        head.add_row("store", Text(visible(health.store)))
        head.add_row("versions", versions)
        self.out.print(head)
        self.out.print(_findings(health.findings))

    def app_health(self, health: AppHealth) -> None:
        """The stores, then what the application shows."""
        for store in health.stores:
            self.health(store)
            self.out.print()
        guarded = sum(route.guarded for route in health.routes)
        self.out.print(
            Text(f"{visible(health.app)}: {len(health.routes)} routes that change something, {guarded} guarded")
        )
        if health.accepted:
            self.out.print(Text(f"accepted: {visible(', '.join(health.accepted))}"))
        self.out.print(_findings(health.risks))


QUIET = "stop whoever works on the old store, and run this again"


def _to_do(report: CopyReport) -> Iterator[str]:
    """What stands in the way of the target's taking over."""
    last = report.last
    if report.stopped:
        yield "stopped before the end: run this again, and it goes on"
    if last.left:
        refs = ", ".join(last.left_alone) + (", ..." if last.left > len(last.left_alone) else "")
        yield f"{last.left} stand in the target otherwise and were left alone: {refs}; see docs/howto/move.md"
    if last.running:
        yield f"{last.running} are in progress, and may end otherwise: {QUIET}"
    elif not (report.identical or report.stopped or report.rehearsed or last.left):
        yield f"the source keeps changing: {QUIET}"


def _findings(findings: Sequence[Finding | Risk]) -> Table:
    """Worst last, so that they stand where the eye is."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in sorted(findings, key=lambda finding: list(LEVELS).index(finding.level)):
        table.add_row(Text(finding.level, LEVELS[finding.level]), Text(visible(finding.what)))
        if finding.fix:
            table.add_row("", Text(f"to do: {visible(finding.fix)}"))
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", expand=False)
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def _details(record: Record, showing: Showing) -> Text:
    lines = [Text(visible(record.label.endpoint) or "-")]
    if showing.keys:
        lines.append(Text(visible(record.label.key), "bold"))
    if record.note:
        lines.append(Text(visible(record.note), "dim"))
    return Text("\n").join(lines)


def _facts(record: Record, now: int, showing: Showing) -> list[tuple[str, str | Text]]:
    facts: list[tuple[str, str | Text]] = [
        ("id", record.id.hex()),
        ("ref", key_ref(record.id)),
        ("state", Text(f"{record.state.word} ({coming(record, now)})", STYLES[record.state])),
        ("endpoint", visible(record.label.endpoint) or "-"),
        ("scope", visible(record.label.scope) or "-"),
        ("guarantee", record.guarantee.name.lower()),
        ("attempts", str(record.attempts)),
        ("version", str(record.version)),
        ("claimed", instant(record.claimed_at, now)),
    ]
    if showing.keys:
        facts.insert(3, ("key", visible(record.label.key)))
    # What due_at means depends on the state; see stores.contract.
    due = {State.COMPLETED: "answer until", State.FAILED_RETRYABLE: "not before"}.get(record.state, "due")
    for name, at in (("lease until", record.lease_until), (due, record.due_at), ("expires", record.expires_at)):
        if at is not None:
            facts.append((name, instant(at, now)))
    return [*facts, ("note", visible(record.note))] if record.note else facts


def _outcome(found: Kept | None) -> list[tuple[str, str]]:
    if found is None:
        return [("outcome", "none yet")]
    outcome = found.outcome
    if isinstance(outcome, Answer):
        headers = [("", visible(f"{n.decode('latin-1')}: {v.decode('latin-1')}")) for n, v in outcome.headers]
        return [("outcome", f"status {outcome.status}, body of {size(len(outcome.body))}"), *headers]
    if isinstance(outcome, Tombstone):
        return [("outcome", f"status {outcome.status}, not kept: {visible(outcome.reason)}")]
    if isinstance(outcome, Value):
        return [("outcome", f"a value of {size(len(outcome.data))}")]
    if isinstance(outcome, Journal):
        entries = [_entry(entry) for entry in outcome.entries if not isinstance(entry, Audit)]
        return [("outcome", "none yet"), *entries]
    return [("outcome", f"{size(found.size)}, not readable here: {visible(found.problem)}")]


def _entry(entry: Call | Step | Asked | Trace) -> tuple[str, str]:
    match entry:
        case Step():
            return "step", f"{visible(entry.name)}: done, {size(len(entry.result))} kept"
        case Trace():
            return "trace", entry.trace_id
        case Asked():
            return "asked", f"{many(entry.tries, 'time')}; last heard: {visible(entry.said) or '-'}"
        case Call():
            whom = " ".join(filter(None, (entry.provider, entry.target)))
            where = f" to {visible(whom)}" if whom else ""
            said = f", answered with {visible(entry.reference)}" if entry.reference else ""
            how = f"{entry.state.word} in attempt {entry.attempt}{where} under key {visible(entry.key)}"
            return "call", f"{visible(entry.step)}: {how}{said}"


def _trail(lines: Sequence[Audit], now: int) -> list[tuple[str, str]]:
    return [
        ("changed", f"{instant(line.at, now)} {_moved(line)} by {visible(line.by)}: {visible(line.why)}")
        for line in lines
    ]


def _moved(line: Audit) -> str:
    return _way(line.source, line.target)


def _way(source: State, target: State) -> str:
    """What a change was, in words: from where to where."""
    if source is target is State.UNKNOWN:
        return "asked about again"
    return f"{source.word} to {target.word}"


def _body(found: Kept | None) -> str:
    outcome = found.outcome if found is not None else None
    if isinstance(outcome, Answer | Value):
        data = outcome.body if isinstance(outcome, Answer) else outcome.data
        return visible(data.decode(errors="backslashreplace"), lines=True)
    return "(no body is kept)"
