"""`nvfp4 batch --ray` on a cluster of three nodes, all of them on this machine."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batches import verdict_of
from bot import root
from conftest import processes_naming, start_python
from kept import invoke, refused
from started import ENDLESS, wait_until

from nvfp4.cli.batch.eval_process import BatchOptions, Candidate
from nvfp4.cli.batch.on_ray import Judge, RayCluster
from nvfp4.cli.batch.this_machine import cpu_places, judge_on

pytest.importorskip("ray", reason="Ray is not installed")

quickly = {"health_check_period_ms": 500, "health_check_failure_threshold": 5}
"""So that a dead node is noticed within seconds."""

environment = {
    "PYTHONPATH": str(root),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_raylet_start_wait_time_s": "300",  # a busy machine may stall for a while
    "RAY_gcs_rpc_server_reconnect_timeout_s": "300",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three nodes, each with cores for one submission; the last may be killed."""
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.update(environment)
    small = {"num_cpus": 2, "num_gpus": 0, "object_store_memory": 100 << 20}
    head = {**small, "include_dashboard": False, "_system_config": quickly}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        made.nodes = [made.add_node(**small) for _ in range(2)]
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()
        os.environ.clear()
        os.environ.update(before)


def options(cluster: Any) -> BatchOptions:
    """Of a batch on the cluster."""
    return BatchOptions(Path("out.jsonl"), ray=cluster.address, device="cpu")


def candidates(count: int) -> list[Candidate]:
    """Half of them wrong."""
    texts = [f"{'wrong' if number % 2 else 'passes'} {number}" for number in range(count)]
    return [Candidate(text, text.encode(), [Path(f"{text}.py")]) for text in texts]


def judge_that_notes(folder: Path, victim: str) -> Judge:
    """A judge that says in a file which node it runs on. On the victim it ends once only."""
    verdicts = {text: verdict_of(text) for text in (b"passes", b"wrong")}

    def judge(candidate: Candidate, kind: str, options: BatchOptions) -> dict[str, Any]:
        import ray

        node = ray.get_runtime_context().get_node_id()
        on_victim = f"* on {victim}"
        again = list(folder.glob(on_victim))
        (folder / f"{candidate.sha256} on {node}").touch()
        deadline = time.monotonic() + 60
        while node != victim and len(list(folder.glob(on_victim))) < 2:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)  # or the others could be done before the victim has started
        time.sleep(100 if node == victim and again else 0.3)
        return verdicts[candidate.content.split()[0]]

    return judge


def test_a_node_dies_and_every_result_is_there_once(cluster: Any, tmp_path: Path) -> None:
    judged = candidates(14)
    expected: dict[str, Any] = {}
    judge_on(
        cpu_places(2),
        judged,
        lambda each, place: verdict_of(each.content),
        lambda: None,
        lambda each, verdict: expected.update({each.sha256: verdict}),
    )
    victim = cluster.nodes[-1]
    found: list[tuple[str, dict[str, Any]]] = []

    def told(candidate: Candidate, verdict: dict[str, Any]) -> None:
        found.append((candidate.sha256, verdict))
        if len(found) == 5:
            wait_until(lambda: len(list(tmp_path.glob(f"* on {victim.node_id}"))) == 2, "it begins")
            cluster.remove_node(victim, allow_graceful=False)

    RayCluster(options(cluster), judge_that_notes(tmp_path, victim.node_id)).judge(judged, told)
    assert len(found) == len(judged)
    assert dict(found) == expected
    begun = [path.name.split(" on ") for path in tmp_path.iterdir()]
    assert len({node for _, node in begun}) == 3
    assert len(begun) == len(judged) + 1  # one was judged again elsewhere


def test_lines_are_those_of_a_batch_without_ray(cluster: Any, cwd: Path) -> None:
    sources = ["def custom_kernel(:\n", "", "custom_kernel = (\n", ""]
    for number, source in enumerate(sources):
        (cwd / f"{number}.py").write_text(source)

    def lines(name: str, *arguments: str) -> dict[str, Any]:
        ended = invoke("batch", ".", "--jsonl", name, "--device", "cpu", *arguments)
        assert ended.exit_code == 1, ended.output
        found = [json.loads(line) for line in Path(name).read_text().splitlines()]
        assert len(found) == len(sources)
        for line in found:
            assert line.pop("elapsed_s") >= 0
        return {line["submission"]["path"]: line for line in found}

    assert lines("ray.jsonl", "--ray", cluster.address) == lines("here.jsonl")


def test_an_interrupt_leaves_no_process(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "0.py").write_text("def custom_kernel(:\n")
    (tmp_path / "1.py").write_text(ENDLESS)
    out = tmp_path / "out.jsonl"
    arguments = ["batch", str(tmp_path), "--jsonl", str(out), "--device", "cpu"]
    process = start_python("-m", "nvfp4", *arguments, "--ray", cluster.address, env=None, cwd=root)

    def running() -> list[str]:
        return [each for each in processes_naming("nvfp4 eval ") if "/1.py" in each]

    wait_until(lambda: running() and out.exists() and out.read_text(), "it runs")
    process.terminate()
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 143, errors
    assert "interrupted: 0 passed, 1 failed, in " in output
    wait_until(lambda: not running(), "it was ended")


def test_a_cluster_without_a_gpu_waits_for_one(
    cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    judges = RayCluster(replace(options(cluster), device="cuda"))
    assert judges.kind == "cuda"
    assert capsys.readouterr().err == "no node of the cluster has 1 CPU, 1 GPU: waiting for one\n"
    judges.judge([], lambda candidate, verdict: None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ray", "auto", "--jobs", "2"], "--jobs is for one machine"),
        (["--ray", "auto", "--device", "cuda:1"], "--device cuda:1 does not go with --ray"),
        (["--ray", "127.0.0.1:1"], "there is no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_ends_in_a_sentence(arguments: list[str], said: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    batch = ("batch", str(tmp_path), "--jsonl", str(out), *arguments)
    assert "no file of" in refused(*batch)
    (tmp_path / "a.py").touch()
    assert said in refused(*batch)
    assert not out.exists()
