"""Work spread over processes, each with one thread."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")
# Libraries that would start threads of their own.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def in_processes(work: Callable[[_In], _Out], items: Iterable[_In], workers: int) -> Iterator[_Out]:
    """work(item) for all items, in their order, as they become ready, by `workers` processes."""
    items = list(items)
    if workers <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # The environment is read when a worker starts, that is with the first items.
    with _one_thread():
        pool = ProcessPoolExecutor(min(workers, len(items)), mp_context=get_context("spawn"))
        try:
            yield from pool.map(work, items)
        finally:
            # After Ctrl-C nobody waits for what has not begun.
            pool.shutdown(wait=True, cancel_futures=True)


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
