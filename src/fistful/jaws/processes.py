"""Work spread over processes, each with one thread."""

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from fistful.errors import JawsError

if TYPE_CHECKING:
    from concurrent.futures import Future

_In = TypeVar("_In")
_Out = TypeVar("_Out")
# Libraries that would start threads of their own.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def in_processes(work: Callable[[_In], _Out], items: Iterable[_In], workers: int) -> Iterator[_Out]:
    """work(item) for all items, in their order, as they become ready, by `workers` processes."""
    ready: dict[int, _Out] = {}
    turn = 0
    with closing(as_done(work, items, workers)) as done:
        for index, out in done:
            ready[index] = out
            while turn in ready:
                yield ready.pop(turn)
                turn += 1


def as_done(
    work: Callable[[_In], _Out], items: Iterable[_In], workers: int
) -> Generator[tuple[int, _Out], None, None]:
    """(index, work(item)) for all items, in the order in which they end, by `workers` processes.

    After Ctrl-C or an error nothing new begins; what still ends is handed over before that is raised.

    Raises:
      JawsError: A worker was killed or crashed.
    """
    items = list(items)
    if workers <= 1 or len(items) <= 1:
        yield from enumerate(map(work, items))
        return
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    workers = min(workers, len(items))
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
    todo = enumerate(items)
    under_way: dict[Future[_Out], int] = {}

    def start(count: int) -> None:
        for index, item in islice(todo, count):
            # A worker starts with an item, if none is idle, and reads the environment then.
            with _later_interrupts(), _one_thread():
                under_way[pool.submit(work, item)] = index

    try:
        # One item a worker: the pool can not take back what it has queued for them.
        start(workers)
        while under_way:
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                out = future.result()
                start(1)
                yield under_way.pop(future), out
    except (Exception, KeyboardInterrupt) as stop:
        # The pool ends with what is under way, so that can be kept. Ctrl-C in a terminal ends the workers
        # too, and there is nothing to wait for.
        for future in wait(under_way).done:
            if future.exception() is None:
                yield under_way[future], future.result()
        if isinstance(stop, BrokenProcessPool):
            raise JawsError(
                "a worker was ended from outside, or crashed (too little memory? fewer workers need less); "
                "the same command does not do again what was finished and kept"
            ) from stop
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """In a new worker: let Ctrl-C end it without a traceback, and end it with who started it."""
    # Who ignores Ctrl-C (a script's background job) needs workers that do so too.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        # After kill -9 nobody else tells a worker that nothing will come any more.
        parent.join()
        os._exit(1)


@contextmanager
def _later_interrupts() -> Iterator[None]:
    """Ctrl-C waits until the end of the block here, and in processes started inside until `_begin`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started inside have libraries with one thread each."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
