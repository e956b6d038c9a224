# SPDX-License-Identifier: BSD-3-Clause
"""scale.py WINNOWD MANIFESTS - workers as the Deployment has them, and aggregators as the StatefulSet does, without a cluster

Processes are started with the manifests' own arguments and environment, but for addresses and files, and end as pods do: by
SIGTERM, within the grace period. What kubectl would do is done to them: scale 2, 4, 3; a pod that is killed and replaced;
rollout restart of the aggregators; scale 0.
"""
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

sys.path.insert(0, "tests/python")
from ports import free_port  # noqa: E402

LIMIT_S = 100
REPORT = re.compile(r"step (\d+): loss \S+, parameters add up to (\S+), (\d+) of (\d+)")


def load(path, kind):
    (found,) = [one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == kind]
    return found["spec"]["template"]["spec"], found["spec"]["replicas"]


def until(holds, what):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {LIMIT_S} s: {what}\n" + "\n".join(pod.last() for pod in Pod.all)
        time.sleep(0.05)


class Pod:
    all = []

    def __init__(self, folder, command, environment, grace_s):
        self.name, self.grace_s = f"{pathlib.Path(command[0]).name}-{len(Pod.all)}", grace_s
        self.path = folder / f"{self.name}.log"
        with open(self.path, "w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        Pod.all.append(self)

    def text(self):
        return self.path.read_text()

    def last(self):
        return f"--- {self.name}: {self.process.poll()}\n" + "".join(self.text().splitlines(True)[-5:])

    def reports(self):
        """(step, what parameters add up to, workers) of each step."""
        return [(int(step), total, int(world)) for step, total, _, world in REPORT.findall(self.text())]

    def end(self):
        """What a cluster does; SIGKILL after the grace period would be a failure."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(self.grace_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end within {self.grace_s} s: {self.last()}") from None
        assert status == 0, self.last()
        return time.monotonic() - begun


class Cluster:
    def __init__(self, winnowd, manifests, folder):
        self.folder = folder
        (folder / "keys").write_text("* a-key-for-tests\n")
        (folder / "keys").chmod(0o400)
        self.aggregator, count = load(manifests / "winnow.yaml", "StatefulSet")
        self.worker, self.replicas = load(manifests / "worker-deployment.yaml", "Deployment")
        self.winnowd = winnowd
        self.ports, self.metrics = ([free_port() for _ in range(count)] for _ in range(2))
        dockerfile = pathlib.Path("docker/worker.Dockerfile").read_text()
        self.entry = yaml.safe_load(re.search(r"^ENTRYPOINT (.*)$", dockerfile, re.M)[1])
        subprocess.run([sys.executable, "docker/train.py", "--prepare", "--data", folder / "corpus.npz"], env=self.environment(), check=True)
        self.aggregators = [self.start_aggregator(number) for number in range(count)]
        self.workers = []

    def environment(self, **more):
        paths = "client/python:client/python/demo"
        return {"PATH": "/usr/bin:/bin", "PYTHONPATH": paths, "WINNOW_LIBRARY": "build/libwinnow.so", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}

    def here(self, text):
        """What is another host's there."""
        text = text.replace("/etc/winnow/keys", str(self.folder / "keys"))
        for number, port in enumerate(self.ports):
            text = text.replace(f"winnow-{number}.winnow:5555", f"127.0.0.1:{port}")
        return text

    def start_aggregator(self, number):
        (container,) = self.aggregator["containers"]
        addresses = {"[::]:5555": f"127.0.0.1:{self.ports[number]}", "[::]:9555": f"127.0.0.1:{self.metrics[number]}"}
        arguments = [self.here(argument) for argument in container["args"]]
        for ours, address in addresses.items():
            arguments = [argument.replace(ours, address) for argument in arguments]
        pod = Pod(self.folder, [self.winnowd, *arguments], {}, self.aggregator["terminationGracePeriodSeconds"])
        until(lambda: self.ready(number), f"winnowd {number} is ready")
        return pod

    def ready(self, number):
        path = self.aggregator["containers"][0]["readinessProbe"]["httpGet"]["path"]
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.metrics[number]}{path}", timeout=5).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def start_worker(self):
        (container,) = self.worker["containers"]
        variables = {one["name"]: self.here(one["value"]) for one in container["env"]}
        command = [sys.executable, "docker/train.py", *container["args"], "--data", str(self.folder / "corpus.npz")]
        assert pathlib.Path(self.entry[0]).name == "python3" and pathlib.Path(self.entry[1]).name == "train.py"
        command += ["--report", "1", "--pause", "0.1", "--found-after", "2"]
        grace_s = self.worker["terminationGracePeriodSeconds"]
        self.workers.append(Pod(self.folder, command, self.environment(**variables), grace_s))

    def scale(self, count):
        """The newest go first."""
        while len(self.workers) > count:
            self.workers.pop().end()
        while len(self.workers) < count:
            self.start_worker()
        self.settle()

    def settle(self):
        """All train, together, and go on."""
        count, seen = len(self.workers), [len(worker.reports()) for worker in self.workers]

        def trains(worker, before):
            reports = worker.reports()
            return len(reports) > before + 2 and reports[-1][2] == count

        until(lambda: all(map(trains, self.workers, seen)), f"{count} workers train")

    def restart_aggregators(self):
        """As a StatefulSet does it: the last one first, one at a time."""
        for number in reversed(range(len(self.ports))):
            took = self.aggregators[number].end()
            self.aggregators[number] = self.start_aggregator(number)
            self.settle()
            print(f"winnowd {number} ended within {took:.1f} s and is back")


def check(pods):
    """Who has done a step has the model that all have after it; no step is left out, and none done twice."""
    totals, steps = {}, 0
    for pod in pods:
        reports = pod.reports()
        for step, total, _ in reports:
            assert totals.setdefault(step, total) == total, (pod.name, step)
        numbers = [step for step, _, _ in reports]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), (pod.name, numbers)
        steps += len(numbers)
    assert sorted(totals) == list(range(1, len(totals) + 1)), sorted(totals)
    return len(totals), steps


def repeated(pods):
    return sum(pod.text().count(" again: ") for pod in pods)


def main():
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster = Cluster(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(folder))
            for count in (cluster.replicas, 4, 3):
                cluster.scale(count)
            killed = cluster.workers.pop(0)
            killed.process.kill()
            cluster.scale(3)
            before = repeated(Pod.all)
            cluster.restart_aggregators()
            assert repeated(Pod.all) == before, "a step is repeated, though aggregators drain"
            cluster.scale(0)
            pods = [pod for pod in Pod.all if pod.reports()]
            steps, all_steps = check(pods)
            print(f"{len(pods)} workers, {steps} steps ({all_steps} of workers), {repeated(Pod.all)} repeated by a worker")
        finally:
            for pod in Pod.all:
                pod.process.kill()
                pod.process.wait()


if __name__ == "__main__":
    main()
