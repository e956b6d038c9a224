# SPDX-License-Identifier: BSD-3-Clause
"""manifests.py WINNOWD - what docker/kubernetes holds, checked against what the API's schemas demand of these kinds, and each other"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import render

HERE = pathlib.Path("docker/kubernetes")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGT]i?)?")

# Of each object: the fields that the API knows (of those that we use or might mistype), and those that it wants.
META = {"name", "labels", "annotations", "namespace"}
CONTAINER = set("name image imagePullPolicy args command env ports livenessProbe readinessProbe startupProbe securityContext resources volumeMounts restartPolicy".split())
POD = set(
    "automountServiceAccountToken enableServiceLinks terminationGracePeriodSeconds affinity securityContext containers initContainers volumes subdomain restartPolicy hostNetwork nodeSelector tolerations".split()
)
KINDS = {
    "Service": ("v1", {"clusterIP", "selector", "ports", "publishNotReadyAddresses"}, {"ports": False, "selector": True}),
    "Secret": ("v1", None, {}),
    "StatefulSet": ("apps/v1", {"replicas", "serviceName", "podManagementPolicy", "selector", "template"}, {"serviceName": True, "selector": True, "template": True}),
    "Job": ("batch/v1", {"completions", "parallelism", "completionMode", "backoffLimit", "template"}, {"template": True}),
    "Deployment": ("apps/v1", {"replicas", "strategy", "selector", "template"}, {"selector": True, "template": True}),
    "PodDisruptionBudget": ("policy/v1", {"maxUnavailable", "minAvailable", "selector"}, {"selector": True}),
    "NetworkPolicy": ("networking.k8s.io/v1", {"podSelector", "policyTypes", "ingress", "egress"}, {"podSelector": True}),
    "PodMonitor": ("monitoring.coreos.com/v1", {"selector", "podMetricsEndpoints"}, {"selector": True, "podMetricsEndpoints": True}),
}


def known(where, given, allowed):
    unknown = set(given) - set(allowed)
    assert not unknown, f"{where}: the API has no {', '.join(sorted(unknown))}"


class Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, which YAML's own loader takes."""


def mapping(loader, node, deep=False):
    keys = [loader.construct_object(key, deep=deep) for key, _ in node.value]
    assert len(keys) == len(set(map(str, keys))), f"twice in one mapping, line {node.start_mark.line + 1}: {keys}"
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def load(text):
    documents = [d for d in yaml.load_all(text, Loader) if d is not None]
    assert documents, "no documents"
    return documents


def check_ports(where, ports, number):
    for port in ports:
        assert isinstance(port[number], int) and port.get("protocol") in ("TCP", "UDP"), (where, port)
        assert NAME.fullmatch(port["name"]) and len(port["name"]) <= 15, (where, port)
    assert len({port["name"] for port in ports}) == len(ports), where


def check_container(where, container, volumes):
    known(where, container, CONTAINER)
    assert NAME.fullmatch(container["name"]) and re.fullmatch(r"[a-z0-9./-]+:[\w.-]+", container["image"]), where
    assert all(isinstance(arg, str) for arg in container.get("args", ())), where
    for variable in container.get("env", ()):
        assert re.fullmatch(r"[A-Z_]+", variable["name"]) and isinstance(variable["value"], str), (where, variable)
    check_ports(where, container.get("ports", ()), "containerPort")
    names = {port["name"] for port in container.get("ports", ())}
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            known(where, container[probe], {"httpGet", "periodSeconds", "failureThreshold"})
            assert container[probe]["httpGet"]["port"] in names, (where, probe)
            assert container[probe]["httpGet"]["path"] in ("/healthz", "/readyz"), (where, probe)
    limits = container["resources"]["limits"]
    requests = {**limits, **container["resources"].get("requests", {})}  # what is not requested is what the limit says
    assert {"cpu", "memory"} <= set(requests), where
    for name, amount in [*limits.items(), *requests.items()]:
        assert isinstance(amount, str) and QUANTITY.fullmatch(amount), (where, name, amount)
    for name in set(limits) | set(requests):
        if name.startswith("hugepages-") or "/" in name:  # these are not to be had in part
            assert limits[name] == requests[name], (where, name)
    context = container["securityContext"]
    known(where, context, {"readOnlyRootFilesystem", "runAsNonRoot", "runAsUser", "runAsGroup", "allowPrivilegeEscalation", "capabilities"})
    assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    for mount in container.get("volumeMounts", ()):
        known(where, mount, {"name", "mountPath", "readOnly"})
        assert mount["name"] in volumes and mount["mountPath"].startswith("/"), (where, mount)


def check_pod(where, spec):
    known(where, spec, POD)
    for volume in spec.get("volumes", ()):
        known(where, volume, {"name", "secret", "emptyDir"})
        known(where, volume.get("secret", {}), {"secretName", "defaultMode"})
        if "secret" in volume:  # by the group, or winnowd and the library warn of it
            assert volume["secret"]["defaultMode"] == 0o440 and spec["securityContext"]["fsGroup"] == 65532, where
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    used = set()
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        check_container(f"{where}/{container['name']}", container, volumes)
        used |= {mount["name"] for mount in container.get("volumeMounts", ())}
    assert volumes == used, f"{where}: volumes that nobody mounts: {volumes - used}"
    assert spec["automountServiceAccountToken"] is False


def check_document(document):
    where = f"{document['kind']} {document['metadata']['name']}"
    version, fields, wanted = KINDS[document["kind"]]
    assert document["apiVersion"] == version, where
    known(where, document["metadata"], META)
    assert NAME.fullmatch(document["metadata"]["name"]), where
    if fields is None:
        known(where, document, {"apiVersion", "kind", "metadata", "type", "stringData", "data"})
        return
    known(where, document, {"apiVersion", "kind", "metadata", "spec"})
    spec = document["spec"]
    known(where, spec, fields)
    assert all(name in spec for name, needed in wanted.items() if needed), where
    check_ports(where, spec["ports"], "port") if "ports" in spec else None
    if "template" in spec:
        known(where, spec["template"], {"metadata", "spec"})
        check_pod(where, spec["template"]["spec"])


def check_together(documents):
    """Selectors find pods, names name objects, ports are those that the pods have."""
    by_kind = {}
    for document in documents:
        if document["metadata"]["labels"]["app.kubernetes.io/name"] != "winnow-worker":
            by_kind.setdefault(document["kind"], []).append(document)
    (stateful,) = by_kind["StatefulSet"]
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    for kind, path in (("StatefulSet", ("selector", "matchLabels")), ("Service", ("selector",)), ("PodDisruptionBudget", ("selector", "matchLabels")),
                       ("NetworkPolicy", ("podSelector", "matchLabels")), ("PodMonitor", ("selector", "matchLabels"))):
        for document in by_kind.get(kind, ()):
            selector = document["spec"]
            for step in path:
                selector = selector[step]
            assert selector and selector.items() <= labels.items(), (kind, selector)
    (service,) = by_kind["Service"]
    assert service["metadata"]["name"] == stateful["spec"]["serviceName"] and service["spec"]["clusterIP"] == "None"
    pod = stateful["spec"]["template"]["spec"]
    ports = {(port["name"], port["containerPort"], port["protocol"]) for port in pod["containers"][0]["ports"]}
    assert {(port["name"], port["port"], port["protocol"]) for port in service["spec"]["ports"]} == ports
    for policy in by_kind.get("NetworkPolicy", ()):
        opened = {(p["port"], p["protocol"]) for rule in policy["spec"]["ingress"] for p in rule["ports"]}
        assert opened == {(number, protocol) for _, number, protocol in ports}, opened
    for monitor in by_kind.get("PodMonitor", ()):
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert endpoint["port"] in {name for name, _, _ in ports} and endpoint["honorLabels"] is True
    return stateful, pod


def check_winnowd(winnowd, container, keys):
    """The options are winnowd's own: it says so itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WINNOW_")}
    arguments = [arg.replace("/etc/winnow/keys", keys) for arg in container["args"]]
    answer = subprocess.run([winnowd, *arguments, "--dump-config"], capture_output=True, text=True, env=environment)
    assert answer.returncode == 0, answer.stderr
    said = dict(line.split(" ;")[0].split(" = ", 1) for line in answer.stdout.splitlines() if " = " in line and not line.startswith(";"))
    said = {name.strip(): value.strip() for name, value in said.items()}
    assert said["metrics"] == "[::]:9555" and said["listen"] == "[::]:5555", said  # whichever family the cluster has
    drain = float(said["drain-timeout"])
    return said, drain


def check_deployment(documents, there):
    """Its pods are those of no other selector, and find these aggregators. They say nothing of ranks."""
    (deployment,) = [d for d in documents if d["kind"] == "Deployment"]
    (budget,) = [d for d in documents if d["kind"] == "PodDisruptionBudget" and "worker" in d["metadata"]["labels"]["app.kubernetes.io/name"]]
    spec = deployment["spec"]
    pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
    for selector in (spec["selector"], budget["spec"]["selector"]):
        assert selector["matchLabels"] == labels and labels["app.kubernetes.io/name"] == "winnow-worker"
    known("strategy", spec["strategy"]["rollingUpdate"], {"maxUnavailable", "maxSurge"})
    (container,) = pod["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment.keys() == {"WINNOW_JOB", "WINNOW_AGGREGATORS", "WINNOW_KEY_FILE"}, environment
    assert environment["WINNOW_AGGREGATORS"].split(",") == there and container["args"] == ["--elastic"]


VARIANTS = {
    "as it is": {},
    "a key": {"key": "a-key-of-our-own"},
    "xdp": {"xdp": {"enabled": True, "device": "net1"}, "multus": {"network": "fast-net"}},
    "dpdk": {"dpdk": {"enabled": True}, "multus": {"network": "fast-net"}},
    "sr-iov": {"dpdk": {"enabled": True, "device": "", "eal": "--in-memory"}, "devicePlugin": {"resource": "intel.com/sriov"}, "hugepages": "512Mi"},
    "workers": {"workers": {"enabled": True, "replicas": 3, "aggregators": "grads-0.grads:5555,grads-1.grads:5555"}},
    "watched": {"podMonitor": {"enabled": True}, "networkPolicy": {"enabled": False}, "replicas": 5},
}


def check_chart(winnowd, keys):
    for name, changes in VARIANTS.items():
        documents = load(render.chart(HERE / "chart", release="grads", **changes))
        for document in documents:
            check_document(document)
        stateful, pod = check_together(documents)
        assert pod["volumes"][0]["secret"]["defaultMode"] == 0o440
        container = pod["containers"][0]
        said, drain = check_winnowd(winnowd, container, keys)
        assert pod["terminationGracePeriodSeconds"] > drain, "killed while it drains"
        kinds = [document["kind"] for document in documents]
        text = yaml.dump(documents)
        assert ("Secret" in kinds) == (name == "a key") and ("PodMonitor" in kinds) == (name == "watched")
        dpdk = name in ("dpdk", "sr-iov")
        assert (container["securityContext"]["runAsUser"] == 0) == (name == "xdp" or dpdk)
        assert ("BPF" in text) == (name == "xdp") and (said.get("device") == "net1") == (name in ("xdp", "dpdk"))
        assert (said["datapath"] == "dpdk") == dpdk == (container["image"] == "winnowd:0.1.0-dpdk") and said.get("eal") == ("--in-memory" if name == "sr-iov" else None)
        assert (container["securityContext"]["capabilities"].get("add") == ["NET_RAW", "NET_ADMIN", "IPC_LOCK"]) == dpdk
        assert ("hugepages-2Mi" in text) == ("intel.com/sriov" in text) == (name == "sr-iov")
        assert ("fast-net" in str(stateful["spec"]["template"]["metadata"])) == (name in ("xdp", "dpdk"))
        assert ("NetworkPolicy" in kinds) == (name != "watched") and stateful["spec"]["replicas"] == (5 if name == "watched" else 2)
        assert ("Deployment" in kinds) == (name == "workers")
        if name == "workers":
            check_deployment(documents, ["grads-0.grads:5555", "grads-1.grads:5555"])
        secret = [d for d in documents if d["kind"] == "Secret"]
        assert not secret or secret[0]["metadata"]["name"] == pod["volumes"][0]["secret"]["secretName"]
        assert not secret or secret[0]["stringData"]["keys"] == "* a-key-of-our-own"


def check_jobs(winnowd, keys):
    aggregators = load((HERE / "winnow.yaml").read_text())
    stateful, _ = check_together(aggregators)
    headless = stateful["spec"]["serviceName"]
    there = [f"{stateful['metadata']['name']}-{k}.{headless}:5555" for k in range(stateful["spec"]["replicas"])]
    text = (HERE / "worker-deployment.yaml").read_text()
    workers = load(text)
    assert text == render.workers(HERE / "chart"), "worker-deployment.yaml is not the chart's: python3 tests/e2e/render.py docker/kubernetes/chart workers"
    for document in workers:
        check_document(document)
    check_deployment(workers, there)
    for path in ("worker-job.yaml", "colocated-job.yaml"):
        service, job = load((HERE / path).read_text())
        check_document(service)
        check_document(job)
        name, spec = job["metadata"]["name"], job["spec"]
        pod = spec["template"]["spec"]
        assert service["spec"]["selector"] == {"job-name": name} and pod["subdomain"] == service["metadata"]["name"]
        pods = [f"{name}-{k}.{pod['subdomain']}" for k in range(spec["completions"])]
        environment = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
        assert environment["MASTER_ADDR"] == pods[0] and int(environment["WORLD_SIZE"]) == spec["completions"] == spec["parallelism"]
        beside = path == "colocated-job.yaml"
        assert environment["WINNOW_AGGREGATORS"].split(",") == ([f"{pod}:5555" for pod in pods] if beside else there)
        if beside:
            assert pod["initContainers"][0]["restartPolicy"] == "Always"
            check_winnowd(winnowd, pod["initContainers"][0], keys)


def main():
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("* a-key-for-tests\n")
        keys.flush()
        check_chart(sys.argv[1], keys.name)
        check_jobs(sys.argv[1], keys.name)
    known("Chart.yaml", load((HERE / "chart/Chart.yaml").read_text())[0], {"apiVersion", "name", "description", "type", "version", "appVersion", "kubeVersion"})
    print(f"{len(VARIANTS)} variants of the chart, two jobs and a deployment fit together")


if __name__ == "__main__":
    main()
