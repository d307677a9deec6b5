"""Clusters: whatever workers do, each candidate is one trial, and no machine runs two at once."""

import random
import sys
import time

import pytest

from tilewright import lang
from tilewright.cost import Machine
from tilewright.driver import cluster as under_test, cluster_measurer
from tilewright.driver.cluster import ClusterMeasurer, WorkerLostError
from tilewright.driver.cluster_worker import ClusterWorker
from tilewright.driver.ray_pool import RayPool
from tilewright.strategies import Candidate, Task
from tilewright.support import InputError, InstallationError, ResourceError, TargetError
from tilewright.target import X86_AVX512, detect
from tilewright.tune import TrialLimits


def product(size=24):
    A, B = (lang.placeholder((size, size), name=n) for n in "AB")
    return lang.program([A, B], [lang.ops.matmul(A, B, name="C")])


TASK = Task(product(), Machine(X86_AVX512, 1))
OTHER = Task(product(16), Machine(X86_AVX512, 1))
DEFAULT = TASK.default().plan
LIMITS = TrialLimits(build_seconds=0.05, run_seconds=0.05)


class Pool:
    """Workers that are functions of a request; ``None`` for no answer at all, WorkerLostError for an end."""

    def __init__(self, *workers):
        self.workers = list(workers)
        self.dropped = []
        self.said = []
        self.answers = {}
        self.tickets = 0

    @property
    def size(self):
        return len(self.workers)

    def send(self, worker, request):
        assert worker not in self.dropped
        self.said.append((worker, request["do"], len(request.get("candidates", ()))))
        self.tickets += 1
        try:
            self.answers[self.tickets] = self.workers[worker](request)
        except WorkerLostError as error:
            self.answers[self.tickets] = error
        return self.tickets

    def ready(self, tickets, seconds):
        return [ticket for ticket in tickets if self.answers[ticket] is not None]

    def answer(self, ticket):
        if isinstance(self.answers[ticket], WorkerLostError):
            raise self.answers[ticket]
        return self.answers[ticket]

    def drop(self, worker):
        self.dropped.append(worker)

    def close(self):
        self.dropped = list(range(len(self.workers)))


def trial(seconds=1.0, **more):
    return {"status": "ok", "seconds": [seconds], "reason": "", "func": "f", "build_seconds": 0.0, **more}


def good(request, seconds=1.0):
    if request["do"] == "describe":
        return {"fingerprint": X86_AVX512.fingerprint}
    count = len(request["candidates"])
    return {"trials": [None if request["do"] == "build" else trial(seconds)] * count}


def after(requests, then):
    """Good for so many requests, the first being what it is; ``then`` for all that follow."""
    left = [requests]

    def answer(request):
        left[0] -= 1
        return good(request) if left[0] >= 0 else then(request)

    return answer


def dies(request):
    raise WorkerLostError("killed")


FAILURES = {
    "ends": dies,
    "is late": lambda request: None,
    "talks nonsense": lambda request: {"trials": ["fast"] * len(request.get("candidates", ()))},
    "says too little": lambda request: {"trials": []},
    "says times that are none": lambda request: {"trials": [trial(-1.0)] * len(request["candidates"])},
    "is another machine": lambda request: {"other": "0123"},
    "answers by a number": lambda request: 7,
}


@pytest.fixture(autouse=True)
def soon(monkeypatch, request):
    monkeypatch.setattr(under_test, "GRACE", 0.05)
    if "ray" not in request.node.name:
        monkeypatch.setattr(under_test, "START", 0.05)


def candidates(count):
    return [Candidate(f"c{n}", DEFAULT) for n in range(count)]


@pytest.mark.parametrize("requests", [1, 2, 4])
@pytest.mark.parametrize("how", FAILURES)
def test_others_measure_what_a_lost_worker_had(how, requests):
    pool = Pool(after(requests, FAILURES[how]), good, good)
    with ClusterMeasurer(pool, ["a", "a", "b"], LIMITS) as measurer:
        trials = measurer.measure(TASK, candidates(9))
        assert [t.candidate.origin for t in trials] == [f"c{n}" for n in range(9)]
        assert {t.status for t in trials} == {"ok"}
        assert {t.host for t in trials} <= {"a", "b"}
        assert measurer.workers == 2 and pool.dropped == [0]


def test_a_candidate_with_which_workers_end_is_a_trial():
    """Whoever gets the third candidate ends: it is not given to everyone."""

    def fragile(request):
        if any(each["origin"] == "c2" for each in request.get("candidates", ())):
            raise WorkerLostError("killed")
        return good(request)

    measurer = ClusterMeasurer(Pool(*[fragile] * 5), ["a"] * 5, LIMITS)
    trials = measurer.measure(TASK, candidates(6))
    assert [t.status for t in trials] == ["ok", "ok", "crashed", "ok", "ok", "ok"]
    assert measurer.workers == 3


def test_tasks_go_to_their_machines():
    def other(request):
        assert request["do"] == "describe"
        return {"fingerprint": "another"}

    pool = Pool(other, good)
    measurer = ClusterMeasurer(pool, ["a", "b"], LIMITS)
    assert {t.host for t in measurer.measure(TASK, candidates(5))} == {"b"}
    here = Task(product(), Machine(detect(), 1))
    if detect().fingerprint != X86_AVX512.fingerprint:
        with pytest.raises(TargetError, match="no worker of the cluster is a"):
            measurer.measure(here, candidates(1))


class Late(Pool):
    """Answers come one at a time, in an order drawn from a seed; ``watch`` sees what is done before each."""

    def __init__(self, seed, watch, *workers):
        super().__init__(*workers)
        self.random, self.watch, self.doing = random.Random(seed), watch, {}

    def send(self, worker, request):
        assert not any(w == worker for w, _ in self.doing.values()), "it does one thing at a time"
        ticket = super().send(worker, request)
        self.doing[ticket] = (worker, request)
        return ticket

    def ready(self, tickets, seconds):
        self.watch(list(self.doing.values()))
        found = super().ready(tickets, seconds)
        ready = [self.random.choice(found)] if found else []
        for ticket in ready:
            del self.doing[ticket]
        return ready


@pytest.mark.parametrize("seed", range(8))
def test_one_runs_at_a_time_on_a_machine_and_none_while_others_build_there(seed):
    together = set()

    def watch(doing):
        for host in "ab":
            here = [request["do"] for worker, request in doing if "aaab"[worker] == host]
            together.add(tuple(sorted(here)))
            assert "measure" not in here or len(here) == 1
        ran.update(worker for worker, request in doing if request["do"] == "measure")

    ran = set()
    measurer = ClusterMeasurer(Late(seed, watch, *[good] * 4), ["a", "a", "a", "b"], LIMITS)
    assert [len(each) for each in measurer.measure_all([(TASK, candidates(20)), (OTHER, candidates(9))])] == [
        20, 9
    ]  # fmt: skip
    assert ("build", "build", "build") in together and len(ran) == 4


def test_a_task_is_told_once_and_a_worker_stays_with_it():
    told = []

    def listens(request):
        if "key" in request:
            told.append((request["key"], "task" in request))
        return good(request)

    measurer = ClusterMeasurer(Pool(listens), ["a"], LIMITS)
    measurer.measure_all([(TASK, candidates(6)), (OTHER, candidates(4))])
    assert [key for key, new in told if new] == [TASK.key, OTHER.key]
    assert len(told) == 6 + 1 + 4 + 1


def test_a_worker_holds_only_so_much_that_is_built(monkeypatch):
    monkeypatch.setattr(under_test, "MOST_BUILT", 3)
    pool = Pool(good)
    ClusterMeasurer(pool, ["a"], LIMITS).measure(TASK, candidates(7))
    assert [count for _, do, count in pool.said if do == "measure"] == [3, 3, 1]


def test_a_slow_worker_gets_less_and_holds_up_no_other_machine():
    """Of two machines one takes twenty times as long for each answer."""
    clock, heard = [0], {0: 0, 1: 0}

    class Slow(Pool):
        def send(self, worker, request):
            ticket = super().send(worker, request)
            self.due = {**getattr(self, "due", {}), ticket: clock[0] + (20 if worker == 0 else 1)}
            if request["do"] == "measure":
                heard[worker] += len(request["candidates"])
            return ticket

        def ready(self, tickets, seconds):
            clock[0] = max(clock[0], min(self.due[ticket] for ticket in tickets))
            return [ticket for ticket in tickets if self.due[ticket] <= clock[0]]

    measurer = ClusterMeasurer(Slow(good, good), ["a", "b"], LIMITS)
    assert {t.status for t in measurer.measure(TASK, candidates(40))} == {"ok"}
    assert heard[0] + heard[1] == 40 and heard[1] > 8 * heard[0] > 0


def test_who_lies_about_its_machine_in_every_way_measures_nothing():
    """One says what it is not and is found out when asked, one changes its mind, one is plainly another."""

    def other(request):
        return {"fingerprint": "another"} if request["do"] == "describe" else pytest.fail("it is asked")

    liars = [after(1, FAILURES["is another machine"]), after(3, FAILURES["is another machine"]), other]
    pool = Pool(*liars, good)
    measurer = ClusterMeasurer(pool, list("abcd"), LIMITS)
    trials = measurer.measure(TASK, candidates(12))
    assert {t.status for t in trials} == {"ok"} and {t.host for t in trials} == {"d"}
    assert sorted(pool.dropped) == [0, 1] and measurer.workers == 2


def test_after_an_interruption_nobody_is_asked_before_it_has_answered():
    """Ctrl-C while three work: what they say then is thrown away, and is no answer to anything else."""
    pool = Late(0, lambda doing: None, *[good] * 3)
    measurer = ClusterMeasurer(pool, ["a", "a", "b"], LIMITS)
    ready, calls = pool.ready, [0]

    def interrupted(tickets, seconds):
        calls[0] += 1
        if calls[0] == 4:
            raise KeyboardInterrupt
        return ready(tickets, seconds)

    pool.ready = interrupted
    with pytest.raises(KeyboardInterrupt):
        measurer.measure(TASK, candidates(9))
    assert len(pool.doing) == 3
    assert [t.status for t in measurer.measure(OTHER, candidates(5))] == ["ok"] * 5
    turns = measurer.measure(TASK, candidates(2), TrialLimits(0.05, 0.05, rounds=4))
    assert [t.status for t in turns] == ["ok"] * 2 and measurer.workers == 3 and not measurer._owed


def test_turns_are_taken_by_one_worker_that_stays():
    pool = Pool(good, good)
    measurer = ClusterMeasurer(pool, ["a", "b"], LIMITS)
    for _ in range(3):
        measurer.measure(TASK, candidates(3), TrialLimits(0.05, 0.05, rounds=4))
    assert len({worker for worker, do, _ in pool.said if do == "measure"}) == 1
    assert all(count == 3 for _, do, count in pool.said if do == "measure")


def test_what_there_is_no_time_for_is_no_trial():
    pool = Pool(good, good)
    measurer = ClusterMeasurer(pool, ["a", "b"], LIMITS)
    assert measurer.measure(TASK, candidates(3), TrialLimits(until=time.monotonic())) == []
    assert len(measurer.measure(TASK, candidates(3), TrialLimits(until=time.monotonic() + 60))) == 3


def test_nobody_is_left():
    pool = Pool(after(2, dies))
    measurer = ClusterMeasurer(pool, ["a"], LIMITS)
    with pytest.raises(TargetError, match="no worker of the cluster is a"):
        measurer.measure(TASK, candidates(4))
    with pytest.raises(TargetError, match="no worker of the cluster answers"):
        ClusterMeasurer(Pool(lambda request: None), ["a"], LIMITS)


@pytest.mark.parametrize("seed", range(30))
def test_random_failures_lose_nothing(seed):
    print("seed", seed)
    r = random.Random(seed)
    failing = [after(r.randrange(1, 9), FAILURES[r.choice(list(FAILURES))]) for _ in range(r.randrange(5))]
    workers = [*failing, good]
    r.shuffle(workers)
    hosts = [r.choice("abc") for _ in workers]
    measurer = ClusterMeasurer(Pool(*workers), hosts, LIMITS)
    for _ in range(3):
        count = r.randrange(1, 12)
        trials = measurer.measure(TASK, candidates(count))
        assert [t.candidate.origin for t in trials] == [f"c{n}" for n in range(count)]
        assert all(t.status in ("ok", "crashed") for t in trials)
    assert measurer.workers >= 1


def test_what_is_no_cluster():
    for name in ("local[0]", "local[99]", "local", "example", "", "local[2]; rm"):
        with pytest.raises(InputError):
            cluster_measurer(name)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InstallationError, match="a cluster needs Ray"):
        cluster_measurer("local[2]")


def test_actors_of_ray_one_killed_meanwhile():
    """Two workers on this machine measure a real task; one is killed with what it was asked."""
    task = Task(product(), Machine(detect(), 1))
    plan = task.default().plan
    with cluster_measurer("local[2]") as measurer:
        assert measurer.workers == 2
        (first, again) = measurer.measure(task, [Candidate("default", plan), Candidate("again", plan)])
        assert first.status == again.status == "ok" and first.seconds and first.host
        pool = measurer._pool
        send = pool.send

        def killed_with_the_first(worker, request):
            ticket = send(worker, request)
            if worker == 0 and pool.actors[0] is not None:
                pool._ray.kill(pool.actors[0])
            return ticket

        pool.send = killed_with_the_first
        trials = measurer.measure(task, [Candidate(f"c{n}", plan) for n in range(3)])
        assert [t.status for t in trials] == ["ok"] * 3
        assert measurer.workers == 1


def test_actors_of_ray_one_killed_one_slow_and_one_of_another_target():
    """Four workers on this machine: nothing is lost, the slow one gets least, the pretender nothing."""
    ray = pytest.importorskip("ray")

    class Slow(ClusterWorker):
        def answer(self, request):
            sum(range(20_000_000))
            return super().answer(request)

    class Pretender(ClusterWorker):
        def answer(self, request):
            return {"fingerprint": "another"} if request["do"] == "describe" else super().answer(request)

    task = Task(product(), Machine(detect(), 1))
    plan = task.default().plan
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    (node,) = [each["NodeID"] for each in ray.nodes()]
    pool = RayPool(ray, [node] * 2)
    pool._actors += [ray.remote(kind).remote() for kind in (Slow, Pretender)]
    built = dict.fromkeys(range(4), 0)
    send = pool.send

    def sent(worker, request):
        ticket = send(worker, request)
        if request["do"] == "build":
            built[worker] += 1
            if worker == 1:
                ray.kill(pool.actors[1])
        return ticket

    pool.send = sent
    with ClusterMeasurer(pool, ["here"] * 4) as measurer:
        assert measurer.workers == 4
        trials = measurer.measure(task, [Candidate(f"c{n}", plan) for n in range(16)])
        assert [t.candidate.origin for t in trials] == [f"c{n}" for n in range(16)]
        assert {t.status for t in trials} == {"ok"} and measurer.workers == 3
    assert built[1] == 1 and built[3] == 0 < built[2] < built[0]


def test_a_cluster_that_is_not_there():
    with pytest.raises(ResourceError, match="cannot be reached"):
        cluster_measurer("localhost:1")
