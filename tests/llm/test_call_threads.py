"""Threads that ask models, one call after another: none has anything of the call before."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from app.llm.call_threads import CallThreads, Work
from tests.support.processes import wait_for

SAID: ContextVar[str] = ContextVar("said", default="")


def done_by(threads: CallThreads, work: Any) -> Any:
    """What it returns in one of them, once that thread has returned to the others."""
    outcome: Future[Any] = Future()
    threads.run(lambda: outcome.set_result(work()))
    return outcome.result(5)


@pytest.fixture
def threads() -> CallThreads:
    return CallThreads(idle_seconds=5)


def test_the_thread_that_worked_last_works_next(threads: CallThreads) -> None:
    first = done_by(threads, threading.current_thread)
    wait_for(lambda: threads.idle == 1)
    assert done_by(threads, threading.current_thread) is first
    assert first.daemon


def test_whoever_works_is_given_nothing_else_meanwhile(threads: CallThreads) -> None:
    """Also not where its caller has left it behind."""
    never, first = threading.Event(), Future[threading.Thread]()

    def hangs() -> None:
        first.set_result(threading.current_thread())
        never.wait()

    threads.run(hangs)
    left = first.result(5)
    assert done_by(threads, threading.current_thread) is not left
    wait_for(lambda: threads.idle == 1)
    never.set()
    wait_for(lambda: threads.idle == 2)


def test_no_context_of_one_call_is_seen_in_the_next(threads: CallThreads) -> None:
    before = SAID.set("by who asks")
    try:
        assert done_by(threads, SAID.get) == ""
        wait_for(lambda: threads.idle == 1)
        done_by(threads, lambda: SAID.set("by a call"))
        wait_for(lambda: threads.idle == 1)
        assert done_by(threads, SAID.get) == ""
    finally:
        SAID.reset(before)


def test_what_was_asked_is_not_kept_while_a_thread_waits(threads: CallThreads) -> None:
    class Prompt:
        pass

    def ask() -> weakref.ref[Prompt]:
        prompt = Prompt()
        done_by(threads, lambda: prompt is None)
        return weakref.ref(prompt)

    kept = ask()
    wait_for(lambda: threads.idle == 1)
    gc.collect()
    assert kept() is None


def test_who_has_no_work_ends() -> None:
    threads = CallThreads(idle_seconds=0.05)
    thread = done_by(threads, threading.current_thread)
    thread.join(5)
    assert not thread.is_alive()
    assert threads.idle == 0
    assert done_by(threads, threading.current_thread) is not thread


def test_of_many_that_have_worked_only_some_wait() -> None:
    threads, all_here = CallThreads(idle_seconds=5, most_idle=3), threading.Barrier(11)
    for _ in range(10):
        threads.run(lambda: all_here.wait(5) and None)
    all_here.wait(5)
    wait_for(lambda: threads.idle == 3)


def test_work_that_comes_as_a_thread_is_about_to_end_is_done() -> None:
    """Each is given to one thread, however often they meet."""
    threads, done = CallThreads(idle_seconds=0.0005), list[int]()

    def ask(number: int) -> None:
        outcome: Future[int] = Future()
        work: Work = lambda: outcome.set_result(number)  # noqa: E731
        threads.run(work)
        done.append(outcome.result(5))
        time.sleep(0.0005)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(2000)))
    assert sorted(done) == list(range(2000))
