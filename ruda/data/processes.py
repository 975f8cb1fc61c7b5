"""Processes that make batches, each led by one thread of the training process.

Processes are spawned: a forked one would inherit locks and devices in the middle of their use.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from ruda.core.devices import set_default_device
from ruda.core.errors import ArgumentError
from ruda.data import shared
from ruda.data.batch import BatchMaker, Job, Stopped, listed
from ruda.data.errors import WorkerError
from ruda.data.workers import PATIENCE


def packed(make: BatchMaker) -> bytes:
    """``make`` as it is sent to processes; raises ``ArgumentError`` where that cannot be."""
    try:
        return pickle.dumps(make, protocol=5)
    except Exception as error:
        what = "the dataset or collate cannot be pickled for worker processes"
        hint = "functions and classes of a module in place of lambdas and local ones, or threads"
        raise ArgumentError("DataLoader", what, f"{error}", hint=hint) from error


class ProcessMaker:
    """A maker that hands its jobs to a process of its own, started with the first of them."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._path = shared.new_path()
        self._lock = threading.Lock()
        self._closed = False
        self._process: Any = None
        self._connection: Any = None

    def __call__(self, job: Job, stopped: Callable[[], bool]) -> Any:
        if self._process is None:
            self._start()
        try:
            self._connection.send(job)
            done, reply = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._dead(job) from error
        if not done:
            raise _restored(self._process.name, *reply)
        stream, sizes = reply
        return shared.read(stream, sizes, self._path)

    def _start(self) -> None:
        # Ctrl-C reaches every process of a terminal, but only the training loop shall answer: the
        # process inherits what this thread blocks. Starting the tracker would unblock it again.
        if hasattr(signal, "pthread_sigmask"):
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        context = multiprocessing.get_context("spawn")
        name = threading.current_thread().name
        with self._lock:
            if self._closed:
                raise Stopped
            self._connection, theirs = context.Pipe()
            with theirs:
                arguments = (theirs, self._path)
                process = context.Process(target=serve, args=arguments, name=name, daemon=True)
                process.start()
                self._process = process
        with contextlib.suppress(OSError):
            # A process that died is found when the job is sent.
            self._connection.send_bytes(self._payload)

    def _dead(self, job: Job) -> WorkerError:
        with self._lock:
            if self._closed:
                return WorkerError("DataLoader", "the worker was closed")
            self._process.join(PATIENCE)
            code = self._process.exitcode
        what = f"worker process {self._process.name} died with exit code {code} "
        what += f"at the batch of samples {listed(job.indices)}"
        hint = (
            'its output above; a script needs `if __name__ == "__main__":` around what it runs, '
            "and -9 is often a lack of memory"
        )
        return WorkerError("DataLoader", what, hint=hint)

    def close(self) -> None:
        """End the process, in the middle of a sample if need be, and what it left in memory."""
        with self._lock:
            self._closed = True
            if self._process is None:
                return
            self._process.terminate()
            self._process.join(PATIENCE)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._connection.close()
            shared.remove(self._path)


def serve(connection: Connection, path: str) -> None:
    """What a worker process does: one batch for each job, until the other end is closed."""
    # A process that made its own CUDA context would take hundreds of megabytes of each device.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    set_default_device("cpu")
    try:
        payload = connection.recv_bytes()
        make = _loaded(payload)
        while True:
            connection.send(_reply(make, connection.recv(), path))
    except (EOFError, ConnectionError):
        shared.remove(path)


def _loaded(payload: bytes) -> Callable[[Job], Any]:
    try:
        make: BatchMaker = pickle.loads(payload)
    except Exception as error:  # noqa: BLE001 - sent as the answer to the first job
        what = f"the dataset or collate cannot be unpickled: {type(error).__name__}: {error}"
        failure, text = WorkerError("DataLoader", what), traceback.format_exc()

        def fail(job: Job) -> Any:
            failure.add_note(text)
            raise failure

        return fail
    return make


def _reply(make: Callable[[Job], Any], job: Job, path: str) -> tuple[bool, Any]:
    try:
        return True, _sent(make(job), path)
    except Exception as error:  # noqa: BLE001 - raised again in the training loop
        return False, (_pickled(error), _pickled(error.__cause__), traceback.format_exc())


def _sent(batch: Any, path: str) -> tuple[bytes, list[int]]:
    try:
        return shared.write(batch, path)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        what = f"a batch cannot be pickled: {error}"
        raise WorkerError("DataLoader", what) from error


def _pickled(error: BaseException | None) -> bytes | None:
    """An exception that survives the way back, or None: its text is sent in any case."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # noqa: BLE001 - exceptions of users may do anything when pickled
        return None
    return data


def _restored(worker: str, error: bytes | None, cause: bytes | None, text: str) -> BaseException:
    found: BaseException = (
        WorkerError("DataLoader", text.strip().splitlines()[-1])
        if error is None
        else pickle.loads(error)
    )
    found.__cause__ = None if cause is None else pickle.loads(cause)
    found.add_note(f"In worker process {worker}:\n{text}")
    return found
