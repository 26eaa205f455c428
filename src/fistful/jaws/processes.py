"""Work spread over processes, each with one thread."""

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from threading import Thread
from typing import TypeVar

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
    """(index, work(item)) for all items, in the order in which they end, by `workers` processes."""
    items = list(items)
    if workers <= 1 or len(items) <= 1:
        yield from enumerate(map(work, items))
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    # The environment is read when a worker starts, that is with the first items.
    with _one_thread():
        pool = ProcessPoolExecutor(
            min(workers, len(items)), mp_context=get_context("spawn"), initializer=_begin
        )
        try:
            with _later_interrupts():
                futures = {pool.submit(work, item): k for k, item in enumerate(items)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            # After Ctrl-C nobody waits for what has not begun.
            pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """In a new worker: let Ctrl-C end it without a traceback, and end it with who started it."""
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
