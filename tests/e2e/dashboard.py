# SPDX-License-Identifier: BSD-3-Clause
"""dashboard.py URL DASHBOARD.json - every query of the dashboard gives data at this Prometheus, within a minute
dashboard.py URL --alert NAME INSTANCE - that alert is pending or firing, within a minute"""
import json
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


def queries(path):
    dashboard = json.load(open(path))
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert {"instance", "job", "source"} <= names and dashboard["uid"] == "winnow", names
    places, found = set(), []
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & places, f"{panel['title']} lies over another panel"
        places |= cells
        found += [(panel["title"], target["expr"]) for target in panel.get("targets", ())]
    assert len(found) > 15, found
    return found


def empty(found):
    up = [result["value"][1] for result in ask("query", query='up{job="winnow"}')["result"]]
    if up != ["1", "1"]:
        return f"up: {up}"
    for title, expr in found:
        expr = expr.replace("$__rate_interval", "20s").replace("$instance", ".*").replace("$job", ".*")
        result = ask("query", query=expr)["result"]
        if not result:
            return f"no data for '{title}': {expr}"
        if title in ("Operations a second", "Time of an operation", "Saving: tensor bytes for a byte that a worker sends") and not all(
            float(series["value"][1]) > 0 for series in result
        ):
            return f"'{title}' is not positive: {result}"
    return None


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
check_values()
print(f"{len(found)} queries, all with data")
