#!/usr/bin/env bash
# Chart and manifests: the plain ones are the chart's, every variant is well formed and fits together, and what they tell
# winnowd, winnowd takes. No cluster: structure, references and options are checked, and each image's command runs.
# release: it needs images, packages or a booted system
# no-sanitizers: there is nothing of ours in it that they could see
. "$(dirname "$0")/lib.sh"
/usr/bin/python3 -c 'import yaml' 2>/dev/null || fail "no python3-yaml"
/usr/bin/python3 tests/e2e/render.py docker/kubernetes/chart | diff - docker/kubernetes/winnow.yaml >"$tmp/diff.log" || fail "winnow.yaml is not the chart with its values: python3 tests/e2e/render.py docker/kubernetes/chart > docker/kubernetes/winnow.yaml"
/usr/bin/python3 tests/e2e/manifests.py "$BUILD/winnowd" >"$tmp/manifests.log" 2>&1 || fail "manifests: $(tail -n 3 "$tmp/manifests.log")"
tail -n 1 "$tmp/manifests.log"
