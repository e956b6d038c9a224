#!/usr/bin/env bash
# The image of winnowd, built and run: as nobody without capabilities on a read-only root, health, drain, two on a bridge
# network found by name, one killed; keys rotated, an aggregator upgraded and one added under jobs; images for 64-bit Arm, which
# train. test_image_paths.sh runs the other data paths.
# release: it needs images, packages or a booted system
# no-sanitizers: the images build their own
. "$(dirname "$0")/lib.sh"
. tests/e2e/podman.sh
base_image
image winnowd winnowd
size=$(pod image inspect -f '{{.Size}}' winnowd)
[ "$size" -lt 20000000 ] || fail "the image has $size bytes: what is in it?"
networks+=("$net")
pod network create "$net" >/dev/null || fail "podman network create"
hard=(--read-only --cap-drop all --security-opt no-new-privileges --log-driver k8s-file)

# ---- one, as an operator would start it ----
mkdir -m 700 "$tmp/winnow"
chown 65532 "$tmp/winnow"
new_key() { # as editors do it: another file of the same name, which a mount of the file alone would not show
	echo "* $1" >"$tmp/winnow/keys.new"
	chown 65532 "$tmp/winnow/keys.new"
	chmod 400 "$tmp/winnow/keys.new"
	mv "$tmp/winnow/keys.new" "$tmp/winnow/keys"
}
new_key a-key-for-containers
keyed=("${hard[@]}" -v "$tmp/winnow:/etc/winnow:ro" winnowd --key-file /etc/winnow/keys)
container a0 "${keyed[@]}"
container a1 "${keyed[@]}" --log-format json
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
	container "$1" "${hard[@]}" -e "WINNOW_KEY=${key:-a-key-for-containers}" --entrypoint /usr/bin/winnow winnowd bench \
		--aggregators "${aggregators:-a0:5555,a1:5555}" --job "${1%-*}" --rank "$2" --world "$3" --check "${@:4}"
}
for world in 4 2; do # and fewer workers beside
	for ((rank = 0; rank < world; rank++)); do bench_in "job$world-$rank" $rank $world --size 4M --iters 3; done
	for ((rank = 0; rank < world; rank++)); do [ "$(ended "job$world-$rank" 60)" = 0 ] || fail "worker $rank of $world: $(cat "$tmp/job$world-$rank.err")"; done
done
# One is killed: every worker ends with one line that names it; the other serves the next job.
for rank in 0 1; do bench_in kill-$rank $rank 2 --size 4M --iters 1000000; done
is_running() { pod exec "$net-a0" /usr/bin/winnow status 2>/dev/null | seen "$1  *running"; }
runs() { soon 20 is_running "$1" || fail "job $1 does not run"; } # job
says() { pod logs "$net-$1" 2>&1 | seen -E "$2"; }
logs() { soon 10 says "$@" || fail "$1 does not say /$2/"; } # container pattern
runs kill
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

# ---- what an operator does to a tier that works ----
# Another key: the job that runs does not notice, the next one needs it.
pod stop -t 20 "$net-a1" >/dev/null
for rank in 0 1; do aggregators=a0:5555 bench_in old-$rank $rank 2 --size 1M --iters 1000000; done
runs old
new_key another-key
pod kill -s HUP "$net-a0" >/dev/null
logs a0 'event=reloaded key_file=/etc/winnow/keys keys=1'
aggregators=a0:5555 bench_in late-0 0 1 --size 1M
[ "$(ended late-0 20)" = 1 ] || fail "the old key still opens"
grep -q "wrong key for job 'late'" "$tmp/late-0.err" || fail "the old key: $(cat "$tmp/late-0.err")"
runs old
pod rm -f -t 0 "$net-old-0" "$net-old-1" >/dev/null
# Another image, while a job runs: it ends well, then the aggregator does, and the new one takes its name.
for rank in 0 1; do key=another-key aggregators=a0:5555 bench_in drain-$rank $rank 2 --size 16M --iters 150; done
runs drain
pod kill -s STOP "$net-drain-1" >/dev/null # so that it is not done too soon
pod stop -t 40 "$net-a0" >"$tmp/stop.out" 2>&1 &
logs a0 'event=drain signal=15 jobs=1'
pod kill -s CONT "$net-drain-1" >/dev/null
for rank in 0 1; do [ "$(ended drain-$rank 30)" = 0 ] || fail "worker $rank of a drained job: $(cat "$tmp/drain-$rank.err")"; done
[ "$(ended a0 20)" = 0 ] || fail "podman stop: exit status is not 0"
grep -q event=stopped "$tmp/a0.err" || fail "a0 did not drain"
pod rm "$net-a0" >/dev/null || fail "podman rm"
container a0 "${keyed[@]}"
ready a0
# One more aggregator: a job that runs stays with one, the next has two.
for rank in 0 1; do key=another-key aggregators=a0:5555 bench_in one-$rank $rank 2 --size 1M --iters 1000000; done
runs one
pod start "$net-a1" >/dev/null
ready a1
for rank in 0 1; do key=another-key bench_in two-$rank $rank 2 --size 4M --iters 3; done
for rank in 0 1; do [ "$(ended two-$rank 60)" = 0 ] || fail "worker $rank with two aggregators: $(cat "$tmp/two-$rank.err")"; done
logs a1 '"event": *"job_finished".*"two"'
runs one

# ---- one name for two kinds of CPU, built on one of them ----
docker/install-packages.sh cross >"$tmp/apt.out" 2>"$tmp/apt.err" || fail "qemu"
image_for_both winnowd winnowd-for-both
all_for_arm "$tmp/arm"
qemu=(qemu-aarch64-static -L "$tmp/arm")
[ "$("${qemu[@]}" "$tmp/arm/usr/bin/winnowd" --version)" = "$(pod run --rm --network none winnowd --version)" ] || fail "the image for Arm has another winnowd"
port=$(free_port)
"${qemu[@]}" "$tmp/arm/usr/bin/winnowd" --insecure-no-key --listen "127.0.0.1:$port" --metrics no 2>"$tmp/winnowd-arm.log" &
pids+=($!) daemons+=($!)
await 'event=ready.*isa=neon' "$tmp/winnowd-arm.log"

# Two workers train with it, one of each kind: PyTorch, NumPy and Gloo of either image.
pod rm -f -t 0 "$net-one-0" "$net-one-1" >/dev/null
image worker winnow-worker
image worker winnow-worker:arm64 "${platform[@]}" linux/arm64
master=$(free_port)
trains() { # rank image or option..
	network=ns:/proc/self/ns/net container "train-$1" "${hard[@]}" --tmpfs /tmp -e RANK="$1" -e WORLD_SIZE=2 -e MASTER_ADDR=127.0.0.1 -e MASTER_PORT="$master" \
		-e GLOO_SOCKET_IFNAME=lo -e WINNOW_AGGREGATORS="127.0.0.1:$port" -e WINNOW_INSECURE_NO_KEY=1 "${@:2}" --steps 3
}
trains 0 winnow-worker
trains 1 -v "$(command -v qemu-aarch64-static):/qemu:ro" --entrypoint /qemu winnow-worker:arm64 /usr/bin/python3 /usr/share/winnow/demo/train.py
for rank in 0 1; do [ "$(ended train-$rank 240)" = 0 ] || fail "rank $rank of a training: $(cat "$tmp/train-$rank.err")"; done
sed -n 's/.* 3 steps, parameters add up to //p' "$tmp/train-0.out" "$tmp/train-1.out" >"$tmp/sums"
awk '{ sum[NR] = $1 } END { off = sum[1] - sum[2]; exit !(NR == 2 && off * off <= 1e-12 * sum[1] * sum[1]) }' "$tmp/sums" ||
	fail "the two workers have other parameters: $(cat "$tmp/sums")"

echo "all right"
