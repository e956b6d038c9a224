# SPDX-License-Identifier: BSD-3-Clause
"""manifests.py WINNOWD MADE - what docker/kubernetes holds, and what manifests.sh has made of it, checked against the API's own schemas,
and each other (Python as helm.sh has it)"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

sys.path.insert(0, "docker/kubernetes")
import render

HERE = pathlib.Path("docker/kubernetes")
KUBERNETES = "1.37"

# Kinds of the Prometheus operator, which the API itself does not have: their fields.
OPERATOR = {"PodMonitor": {"selector", "podMetricsEndpoints"}, "PrometheusRule": {"groups"}}


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


def check_container(where, container, volumes):
    names = {port["name"] for port in container.get("ports", ())}
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            assert container[probe]["httpGet"]["port"] in names, (where, probe)
            assert container[probe]["httpGet"]["path"] in ("/healthz", "/readyz"), (where, probe)
    limits = container["resources"]["limits"]
    requests = {**limits, **container["resources"].get("requests", {})}  # what is not requested is what the limit says
    assert {"cpu", "memory"} <= set(requests), where
    for name in set(limits) | set(requests):
        if name.startswith("hugepages-") or "/" in name:  # these are not to be had in part
            assert limits[name] == requests[name], (where, name)
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    for mount in container.get("volumeMounts", ()):
        assert mount["name"] in volumes and mount["mountPath"].startswith("/"), (where, mount)


def check_pod(where, spec):
    for volume in spec.get("volumes", ()):
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
    if document["kind"] in OPERATOR:
        assert document["apiVersion"] == "monitoring.coreos.com/v1", where
        known(where, document["spec"], OPERATOR[document["kind"]])
        return
    kubernetes_validate.validate(document, KUBERNETES, strict=True)
    assert "kubernetes.io/arch" not in json.dumps(document), f"{where}: only one kind of CPU"  # images are for both
    spec = document.get("spec", {})
    if "template" in spec:
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
    (container,) = pod["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment.keys() == {"WINNOW_JOB", "WINNOW_AGGREGATORS", "WINNOW_KEY_FILE"}, environment
    assert environment["WINNOW_AGGREGATORS"].split(",") == there and container["args"] == ["--elastic"]


SPREAD = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "winnow"}}}
NEAR = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "fast", "operator": "Exists"}]}]}}}
VARIANTS = {
    "as it is": {},
    "a key": {"key": "a-key-of-our-own"},
    "xdp": {"xdp": {"enabled": True, "device": "net1"}, "multus": {"network": "fast-net"}},
    "dpdk": {"dpdk": {"enabled": True}, "multus": {"network": "fast-net"}},
    "sr-iov": {"dpdk": {"enabled": True, "device": "", "eal": "--in-memory"}, "devicePlugin": {"resource": "intel.com/sriov"}, "hugepages": "512Mi"},
    "workers": {"workers": {"enabled": True, "replicas": 3}, "replicas": 3},
    "their own list": {"workers": {"enabled": True, "aggregators": "far-0.far.other:5555"}},
    "watched": {
        "podMonitor": {"enabled": True, "labels": {"release": "stack"}}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True},
        "networkPolicy": {"enabled": False}, "replicas": 5,
    },
    "other namespaces": {"networkPolicy": {"workers": "trainers", "monitoring": "prom"}},
    "the hosts' network": {"hostNetwork": True},
    "a site": {"replicas": 1, "parent": "winnow-0.winnow.core:5555", "site": "rack 1"},
    "placed": {
        "nodeSelector": {"disk": "none"}, "tolerations": [{"key": "gpu", "operator": "Exists"}], "affinity": NEAR, "topologySpreadConstraints": [SPREAD],
        "priorityClassName": "high", "podAnnotations": {"a": "b"}, "imagePullSecrets": [{"name": "registry"}], "extraArgs": ["--dscp=cs1", "--window-bytes=1M"],
        "extraEnv": [{"name": "WINNOW_LOG", "value": "warn"}], "resources": {"limits": {"cpu": "8", "memory": "8Gi"}, "requests": {"cpu": "4", "memory": "8Gi"}},
    },
}
# Each with a part of the line by which it is refused.
WRONG = [
    ({"repicas": 4}, "additional properties 'repicas' not allowed"),
    ({"xdp": {"enabeld": True}}, "at '/xdp': additional properties 'enabeld' not allowed"),
    ({"workers": {"replica": 1}}, "at '/workers': additional properties 'replica' not allowed"),
    ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    ({"replicas": "2"}, "at '/replicas': got string, want integer"),
    ({"logFormat": "xml"}, "at '/logFormat'"),
    ({"imagePullPolicy": "Sometimes"}, "at '/imagePullPolicy'"),
    ({"key": "short"}, "at '/key'"),
    ({"extraArgs": ["dscp=cs1"]}, "at '/extraArgs/0'"),
    ({"extraEnv": [{"value": "x"}]}, "at '/extraEnv/0': missing property 'name'"),
    ({"hugepages": "lots"}, "at '/hugepages'"),
    ({"networkPolicy": {"workers": "No Namespace"}}, "at '/networkPolicy/workers'"),
    ({"xdp": {"enabled": True}, "dpdk": {"enabled": True}}, "xdp.enabled and dpdk.enabled are both true: an aggregator has one data path"),
    ({"dpdk": {"enabled": True, "device": ""}}, "dpdk.enabled needs dpdk.device, or dpdk.eal"),
    ({"hostNetwork": True, "multus": {"network": "fast"}}, "hostNetwork is true and multus.network is set"),
    ({"parent": "core"}, "at '/parent'"),
    ({"parent": "core:5555"}, "parent is set and replicas is 2: a worker lists one site, so set replicas to 1"),
    ({"parent": "core:5555", "replicas": 1, "xdp": {"enabled": True}}, "a site has the data path udp"),
    ({"site": "rack1"}, "site is set and parent is not"),
    ({"hugepages": "512Mi"}, "hugepages is set and dpdk.enabled is false"),
]


def check_variant(name, documents, stateful, pod, said):
    """What this variant is for is there, and nowhere else."""
    container = pod["containers"][0]
    kinds = [document["kind"] for document in documents]
    text, template = yaml.dump(documents), stateful["spec"]["template"]
    dpdk, xdp = name in ("dpdk", "sr-iov"), name == "xdp"
    assert ("Secret" in kinds) == (name == "a key") == ("checksum/keys" in template["metadata"].get("annotations", {}))
    assert kinds.count("PodMonitor") == kinds.count("PrometheusRule") == kinds.count("ConfigMap") == (name == "watched")
    assert (container["securityContext"]["runAsUser"] == 0) == (xdp or dpdk)
    assert pod["securityContext"]["seccompProfile"]["type"] == ("Unconfined" if xdp else "RuntimeDefault")
    assert ("BPF" in text) == xdp and (said.get("device") == "net1") == (name in ("xdp", "dpdk"))
    assert (said["datapath"] == "dpdk") == dpdk == (container["image"] == "winnowd:0.1.0-dpdk") and said.get("eal") == ("--in-memory" if name == "sr-iov" else None)
    assert (container["securityContext"]["capabilities"].get("add") == ["NET_RAW", "NET_ADMIN", "IPC_LOCK"]) == dpdk
    assert ("hugepages-2Mi" in text) == ("intel.com/sriov" in text) == (name == "sr-iov")
    assert ("fast-net" in str(template["metadata"])) == (name in ("xdp", "dpdk"))
    assert ("NetworkPolicy" in kinds) == (name != "watched")
    assert stateful["spec"]["replicas"] == {"watched": 5, "workers": 3, "a site": 1}.get(name, 2)
    assert (said.get("parent"), said.get("site")) == (("winnow-0.winnow.core:5555", "rack 1") if name == "a site" else (None, None))
    assert ("Deployment" in kinds) == (name in ("workers", "their own list"))
    assert (pod.get("hostNetwork"), pod.get("dnsPolicy")) == ((True, "ClusterFirstWithHostNet") if name == "the hosts' network" else (None, None))
    apart = pod["affinity"].get("podAntiAffinity", {})
    assert ("requiredDuringSchedulingIgnoredDuringExecution" in apart) == (name == "the hosts' network")
    if name == "placed":
        values = VARIANTS[name]
        for field in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName", "imagePullSecrets"):
            assert pod[field] == values[field], field
        assert container["resources"] == values["resources"] and container["env"] == values["extraEnv"]
        assert template["metadata"]["annotations"] == {"a": "b"} and (said["dscp"], said["window-bytes"]) == ("cs1", "1M")


def check_watching(documents):
    """The operator's rules and Grafana's dashboard are the files that other tests try."""
    by_kind = {document["kind"]: document for document in documents}
    assert by_kind["PodMonitor"]["metadata"]["labels"]["release"] == "stack"
    rules = yaml.safe_load((HERE.parent / "prometheus/alerts.yaml").read_text())
    assert by_kind["PrometheusRule"]["spec"] == rules, "the rule is not alerts.yaml"
    assert by_kind["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboard = json.loads((HERE.parent / "grafana/winnow.json").read_text())
    assert json.loads(by_kind["ConfigMap"]["data"]["winnow.json"]) == dashboard, "the dashboard is another one"


def check_policy(documents, values, namespace):
    for policy in (d for d in documents if d["kind"] == "NetworkPolicy"):
        admitted = [rule["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for rule in policy["spec"]["ingress"]]
        wanted = {"workers": namespace, "monitoring": "monitoring", **values.get("networkPolicy", {})}
        assert admitted == [wanted["workers"], wanted["monitoring"]], admitted


def check_chart(winnowd, keys):
    for name, values in VARIANTS.items():
        how = {"release": "grads", "namespace": "ml", **values}
        documents = load(render.chart(HERE / "chart", **how))
        for document in documents:
            check_document(document)
        stateful, pod = check_together(documents)
        assert pod["volumes"][0]["secret"]["defaultMode"] == 0o440
        said, drain = check_winnowd(winnowd, pod["containers"][0], keys)
        assert pod["terminationGracePeriodSeconds"] > drain, "killed while it drains"
        check_variant(name, documents, stateful, pod, said)
        check_policy(documents, values, "ml")
        there = [f"grads-{k}.grads:5555" for k in range(stateful["spec"]["replicas"])]
        if name in ("workers", "their own list"):
            check_deployment(documents, there if name == "workers" else ["far-0.far.other:5555"])
        if name == "watched":
            check_watching(documents)
        secret = [d for d in documents if d["kind"] == "Secret"]
        assert not secret or secret[0]["metadata"]["name"] == pod["volumes"][0]["secret"]["secretName"]
        assert not secret or secret[0]["stringData"]["keys"] == "* a-key-of-our-own"
        notes = render.templates(HERE / "chart", **how)["NOTES.txt"]
        assert f"WINNOW_AGGREGATORS={','.join(there)}\n" in notes and "--namespace ml" in notes, notes
        assert ("kubectl create secret" in notes) == (name != "a key") and ("does not hold" in notes) == (name == "the hosts' network"), notes
    for values, line in WRONG:
        said = render.refused(HERE / "chart", **values)
        assert said is not None and line in said, f"{values}: {said}"
    report = render.helm_python.lint(str(HERE / "chart"), strict=True)
    assert not report["errors"] and all(message["severity"] <= 1 for message in report["messages"]), report


def check_jobs(winnowd, made, keys):
    aggregators = load((made / "winnow.yaml").read_text())
    stateful, _ = check_together(aggregators)
    headless = stateful["spec"]["serviceName"]
    there = [f"{stateful['metadata']['name']}-{k}.{headless}:5555" for k in range(stateful["spec"]["replicas"])]
    workers = load((made / "worker-deployment.yaml").read_text())
    for document in (*aggregators, *workers):
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
        check_jobs(sys.argv[1], pathlib.Path(sys.argv[2]), keys.name)
    print(f"{len(VARIANTS)} variants of the chart, two jobs and a deployment fit together; {len(WRONG)} wrong ones are refused")


if __name__ == "__main__":
    main()
