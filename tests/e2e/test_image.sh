#!/usr/bin/env bash
# The image of winnowd, built and run: as nobody without capabilities on a read-only root, health, drain, two on a bridge
# network found by name, one killed. test_image_paths.sh runs the other data paths.
# no-sanitizers: the images build their own
. "$(dirname "$0")/lib.sh"
. tests/e2e/podman.sh
base_image
image winnowd winnowd
size=$(pod image inspect -f '{{.Size}}' winnowd)
[ "$size" -lt 30000000 ] || fail "the image has $size bytes: what is in it?"
networks+=("$net")
pod network create "$net" >/dev/null || fail "podman network create"
hard=(--read-only --cap-drop all --security-opt no-new-privileges --log-driver k8s-file)

# ---- one, as an operator would start it ----
echo '* a-key-for-containers' >"$tmp/keys"
chmod 644 "$tmp/keys"
container a0 "${hard[@]}" -v "$tmp/keys:/etc/winnow/keys:ro" winnowd --key-file /etc/winnow/keys
container a1 "${hard[@]}" -v "$tmp/keys:/etc/winnow/keys:ro" winnowd --key-file /etc/winnow/keys --log-format json
ready a0
ready a1
process=$(pod inspect -f '{{.State.Pid}}' "$net-a0")
grep -qE '^Uid:\s65532\s65532' "/proc/$process/status" || fail "winnowd runs as $(grep Uid "/proc/$process/status")"
[ "$(grep -cE '^Cap(Eff|Bnd):\s0+$' "/proc/$process/status")" = 2 ] || fail "winnowd has capabilities: $(grep Cap "/proc/$process/status")"
grep -q "^[^ ]* / [^ ]* ro" "/proc/$process/mounts" || fail "the root is writable"
[ "$(find "/proc/$process/root" -xdev -perm /6000 2>/dev/null | wc -l)" = 0 ] || fail "setuid programs in the image"
[ ! -e "/proc/$process/root/bin/sh" ] || fail "a shell is in the image"
pod healthcheck run "$net-a0" || fail "healthcheck of a good one"
pod kill -s STOP "$net-a1" >/dev/null
pod healthcheck run "$net-a1" 2>/dev/null && fail "healthcheck of one that is stopped"
pod kill -s CONT "$net-a1" >/dev/null
pod healthcheck run "$net-a1" || fail "healthcheck of one that goes on"

# ---- workers in containers, aggregators by name ----
bench_in() { # name rank world arg..
	container "$1" "${hard[@]}" -e WINNOW_KEY=a-key-for-containers --entrypoint /usr/bin/winnow winnowd bench \
		--aggregator a0:5555,a1:5555 --job "${1%-*}" --rank "$2" --world "$3" --check "${@:4}"
}
for world in 4 2; do # and fewer workers beside
	for ((rank = 0; rank < world; rank++)); do bench_in "job$world-$rank" $rank $world --size 4M --iters 3; done
	for ((rank = 0; rank < world; rank++)); do [ "$(ended "job$world-$rank" 60)" = 0 ] || fail "worker $rank of $world: $(cat "$tmp/job$world-$rank.err")"; done
done
# One is killed: every worker ends with one line that names it; the other serves the next job.
for rank in 0 1; do bench_in kill-$rank $rank 2 --size 4M --iters 1000000; done
for i in $(seq 100); do
	pod exec "$net-a0" /usr/bin/winnow status 2>/dev/null | grep -q 'kill  *running' && break
	sleep 0.1
done
lost=$(pod inspect -f "{{(index .NetworkSettings.Networks \"$net\").IPAddress}}" "$net-a1")
pod kill -s KILL "$net-a1" >/dev/null
for rank in 0 1; do
	[ "$(ended kill-$rank 20)" = 1 ] || fail "worker $rank does not fail when an aggregator dies"
	[ "$(wc -l <"$tmp/kill-$rank.err") $(grep -c "aggregator .* is lost" "$tmp/kill-$rank.err")" = "1 1" ] || fail "worker $rank says: $(cat "$tmp/kill-$rank.err")"
	grep -qE "aggregator (a1|$lost):5555" "$tmp/kill-$rank.err" || fail "worker $rank does not name a1: $(cat "$tmp/kill-$rank.err")"
done
pod exec "$net-a0" /usr/bin/winnow status >"$tmp/after.out" || fail "the other aggregator: $(cat "$tmp/after.out")"
python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert {"ready", "job_started", "job_finished"} <= {line["event"] for line in lines}, lines' <(pod logs "$net-a1" 2>&1) || fail "JSON logs of a1"
pod start "$net-a1" >/dev/null
ready a1
bench_in again-0 0 1 --size 1M --iters 2
[ "$(ended again-0 30)" = 0 ] || fail "after a restart: $(cat "$tmp/again-0.err")"
# Drain.
pod stop -t 20 "$net-a0" >/dev/null
[ "$(ended a0 5)" = 0 ] || fail "podman stop: exit status is not 0"
grep -q event=stopped "$tmp/a0.err" || fail "a0 did not drain"

echo "all right"
