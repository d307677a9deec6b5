"""Compiling many modules at once: the cache first, then worker processes, each module once.

LLVM serialises its work within a process, so parallel compilation takes processes. A worker is a fresh Python
running ``machine.py``, which imports llvmlite and nothing else; it starts with its first job, stays for the
next ones, and ends when idle, when its pipe closes, or when it takes too long. A module that crashes LLVM
takes a worker with it, not this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import IO, Final

from tilewright.codegen.llvm import machine
from tilewright.codegen.llvm.cache import ObjectCache, open_cache
from tilewright.codegen.llvm.compile import CompileRequest, refusal, run_request
from tilewright.support import InternalError, ResourceError, Settings, available_cpus, get_logger

JOB_TIMEOUT: Final = 120.0
"""Seconds that one module may take; a model's largest takes less than one."""

START_TIMEOUT: Final = 60.0
"""Seconds that a worker may take to say that it is there (0.15 s where nothing else runs)."""

IDLE_TIMEOUT: Final = 20.0
"""Seconds without a job after which a worker ends."""

MOST_WORKERS: Final = 16
"""Workers where the settings do not say how many: each takes 70 MB."""

FEW_JOBS: Final = 3
"""Up to so many modules at once, starting a worker (0.15 s) costs more than it gains."""

_log = get_logger("codegen.workers")


class _WorkerLostError(Exception):
    """The worker's process ended or fell silent; the text says how."""


class _Worker:
    """One worker process and the pipes to it."""

    def __init__(self) -> None:
        # LLVM's last words before it aborts; a file, since nobody empties a pipe meanwhile; `close` ends it
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", machine.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        except OSError as error:
            self._errors.close()
            raise _WorkerLostError(f"cannot start {sys.executable}: {error.strerror}") from None

    def ask(self, options: bytes, text: bytes, timeout: float) -> tuple[bool, bytes]:
        """Send a request and wait for its answer: whether it succeeded, and the content."""
        deadline = time.monotonic() + timeout
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(machine.frame(options) + machine.frame(text))
            self._process.stdin.flush()
        except OSError:
            raise _WorkerLostError(self._last_words()) from None
        try:
            ok = bool(json.loads(self._read_frame(deadline))["ok"])
        except (ValueError, TypeError, KeyError):
            raise _WorkerLostError("the answer is no answer") from None
        return ok, self._read_frame(deadline)

    def _read_frame(self, deadline: float) -> bytes:
        size = struct.unpack("<I", self._read(4, deadline))[0]
        return self._read(size, deadline)

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        pieces: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while count > 0:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                piece = os.read(self._process.stdout.fileno(), min(count, 1 << 20))
                if not piece:
                    raise _WorkerLostError(self._last_words())
                pieces.append(piece)
                count -= len(piece)
        return b"".join(pieces)

    def _last_words(self) -> str:
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(5)
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read(1 << 16).decode(errors="replace").splitlines()]
        said = next((line for line in lines if "LLVM ERROR" in line), lines[0] if lines else "")
        return f"exit status {code}{': ' if said else ''}{said[:300]}"

    def close(self) -> None:
        """End the process, politely where it is idle, and wait for it."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self.close()


_Job = tuple[CompileRequest, "Future[bytes]"]


class CompilePool:
    """Compiles modules in worker processes, with a cache.

    ``jobs`` workers (default: one for each CPU this process may use, at most ``MOST_WORKERS``); with one, all
    is done in this process. Safe to use from several threads; a context manager that closes itself.
    """

    def __init__(
        self, *, jobs: int | None = None, cache: ObjectCache | None = None, job_timeout: float = JOB_TIMEOUT
    ) -> None:
        self.jobs = min(available_cpus(), MOST_WORKERS) if jobs is None else jobs
        self.cache = cache
        self._job_timeout = job_timeout
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending: dict[str, Future[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    @classmethod
    def of_settings(cls, settings: Settings) -> CompilePool:
        """The pool that the settings describe."""
        return cls(jobs=settings.compile_jobs, cache=open_cache(settings))

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, wanted: CompileRequest) -> Future[bytes]:
        """Compile in the background; equal requests that are under way share one future.

        The future raises InternalError where LLVM refuses the module or crashes over it, ResourceError where
        it takes too long.
        """
        key = wanted.key
        with self._lock:
            if self._closed:
                raise InternalError("a module was given to a closed compile pool")
            running = self._pending.get(key)
            if running is not None:
                return running
            future: Future[bytes] = Future()
            self._pending[key] = future
        future.add_done_callback(lambda _: self._forget(key))
        known = None if self.cache is None else self.cache.get(key)
        if known is not None:
            future.set_result(known)
        elif self.jobs == 1:
            _settle(future, lambda: self._keep(key, run_request(wanted)))
        else:
            self._queue.put((wanted, future))
            self._have_enough_workers()
        return future

    def compile_many(self, wanted: Sequence[CompileRequest]) -> list[bytes]:
        """Compile all modules and return their objects in order; equal ones are compiled once.

        Raises the first module's error, in order, after all are done.
        """
        unique = {request.key: request for request in wanted}
        done: dict[str, bytes] = {}
        if self.cache is not None:
            for key in unique:
                known = self.cache.get(key)
                if known is not None:
                    done[key] = known
        rest = {key: request for key, request in unique.items() if key not in done}
        if len(rest) <= FEW_JOBS and not self._threads:
            for key, request in rest.items():
                done[key] = self._keep(key, run_request(request))
        else:
            # large modules first: the last one to finish decides
            order = sorted(rest, key=lambda key: -len(rest[key].ir))
            futures = {key: self.submit(rest[key]) for key in order}
            wait(futures.values())
            for key in rest:
                done[key] = futures[key].result()
        return [done[request.key] for request in wanted]

    def close(self) -> None:
        """End all workers after the jobs already given; wait for them."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join()

    def _forget(self, key: str) -> None:
        with self._lock:
            self._pending.pop(key, None)

    def _keep(self, key: str, content: bytes) -> bytes:
        if self.cache is not None:
            self.cache.put(key, content)
        return content

    def _have_enough_workers(self) -> None:
        with self._lock:
            if self._idle < self._queue.qsize() and len(self._threads) < self.jobs and not self._closed:
                thread = threading.Thread(target=self._serve, name="tilewright-compile", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self) -> None:
        """One thread's life: take jobs, have them done by its worker process, end when told to."""
        worker: _Worker | None = None
        while True:
            with self._lock:
                self._idle += 1
            try:
                job = self._queue.get(timeout=IDLE_TIMEOUT if worker is not None else None)
            except queue.Empty:
                job = None
                if worker is not None and not self._closed:
                    worker.close()
                    worker = None
                    continue
            finally:
                with self._lock:
                    self._idle -= 1
            if job is None:
                break
            worker = self._do(worker, *job)
        if worker is not None:
            worker.close()

    def _do(self, worker: _Worker | None, wanted: CompileRequest, future: Future[bytes]) -> _Worker | None:
        """Do one job; the worker to go on with."""
        options = json.dumps(
            {
                "triple": wanted.triple,
                "cpu": wanted.cpu,
                "features": wanted.features,
                "level": wanted.level,
                "output": wanted.output,
            }
        ).encode()
        try:
            if worker is None:
                worker = _start()
            if worker is None:
                _settle(future, lambda: self._keep(wanted.key, run_request(wanted)))
                return None
            ok, content = worker.ask(options, wanted.ir.encode(), self._job_timeout)
            if ok:
                _settle(future, lambda: self._keep(wanted.key, content))
            else:
                future.set_exception(refusal(content.decode(errors="replace")))
        except TimeoutError:
            assert worker is not None
            worker.kill()
            future.set_exception(
                ResourceError(f"compiling one module took longer than {self._job_timeout:.0f} s")
            )
            return None
        except _WorkerLostError as error:
            if worker is not None:
                worker.kill()
            future.set_exception(InternalError(f"LLVM ended while compiling a module ({error})"))
            return None
        finally:
            if not future.done():
                self._end_thread(worker, future)
        return worker

    def _end_thread(self, worker: _Worker | None, future: Future[bytes]) -> None:
        """After an error that nobody foresaw: nobody waits for this thread, another takes its place."""
        if worker is not None:
            worker.kill()
        with self._lock:
            self._threads.remove(threading.current_thread())
        future.set_exception(InternalError("a compile thread ended; what it stumbled over is on stderr"))
        self._have_enough_workers()


def _start() -> _Worker | None:
    """A worker that has answered once; ``None`` where none can be had and this process must do the work."""
    worker: _Worker | None = None
    try:
        worker = _Worker()
        worker.ask(b'{"ping": true}', b"", START_TIMEOUT)
    except (_WorkerLostError, TimeoutError) as error:
        _log.warning("compiling in this process, since a worker did not start (%s)", error)
        if worker is not None:
            worker.kill()
        return None
    return worker


def _settle(future: Future[bytes], work: Callable[[], bytes]) -> None:
    """Give a future the outcome of ``work``."""
    try:
        future.set_result(work())
    except InternalError as error:
        future.set_exception(error)


def compile_many(wanted: Iterable[CompileRequest], settings: Settings) -> list[bytes]:
    """Compile modules with a pool of their own, as the settings say, and return the objects in order."""
    with CompilePool.of_settings(settings) as pool:
        return pool.compile_many(list(wanted))
