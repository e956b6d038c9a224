# SPDX-License-Identifier: BSD-3-Clause
"""dashboard.py URL DASHBOARD.json - every query of the dashboard gives data at this Prometheus, within a minute; its legends name labels
that the data have, rates are of counters, variables list something, and the whole is what Grafana's provisioning expects
dashboard.py URL --alert NAME INSTANCE - that alert is pending or firing, within a minute"""
import json
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

base = sys.argv[1]


def ask(path, **parameters):
    with urllib.request.urlopen(f"{base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)["data"]


def until(seconds, problem):
    """Until problem() gives None; what it gave last otherwise."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = problem()
        except OSError as error:
            found = f"Prometheus does not answer: {error}"
        if found is None or time.monotonic() > end:
            return found
        time.sleep(1)


UNITS = {"none", "short", "percentunit", "s", "ops", "cps", "Bps", "pps", "bytes"}  # ids of Grafana's own list
SOURCE = {"type": "prometheus", "uid": "${source}"}
BUILT_IN = {"__rate_interval"}


def check_parts(dashboard):
    """What Grafana would show as an empty panel, or not at all, and say nothing."""
    panels, variables = dashboard["panels"], dashboard["templating"]["list"]
    names = {variable["name"] for variable in variables}
    assert names == {"instance", "job", "source"} and dashboard["uid"] == "winnow" and dashboard["schemaVersion"] >= 30, names
    assert dashboard.get("id") is None, "an id of one Grafana's own database"
    assert len({panel["id"] for panel in panels}) == len(panels) and len({panel["title"] for panel in panels}) == len(panels)
    by_name = {variable["name"]: variable for variable in variables}
    assert by_name["source"]["type"] == "datasource" and by_name["source"]["query"] == "prometheus"
    for variable in (by_name["instance"], by_name["job"]):
        assert variable["type"] == "query" and variable["datasource"] == SOURCE and variable["multi"] and variable["includeAll"], variable
    for panel in panels:
        if panel["type"] == "row":
            continue
        where, targets = panel["title"], panel["targets"]
        assert panel["type"] in ("timeseries", "stat") and panel["datasource"] == SOURCE, where
        assert len(panel["description"]) > 40 and panel["description"].endswith("."), f"{where}: nobody is told what it means"
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, (where, panel["fieldConfig"]["defaults"]["unit"])
        assert targets and len({target["refId"] for target in targets}) == len(targets), where
        for target in targets:
            used = set(re.findall(r"\$\{?(\w+)", target["expr"]))
            assert used <= names | BUILT_IN, (where, used)
            # A variable that stands for several values is a pattern.
            assert not re.search(r'="\$(instance|job)"', target["expr"]) and "instance" in used, (where, target["expr"])
            assert target.get("datasource", SOURCE) == SOURCE and target["legendFormat"], where


def check_provisioning(folder):
    """The files beside the dashboard, by what compose.yaml mounts where."""
    (source,) = (folder / "provisioning/datasources").glob("*.yaml")
    (provider,) = (folder / "provisioning/dashboards").glob("*.yaml")
    compose = (folder.parent / "compose.yaml").read_text()
    path = re.search(r"path: (\S+)", provider.read_text())[1]
    assert f"./grafana/winnow.json:{path}/winnow.json:ro" in compose and "./grafana/provisioning:/etc/grafana/provisioning:ro" in compose
    assert re.search(r"type: prometheus\n.*?url: http://prometheus:9090\n.*?isDefault: true", source.read_text(), re.S)
    assert re.search(r"^  prometheus:$", compose, re.M), "compose.yaml has no service of that name"


def queries(path):
    dashboard = json.load(open(path))
    check_parts(dashboard)
    first = [panel["title"] for panel in dashboard["panels"] if panel["gridPos"]["y"] <= 1]
    assert first[0] == "Is it fine?" and len(first) > 5, first
    check_provisioning(pathlib.Path(path).parent)
    places, found = set(), []
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["w"] * place["h"] > 0 and not cells & places, f"{panel['title']} lies over another panel"
        places |= cells
        found += [(panel["title"], target["expr"], target["legendFormat"]) for target in panel.get("targets", ())]
    assert len(found) > 15, found
    return found


def empty(found):
    up = [result["value"][1] for result in ask("query", query='up{job="winnow"}')["result"]]
    if up != ["1", "1"]:
        return f"up: {up}"
    for title, expr, _ in found:
        expr = expr.replace("$__rate_interval", "20s").replace("$instance", ".*").replace("$job", ".*")
        result = ask("query", query=expr)["result"]
        if not result:
            return f"no data for '{title}': {expr}"
        if title in ("Operations a second", "Time of an operation", "Saving: tensor bytes for a byte that a worker sends") and not all(
            float(series["value"][1]) > 0 for series in result
        ):
            return f"'{title}' is not positive: {result}"
    return None


def check_labels(found):
    """A legend's labels are the data's; a rate is of a counter, and a counter is shown as a rate."""
    kinds = {name: kind[0]["type"] for name, kind in ask("metadata").items()}
    for title, expr, legend in found:
        names = set(re.findall(r"(?:winnow|process)_\w+", expr))
        for name in names:
            kind = kinds.get(name) or kinds[re.sub(r"_bucket$", "", name)]
            rated = re.search(rf"(rate|increase)\({name}\{{", expr) is not None
            assert rated == (kind in ("counter", "histogram")), f"'{title}': {name} is a {kind}: {expr}"
        expr = expr.replace("$__rate_interval", "20s").replace("$instance", ".*").replace("$job", ".*")
        texts = []
        for series in ask("query", query=expr)["result"]:
            wanted = set(re.findall(r"\{\{(\w+)\}\}", legend))
            assert wanted <= set(series["metric"]), f"'{title}': {legend} of {series['metric']}"
            texts.append(re.sub(r"\{\{(\w+)\}\}", lambda match: series["metric"][match[1]], legend))
        assert len(texts) == len(set(texts)), f"'{title}': two lines of one name: {sorted(texts)}"


def check_variables(dashboard):
    """label_values(SERIES, LABEL) as Grafana asks for it."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
        listed = ask(f"label/{label}/values", **{"match[]": series.replace("$instance", ".*")})
        assert listed, f"variable {variable['name']} has nothing to choose from"


def check_values():
    """Parts of one picture fit together: a saving of more than 4 here, and 0 < d <= U < 1."""
    value = lambda expr: float(ask("query", query=expr)["result"][0]["value"][1])
    blocks = value("sum(winnow_blocks_total)")
    d = value("sum(winnow_blocks_owned_total)") / blocks / 4
    u = value('sum(winnow_blocks_total{kind="nonzero"})') / blocks
    assert 0.01 < d <= u < 0.9, (d, u)
    assert value("sum(winnow_tensor_bytes_total) * 4") / value('sum(winnow_wire_bytes_total{direction="received"})') > 4
    jobs = {series["metric"]["job"] for series in ask("query", query="winnow_job_workers")["result"]}
    assert jobs == {"skipgram"}, f"honor_labels does not hold: {jobs}"
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 8 and all(rule["health"] == "ok" for rule in rules), rules
    assert not [rule["name"] for rule in rules if rule["state"] == "firing"], rules


def missing(name, instance):
    alerts = [(a["labels"]["alertname"], a["labels"].get("instance"), a["state"]) for a in ask("alerts")["alerts"]]
    return None if any(alert[:2] == (name, instance) for alert in alerts) else f"alerts: {alerts}"


if sys.argv[2] == "--alert":
    sys.exit(until(60, lambda: missing(*sys.argv[3:])))
found = queries(sys.argv[2])
why = until(60, lambda: empty(found))
if why:
    sys.exit(why)
check_labels(found)
check_variables(json.load(open(sys.argv[2])))
check_values()
print(f"{len(found)} queries, all with data")
