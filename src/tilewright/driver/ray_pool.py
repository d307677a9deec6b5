"""A cluster's workers as actors of Ray: on this machine, or on all machines of a running cluster."""

from __future__ import annotations

import importlib
import re
import socket
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from tilewright.driver.cluster import ClusterMeasurer, WorkerLostError
from tilewright.driver.cluster_worker import ClusterWorker
from tilewright.driver.measuring import MOST_WORKERS
from tilewright.support import InputError, InstallationError, ResourceError

#: Seconds for a cluster's head to take a connection.
_CONNECT: Final = 10.0
_LOCAL: Final = re.compile(r"local\[(\d{1,3})\]")


def cluster_measurer(cluster: str) -> ClusterMeasurer:
    """The workers of ``local[N]``, so many on this machine, or of the cluster of Ray at an address.

    Raises InputError for what is neither, InstallationError without Ray, ResourceError where the cluster
    cannot be reached.
    """
    local = _LOCAL.fullmatch(cluster)
    if local is not None and not 0 < int(local[1]) <= MOST_WORKERS:
        raise InputError(f"{cluster!r} has no worker, or more than {MOST_WORKERS}")
    if local is None and not re.fullmatch(r"(auto|[\w.-]+:\d+|ray://[\w.-]+:\d+)", cluster):
        raise InputError(
            f"{cluster!r} is no cluster", hint="local[2] for two workers here, or HOST:PORT of Ray's head"
        )
    try:
        # an extra, and seconds to load
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise InstallationError("a cluster needs Ray", hint="pip install 'tilewright[cluster]'") from None
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        if local is not None:
            count = int(local[1])
            ray.init(num_cpus=count, include_dashboard=False, **quiet)
            places = [(node["NodeID"], node["NodeManagerHostname"], count) for node in ray.nodes()]
        else:
            _reach(cluster)
            ray.init(address=cluster, **quiet)
            places = [
                (n["NodeID"], n["NodeManagerHostname"], min(int(n["Resources"].get("CPU", 0)), MOST_WORKERS))
                for n in ray.nodes()
                if n["Alive"]
            ]
    except (OSError, RuntimeError) as error:
        raise ResourceError(f"the cluster {cluster!r} cannot be reached: {error}") from None
    spread = [(node, host) for node, host, count in places for _ in range(count)]
    return ClusterMeasurer(RayPool(ray, [node for node, _ in spread]), [host for _, host in spread])


def _reach(address: str) -> None:
    """Raise OSError where nobody listens at an address: Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=_CONNECT).close()


class RayPool:
    """Actors of Ray, each on a node of its own choosing. ``ray`` is the package, which is an extra."""

    def __init__(self, ray: Any, nodes: Sequence[str]) -> None:
        self._ray = ray
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        actor = ray.remote(num_cpus=1, max_restarts=0)(ClusterWorker)
        self._actors: list[Any] = [
            actor.options(scheduling_strategy=strategy(node, soft=False)).remote() for node in nodes
        ]

    @property
    def size(self) -> int:
        """How many workers there were at the beginning."""
        return len(self._actors)

    @property
    def actors(self) -> tuple[Any, ...]:
        """The actors, dropped ones as ``None``."""
        return tuple(self._actors)

    def send(self, worker: int, request: Mapping[str, Any]) -> Hashable:
        """Ask an actor."""
        ticket: Hashable = self._actors[worker].answer.remote(dict(request))
        return ticket

    def ready(self, tickets: Sequence[Hashable], seconds: float) -> Sequence[Hashable]:
        """The answers that are there."""
        done, _ = self._ray.wait(list(tickets), num_returns=1, timeout=max(0.0, seconds))
        if not done:
            return []
        more, _ = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)
        return list(more)

    def answer(self, ticket: Hashable) -> object:
        """What an actor answered. Raises WorkerLostError where it ended, or failed."""
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(str(error).strip().splitlines()[-1][:300]) from None

    def drop(self, worker: int) -> None:
        """Kill an actor."""
        actor, self._actors[worker] = self._actors[worker], None
        if actor is not None:
            self._ray.kill(actor)

    def close(self) -> None:
        """Kill all actors, and leave the cluster."""
        for worker in range(len(self._actors)):
            self.drop(worker)
        self._ray.shutdown()
