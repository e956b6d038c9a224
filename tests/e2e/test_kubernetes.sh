#!/usr/bin/env bash
# Chart and manifests, as Helm's own library renders them and the API's own schemas have them: `make manifests` makes plain ones, every
# variant fits together, what they tell winnowd, winnowd takes, and wrong values are refused in a line. No cluster.
# release: it needs images, packages or a booted system
# no-sanitizers: there is nothing of ours in it that they could see
. "$(dirname "$0")/lib.sh"
. docker/kubernetes/helm.sh
docker/manifests.sh "$tmp/made" >"$tmp/made.log" 2>&1 || fail "make manifests: $(cat "$tmp/made.log")"
"$helm" tests/e2e/manifests.py "$BUILD/winnowd" "$tmp/made" >"$tmp/manifests.log" 2>&1 || fail "manifests: $(tail -n 3 "$tmp/manifests.log")"
tail -n 1 "$tmp/manifests.log"
