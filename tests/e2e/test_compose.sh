#!/usr/bin/env bash
# compose.yaml as podman-compose runs it: two aggregators, four workers that train, found by name; a real Prometheus with our
# configuration reads them, every panel of the dashboard has data, and an aggregator that is gone is seen by workers and alerts.
# release: it needs images, packages or a booted system
# no-sanitizers: the images build their own
. "$(dirname "$0")/lib.sh"
. tests/e2e/podman.sh

promtool=$(debian_program promtool) prometheus=$(debian_program prometheus)
[ -x "$promtool" ] || exit 1

# ---- what needs no container ----
$promtool check config docker/prometheus/prometheus.yml >"$tmp/promtool.out" 2>&1 || fail "prometheus.yml: $(cat "$tmp/promtool.out")"
$promtool test rules tests/e2e/alerts_test.yaml >"$tmp/promtool.out" 2>&1 || fail "alerts: $(cat "$tmp/promtool.out")"
sed -n 's/^ *- alert: //p' docker/prometheus/alerts.yaml | while read -r alert; do
	grep -A 2 "alertname: $alert" tests/e2e/alerts_test.yaml | seen exp_alerts || fail "no test in which $alert fires"
done || exit 1

# ---- up ----
base_image
image winnowd winnowd
image worker winnow-worker
if [[ $(podman-compose --podman-path "$tmp/podman" version 2>/dev/null) == *"podman-compose version 1.3."* ]]; then
	echo "podman-compose 1.3 does not fill in a variable whose default stands for one of the same name"
	exit 77
fi
sites=()
compose() { podman-compose --podman-path "$tmp/podman" --no-ansi -f "$PWD/docker/compose.yaml" "${sites[@]}" -p "$net" "$@" >"$tmp/compose.out" 2>"$tmp/compose.err"; }
services=(aggregator1 aggregator2 worker0 worker1 worker2 worker3)
for service in "${services[@]}"; do started+=("${net}_${service}_1"); done
networks+=("${net}_gradients")
begun=$(date +%s%N)
compose up -d --no-build "${services[@]}" || fail "podman-compose up: $(tail -n 5 "$tmp/compose.err")"
said() { # service pattern seconds
	logs() { pod logs "${net}_$1_1" >"$tmp/$1.log" 2>&1 && grep -qE "$2" "$tmp/$1.log"; }
	soon "$3" logs "$1" "$2" || fail "$1 does not say /$2/"
}
said worker0 '^step 1: loss' 120
echo "first result $((($(date +%s%N) - begun) / 1000000)) ms after up"
aggregator() { pod exec "${net}_aggregator$1_1" /usr/bin/winnow "${@:2}"; }

# ---- watched ----
network=${net}_gradients
container prometheus --user 65534 -v "$prometheus:/usr/bin/prometheus:ro" -v "$PWD/docker/prometheus:/etc/prometheus:ro" --tmpfs /data:mode=1777 \
	--entrypoint /usr/bin/prometheus "$base" --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/data
address=$(pod inspect -f "{{(index .NetworkSettings.Networks \"${net}_gradients\").IPAddress}}" "$net-prometheus")
python3 tests/e2e/dashboard.py "http://$address:9090" docker/grafana/winnow.json || fail "the dashboard: $(pod logs "$net-prometheus" 2>&1 | tail -n 3)"
metrics=$(pod inspect -f "{{(index .NetworkSettings.Networks \"${net}_gradients\").IPAddress}}" "${net}_aggregator1_1")
python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen("http://%s:9555/metrics" % sys.argv[1]).read().decode())' "$metrics" >"$tmp/metrics"
$promtool check metrics <"$tmp/metrics" >"$tmp/promtool.out" 2>&1 || fail "promtool finds fault with /metrics: $(cat "$tmp/promtool.out")"
said worker0 '^step 20: loss' 120
python3 - "$tmp/worker0.log" <<'P' || fail "the training: $(cat "$tmp/worker0.log")"
import re, sys
steps = re.findall(r"^step (\d+): loss ([0-9.]+).* ([0-9.]+) MB out and ([0-9.]+) in a step of ([0-9.]+) MB", open(sys.argv[1]).read(), re.M)
first, last = steps[0], steps[-1]
assert float(last[1]) < float(first[1]), "the loss does not fall"
assert 0 < float(last[2]) < float(last[4]) / 4 and float(last[3]) < float(last[4]) / 2, "it is not sparse"
P

# ---- one aggregator goes ----
pod stop -t 0 "${net}_aggregator2_1" >/dev/null 2>&1
for rank in 0 1 2 3; do said worker$rank "^worker $rank: .*(aggregator .*:5555 is lost|rank [0-9] .*lost|closed by peer|[Cc]onnection)" 30; done
grep -q 'aggregator .*:5555 is lost' "$tmp"/worker?.log || fail "nobody names the aggregator: $(tail -qn 1 "$tmp"/worker?.log)"
aggregator 1 status --alive --quiet || fail "the other aggregator is not well"
python3 tests/e2e/dashboard.py "http://$address:9090" --alert WinnowAggregatorDown 'aggregator2:9555' || fail "no alert"
# Started again by hand, workers begin anew; here with fewer aggregators, of which one alone has the job.
down() {
	compose down || fail "podman-compose down"
	pod rm -f -i -t 0 "${started[@]}" >/dev/null 2>&1 # podman-compose leaves one that is just ending
}
down
WINNOW_AGGREGATORS=aggregator1:5555 compose up -d --no-build "${services[@]}" || fail "podman-compose up again: $(tail -n 5 "$tmp/compose.err")"
said worker0 '^step 1: loss' 120
[ "$(aggregator 1 status | grep -c 'skipgram  *running') $(aggregator 2 status | grep -c skipgram)" = "1 0" ] || fail "WINNOW_AGGREGATORS does not choose"
down

# ---- two levels ----
sites=(-f "$PWD/docker/compose-sites.yaml") started+=("${net}_parent_1")
compose up -d --no-build parent "${services[@]}" || fail "podman-compose up, two levels: $(tail -n 5 "$tmp/compose.err")"
said worker0 '^step 1: loss' 120
pod exec "${net}_parent_1" /usr/bin/winnow status --workers >"$tmp/parent.out" || fail "the parent is not well: $(cat "$tmp/parent.out")"
[ "$(grep -cE '^skipgram +[01] .* site1 ' "$tmp/parent.out") $(grep -cE '^skipgram +[23] .* site2 ' "$tmp/parent.out")" = "2 2" ] ||
	fail "the parent's workers: $(cat "$tmp/parent.out")"
begun=$SECONDS
compose down
[ $((SECONDS - begun)) -lt 50 ] || # 10 s for each that does not hear SIGTERM
	 fail "podman-compose down took $((SECONDS - begun)) s"
echo "all right"
