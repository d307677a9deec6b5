import os
import signal

import pytest

from tilewright.codegen.llvm import machine, workers
from tilewright.codegen.llvm.cache import ObjectCache
from tilewright.codegen.llvm.compile import CompileRequest, compile_ir, compile_request
from tilewright.codegen.llvm.loader import load_object
from tilewright.codegen.llvm.workers import CompilePool, compile_many
from tilewright.support import InternalError, ResourceError, read_settings
from tilewright.target import detect

HOST = detect()


def module(n):
    return compile_request(f"define i64 @f{n}() {{ ret i64 {n} }}", HOST)


@pytest.fixture(scope="module")
def pool():
    with CompilePool(jobs=2) as made:
        yield made


def test_workers_give_the_same_objects_as_this_process(pool):
    wanted = [module(n) for n in range(8)]
    made = pool.compile_many([*wanted, wanted[3]])
    assert made[:8] == [compile_ir(w.ir, HOST) for w in wanted]
    assert made[8] == made[3]
    assert load_object(made[5]).names == ("f5",)


def test_equal_requests_are_compiled_once(pool, monkeypatch):
    asked = []
    real = workers._Worker.ask

    def ask(self, options, text, timeout):
        asked.append(text)
        return real(self, options, text, timeout)

    monkeypatch.setattr(workers._Worker, "ask", ask)
    wanted = [module(100 + n % 5) for n in range(20)]
    pool.compile_many(wanted)
    texts = [text for text in asked if text]
    assert sorted(texts) == sorted({w.ir.encode() for w in wanted})


def test_a_module_that_does_not_parse_fails_alone(pool):
    broken = compile_request("define void @broken( {", HOST)
    futures = [pool.submit(w) for w in (module(200), broken, module(201))]
    assert futures[0].result(60)[:4] == futures[2].result(60)[:4] == b"\x7fELF"
    with pytest.raises(InternalError, match=r"refused generated code: 1:\d+: error: expected type") as caught:
        futures[1].result(60)
    assert "define void @broken" in caught.value.what
    with pytest.raises(InternalError, match="expected type"):
        pool.compile_many([module(202), module(203), broken, module(204)])


def test_a_worker_that_dies_is_replaced():
    with CompilePool(jobs=2) as pool:
        # an unknown triple aborts nothing; so kill: first the worker of a running pool, then go on
        pool.submit(module(0)).result(60)
        seen = []
        real = workers._Worker.ask

        def ask(self, options, text, timeout):
            if not seen and text:
                seen.append(self._process.pid)
                os.kill(self._process.pid, signal.SIGKILL)
                self._process.wait()
            return real(self, options, text, timeout)

        workers._Worker.ask = ask
        try:
            with pytest.raises(InternalError, match=r"LLVM ended while compiling a module .exit status -9"):
                pool.submit(module(1)).result(60)
            assert pool.submit(module(1)).result(60)[:4] == b"\x7fELF"
        finally:
            workers._Worker.ask = real


def test_a_module_that_takes_too_long_is_given_up(monkeypatch, tmp_path):
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text(
        f"import sys, time\nsys.path.insert(0, {os.path.dirname(machine.__file__)!r})\nimport machine\n"
        "machine.compile_text = lambda *a, **k: time.sleep(600)\nmachine.main()\n"
    )
    monkeypatch.setattr(machine, "__file__", str(sleeper))
    with CompilePool(jobs=2, job_timeout=0.2) as pool, pytest.raises(ResourceError, match="longer than"):
        pool.submit(module(0)).result(60)


def test_where_no_worker_starts_this_process_compiles(monkeypatch, tmp_path):
    monkeypatch.setattr(workers.sys, "executable", str(tmp_path / "no-python"))
    with CompilePool(jobs=2) as pool:
        assert pool.submit(module(0)).result(60) == compile_ir(module(0).ir, HOST)
    talker = tmp_path / "talker.py"
    talker.write_text("print('hello, this is no answer at all')\n")
    monkeypatch.undo()
    monkeypatch.setattr(machine, "__file__", str(talker))
    with CompilePool(jobs=2) as pool:
        assert pool.submit(module(0)).result(60) == compile_ir(module(0).ir, HOST)


def test_one_job_and_few_modules_need_no_worker(monkeypatch):
    monkeypatch.setattr(workers, "_Worker", None)
    with CompilePool(jobs=1) as pool:
        assert len(pool.compile_many([module(n) for n in range(6)])) == 6
        with pytest.raises(InternalError, match="expected type"):
            pool.submit(compile_request("define void @broken( {", HOST)).result()
    with CompilePool(jobs=4) as pool:
        assert len(pool.compile_many([module(n) for n in range(2)])) == 2


def test_the_cache_is_asked_first_and_told_last(tmp_path, monkeypatch):
    cache = ObjectCache(tmp_path)
    with CompilePool(jobs=2, cache=cache) as pool:
        made = pool.compile_many([module(n) for n in range(6)])
    monkeypatch.setattr(machine, "compile_text", None)
    monkeypatch.setattr(workers, "_Worker", None)
    with CompilePool(jobs=2, cache=cache) as pool:
        assert pool.compile_many([module(n) for n in range(6)]) == made
        assert pool.submit(module(3)).result() == made[3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_threads_that_end_leave_nobody_waiting(monkeypatch):
    kept = []

    def keep(pool, key, content):
        kept.append(key)
        if len(kept) <= 2:  # as many as there are threads
            raise RuntimeError("a bug")
        return content

    monkeypatch.setattr(CompilePool, "_keep", keep)
    with CompilePool(jobs=2) as pool:
        futures = [pool.submit(module(n)) for n in range(500, 505)]
        errors = [error for each in futures if (error := each.exception(60)) is not None]
    assert len(errors) == 2
    assert all(isinstance(e, InternalError) and "a compile thread ended" in e.what for e in errors)


def test_settings_make_the_pool(tmp_path):
    environment = {"TILEWRIGHT_CACHE_DIR": str(tmp_path), "TILEWRIGHT_COMPILE_JOBS": "1"}
    made = compile_many([module(1)], read_settings(environment))
    assert made == [compile_ir(module(1).ir, HOST)]
    assert len(list(tmp_path.rglob("*.o"))) == 1


def test_a_closed_pool_refuses():
    pool = CompilePool(jobs=2)
    pool.close()
    pool.close()
    with pytest.raises(InternalError, match="closed"):
        pool.submit(module(0))


def test_requests_are_values():
    assert module(1) == module(1)
    assert module(1) != CompileRequest("", "", "", "")
