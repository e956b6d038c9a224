#!/usr/bin/env bash
# Workers of a Deployment and aggregators of a StatefulSet, as processes with what the manifests say: scaled, killed, restarted one by one.
# no-sanitizers: Debian's python and torch are not built with them
# release: it starts eight workers, one after the other
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch yaml
docker/manifests.sh "$tmp/made" >"$tmp/made.log" 2>&1 || { status=$? && cat "$tmp/made.log" && exit "$status"; }
timeout 280 "$python" tests/e2e/scale.py "$BUILD/winnowd" "$tmp/made" >"$tmp/scale.out" 2>"$tmp/scale.err" || fail "status $?: $(tail -n 30 "$tmp/scale.err")"
cat "$tmp/scale.out"
