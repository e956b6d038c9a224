#!/usr/bin/env bash
# Chart and manifests, as Helm's own library renders them and the API's own schemas have them: the plain ones are the chart's, every
# variant fits together, what they tell winnowd, winnowd takes, and wrong values are refused in a line. No cluster.
# release: it needs images, packages or a booted system
# no-sanitizers: there is nothing of ours in it that they could see
. "$(dirname "$0")/lib.sh"
. tests/e2e/helm.sh
"$helm" tests/e2e/render.py docker/kubernetes/chart | diff - docker/kubernetes/winnow.yaml >"$tmp/diff.log" || fail "winnow.yaml is not the chart with its values: $helm tests/e2e/render.py docker/kubernetes/chart > docker/kubernetes/winnow.yaml"
"$helm" tests/e2e/manifests.py "$BUILD/winnowd" >"$tmp/manifests.log" 2>&1 || fail "manifests: $(tail -n 3 "$tmp/manifests.log")"
tail -n 1 "$tmp/manifests.log"
