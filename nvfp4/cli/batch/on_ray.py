"""Judges the submissions of a batch on a Ray cluster, which places, retries and logs by itself."""

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

import click

from nvfp4.cli.batch.eval_process import BatchOptions, Candidate, EvalProcesses, Told, crashed
from nvfp4.cli.errors import SetupError, listen

_retries = 3
"""Number of further attempts with a submission whose node or Ray worker dies."""

_cores_each = 2

_reach_s = 10.0

Judge = Callable[[Candidate, str, BatchOptions], dict[str, Any]]


def judge_in_a_process(candidate: Candidate, kind: str, options: BatchOptions) -> dict[str, Any]:
    """Judge a submission in a task, whose GPU Ray has chosen by CUDA_VISIBLE_DEVICES."""
    return EvalProcesses(options.arguments, options.limit_s).judge(candidate, kind, {})


class RayCluster:
    """The judgements of a Ray cluster. kind: cuda or cpu."""

    def __init__(self, options: BatchOptions, judge: Judge = judge_in_a_process) -> None:
        """Connects to the cluster. Raises SetupError."""
        self._options, self._judge = options, judge
        self._ray = _connected(options.ray or "auto")
        has_gpu = options.device != "auto" or self._ray.cluster_resources().get("GPU")
        self.kind = "cuda" if has_gpu and options.device not in ("cpu", "emulate") else "cpu"
        cpus, gpus = (_cores_each, 0) if self.kind == "cpu" else (1, 1)
        self._resources = {"num_cpus": cpus, "num_gpus": gpus}
        self._say_if_nothing_fits({"CPU": cpus, "GPU": gpus})

    def judge(self, candidates: Sequence[Candidate], told: Told) -> str | None:
        """See Judges. Ray's dashboard shows which submission is judged where."""
        ray = self._ray
        task = ray.remote(self._judge).options(max_retries=_retries, **self._resources)
        try:
            waiting = {task.remote(each, self.kind, self._options): each for each in candidates}
            try:
                while waiting:
                    (ready,), _ = ray.wait([*waiting], num_returns=1)
                    told(waiting.pop(ready), self._verdict(ready))
            except KeyboardInterrupt:
                for ready in ray.wait([*waiting], num_returns=len(waiting), timeout=0)[0]:
                    told(waiting[ready], self._verdict(ready))
                raise
        finally:
            ray.shutdown()  # which ends what still runs
        return None

    def _verdict(self, ready: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            return crashed(f"Ray: {str(error).strip().partition(chr(10))[0]}")
        return found

    def _say_if_nothing_fits(self, amounts: dict[str, int]) -> None:
        """Print a note if no node has what a task needs; it is no error, as a cluster may grow."""
        wanted = ", ".join(f"{least} {name}" for name, least in amounts.items() if least)
        for node in self._ray.nodes():
            has = node["Resources"]
            if node["Alive"] and all(has.get(name, 0) >= least for name, least in amounts.items()):
                return
        click.echo(f"no node of the cluster has {wanted}: waiting for one", err=True)


def _connected(address: str) -> Any:
    """Connect to a cluster and return the module ray. Raises SetupError."""
    try:
        import ray
    except ImportError:
        raise SetupError("Ray is not installed", "pip install 'nvfp4[ray]'") from None
    try:
        _reach(address)
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        hint = "ray start --head starts one; docs/cluster.md shows how."
        raise SetupError(f"there is no Ray cluster at {address}: {reason}", hint) from None
    listen()  # Ray takes SIGTERM for itself
    return ray


def _reach(address: str) -> None:
    """Connect to an address. Raises OSError at once if nothing listens there; Ray would try for
    minutes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _reach_s).close()
