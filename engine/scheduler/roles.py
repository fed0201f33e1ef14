"""What differs between unified, prefill and decode: where a sequence comes from and what becomes of its pages."""

from __future__ import annotations

from typing import Protocol

from engine.kvcache.pages import Owner
from engine.messages import FinishReason
from engine.model.sampling import Sampled
from engine.scheduler.book import Book
from engine.scheduler.failures import Ending, ending_of
from engine.scheduler.planner import Planner
from engine.scheduler.sequence import Phase, Sequence
from engine.scheduler.step import Work
from engine.transfer.interface import (
    Committed,
    Event,
    Failed,
    FailReason,
    Fenced,
    FirstToken,
    Landed,
    Paired,
    Reader,
    Source,
    Summed,
    Transfer,
    WantPages,
)


class RoleBehaviour(Protocol):
    """The seam between the loop and a role."""

    @property
    def transfer(self) -> Transfer | None:
        """The transfer threads, where the role has any."""

    def admit(self, sequence: Sequence) -> None:
        """Put a new sequence on its way."""

    def refuse(self, sequence: Sequence, ending: Ending) -> None:
        """Turn a new sequence away, and tell the other leg."""

    def take_events(self) -> None:
        """Act on what the transfer threads have to say; once a turn."""

    def chunk_done(self, work: Work, sampled: Sampled | None, finish: FinishReason | None) -> None:
        """KV of a prompt chunk is in the pool; with the last one comes the first token (none when only scoring)."""

    def end(self, sequence: Sequence, ending: Ending) -> None:
        """End a sequence early: at once, or when the transfer threads agree."""


class Unified:
    """The whole life in one instance."""

    transfer: Transfer | None = None

    def __init__(self, book: Book) -> None:
        self._book = book

    def admit(self, sequence: Sequence) -> None:
        self._book.enter(sequence, Phase.WAITING)

    def refuse(self, sequence: Sequence, ending: Ending) -> None:
        self.end(sequence, ending)

    def take_events(self) -> None:
        return

    def chunk_done(self, work: Work, sampled: Sampled | None, finish: FinishReason | None) -> None:
        finish_prompt(self._book, work, sampled, finish)

    def end(self, sequence: Sequence, ending: Ending) -> None:
        end_now(self._book, sequence, ending)


class Prefill:
    """Computes the prompt and the first token, and holds the pages until decode has them."""

    def __init__(self, book: Book, source: Source) -> None:
        self._book = book
        self.transfer = source
        self._first: dict[str, tuple[Sampled, FinishReason | None]] = {}

    def admit(self, sequence: Sequence) -> None:
        room = sequence.request.room
        if room is None:
            self._book.enter(sequence, Phase.WAITING)
            return
        sequence.token_limit = min(1, sequence.token_limit)
        self._book.enter(sequence, Phase.ROOM)
        self.transfer.announce(sequence.rid, room.room, sequence.request.prompt_ids, sequence.record)

    def refuse(self, sequence: Sequence, ending: Ending) -> None:
        self.admit(sequence)
        self.end(sequence, ending)

    def take_events(self) -> None:
        for event in self.transfer.poll():
            sequence = self._book.queues.get(event.rid)
            if sequence is not None:
                self._take(event, sequence)

    def _take(self, event: Event, sequence: Sequence) -> None:
        match event:
            case Paired() if sequence.phase is Phase.ROOM:
                self._book.enter(sequence, Phase.WAITING)
            case Committed(rid):
                token, finish = self._first.pop(rid)
                self._let_go(sequence)
                self._book.tell(sequence, token, finish or FinishReason.LENGTH)
                self._book.release(sequence, "handed_over")
            case Failed(rid, reason, detail):
                self._first.pop(rid, None)
                self._let_go(sequence)
                end_now(self._book, sequence, sequence.ending or ending_of(reason, detail))

    def _let_go(self, sequence: Sequence) -> None:
        """Hold no longer for a peer what others of this side have found in the prefix cache and still compute with."""
        found = {node.page for node in sequence.lease.nodes if node.users > 1}
        others = [other for other in self._book.queues.in_phase(Phase.HELD) if other is not sequence]
        held = {page for other in others for page in other.pages}
        self._book.pages.move(sorted(found - held), Owner.PINNED)

    def chunk_done(self, work: Work, sampled: Sampled | None, finish: FinishReason | None) -> None:
        sequence = work.sequence
        if sequence.request.room is None:
            finish_prompt(self._book, work, sampled, finish)
            return
        first = None
        if sampled is not None:
            self._first[sequence.rid] = (sampled, finish)
            first = FirstToken(sampled.token_id, sampled.logprob, finish, sequence.record.cached_tokens)
            self._book.pages.move(sequence.pages, Owner.HELD_FOR_PEER)
            self._book.enter(sequence, Phase.HELD)
        # The first chunk brings what the prefix cache had, too.
        start, end = sequence.ready_pages, -(-(work.start + work.length) // self._book.page_size)
        sequence.ready_pages = end
        self.transfer.ready(sequence.rid, start, sequence.pages[start:end], first)

    def end(self, sequence: Sequence, ending: Ending) -> None:
        if sequence.request.room is None:
            end_now(self._book, sequence, ending)
        else:
            end_when_agreed(self._book, self.transfer, sequence, ending)


class Decode:
    """Offers the room, reads the pages that its prefix cache lacks, generates.

    What is cached is looked up, and pinned, when pages are granted: a room that waits holds nothing (invariant 4).
    Landed pages enter the cache. Choices of one request read their prompt once: the others wait until the first has
    landed or failed.
    """

    def __init__(self, book: Book, reader: Reader, planner: Planner, max_running: int) -> None:
        self._book = book
        self.transfer = reader
        self._planner = planner
        self._max_running = max_running
        self._fencing: dict[str, list[int]] = {}
        """Pages of failed rooms, until no read can touch them (invariant 3)."""

    def admit(self, sequence: Sequence) -> None:
        room, bootstrap = _rendezvous(sequence)
        self._book.enter(sequence, Phase.ROOM)
        cached = self._book.cache.length(sequence.tokens, sequence.reusable)
        self.transfer.open(sequence.rid, room, bootstrap, sequence.request.prompt_ids, cached, sequence.record)

    def refuse(self, sequence: Sequence, ending: Ending) -> None:
        self.transfer.refuse(*_rendezvous(sequence), ending.message)
        end_now(self._book, sequence, ending)

    def take_events(self) -> None:
        for event in self.transfer.poll():
            if isinstance(event, Fenced):
                self._book.pages.free(self._fencing.pop(event.rid, []))
            elif isinstance(event, Summed):
                self._book.summed(event)
            elif (sequence := self._book.queues.get(event.rid)) is not None:
                self._take(event, sequence)
        self._grant()

    def _take(self, event: Event, sequence: Sequence) -> None:
        match event:
            case WantPages() if sequence.phase is Phase.ROOM:
                self._book.enter(sequence, Phase.PAGES)
            case Landed(_, first):
                self._landed(sequence, first)
            case Failed(rid, reason, detail):
                if sequence.pages:
                    # No read touches the pages of the cache, but those that the room was to fill.
                    self._fencing[rid], sequence.pages = sequence.own_pages, []
                    self._book.pages.move(self._fencing[rid], Owner.FENCING)
                end_now(self._book, sequence, sequence.ending or ending_of(reason, detail))

    def _landed(self, sequence: Sequence, first: FirstToken) -> None:
        # A first token that ends the request ends the reading, too: then not every page is right.
        if first.finish is None:
            sequence.computed = sequence.planned = sequence.prompt_length
        if sequence.ending is not None:
            end_now(self._book, sequence, sequence.ending)
            return
        self._book.pages.move(sequence.own_pages, Owner.RUNNING)
        if self._book.recheck is not None:
            self._book.recheck.landed(sequence)
        self._book.share(sequence)
        self._book.prompt_tokens += sequence.prompt_length
        sequence.tokens.append(first.token_id)
        finish = None if first.finish is None else FinishReason(first.finish)
        self._book.tell(sequence, Sampled(first.token_id, first.logprob), finish, first.cached_tokens)
        if finish is None:
            self._book.enter(sequence, Phase.DECODING)
        else:
            self._book.release(sequence, finish)

    def _grant(self) -> None:
        """Give pages in the order of arrival; a retracted sequence, which is older than they, goes first."""
        queues = self._book.queues
        for sequence in queues.in_phase(Phase.PAGES):
            busy = len(queues.running()) + len(queues.in_phase(Phase.READING))
            if queues.in_phase(Phase.WAITING) or busy >= self._max_running:
                return
            if self._is_being_read(sequence):
                continue
            if not self._planner.take_for(sequence, Owner.READING):
                return
            self._book.enter(sequence, Phase.READING)
            self.transfer.grant(sequence.rid, sequence.pages, sequence.cached)

    def _is_being_read(self, sequence: Sequence) -> bool:
        """Return whether another choice of the same request reads this prompt at present."""
        request = sequence.request
        return self._book.cache.enabled and any(
            other.request.request_id == request.request_id and other.request.prompt_ids == request.prompt_ids
            for other in self._book.queues.in_phase(Phase.READING)
        )

    def chunk_done(self, work: Work, sampled: Sampled | None, finish: FinishReason | None) -> None:
        finish_prompt(self._book, work, sampled, finish)

    def end(self, sequence: Sequence, ending: Ending) -> None:
        if sequence.phase in (Phase.ROOM, Phase.PAGES, Phase.READING):
            end_when_agreed(self._book, self.transfer, sequence, ending)
        elif sequence.phase is not Phase.ENDING:
            end_now(self._book, sequence, ending)


def _rendezvous(sequence: Sequence) -> tuple[int, str]:
    """Return room and `host:port` of the prefill's registry."""
    room = sequence.request.room
    if room is None:
        raise ValueError(f"{sequence.rid}: the API lets no request without a room reach a decode instance")
    return room.room, f"{room.host}:{room.port}"


def finish_prompt(book: Book, work: Work, sampled: Sampled | None, finish: FinishReason | None) -> None:
    """After the last chunk of a sequence that stays here: go on decoding, or end."""
    sequence = work.sequence
    if sequence.scores_only and sequence.computed == sequence.prompt_length:
        book.tell_score(sequence)
        book.release(sequence, "scored")
    elif sampled is not None:
        book.tell(sequence, sampled, finish, sequence.record.cached_tokens)
        if finish is None:
            book.enter(sequence, Phase.DECODING)
        else:
            book.release(sequence, finish)


def end_now(book: Book, sequence: Sequence, ending: Ending) -> None:
    """Answer the error and release everything."""
    if not ending.satisfied:
        book.tell_failure(sequence, ending.status, ending.code, ending.message)
    book.release(sequence, ending.code, None if ending.satisfied else ending.message)


def end_when_agreed(book: Book, transfer: Transfer, sequence: Sequence, ending: Ending) -> None:
    """Ask the transfer threads to fail the room; its pages stay until their event (see `transfer.interface`)."""
    if sequence.phase is Phase.ENDING:
        return
    sequence.ending = ending
    sequence.record.reason = ending.message
    book.enter(sequence, Phase.ENDING)
    transfer.fail(sequence.rid, FailReason.ABORTED, ending.message)
