#!/usr/bin/env bash
# The demo in five steps: table, picture, bitmaps, exit status; and what is left when a part of it dies.
# release: it trains
# no-sanitizers: Debian's python and torch are not built with them
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/e2e/python.sh
need_modules numpy torch matplotlib
build=$BUILD
demo=client/python/demo/demo.py
command -v bible >/dev/null || {
	echo "no bible-kjv"
	exit 77
}

out=$(mktemp -d)
pid=
# shellcheck disable=SC2317 # called by the trap
clean_up() {
	[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
	rm -rf "$out"
}
trap clean_up EXIT
fail() {
	echo "FAIL: $*"
	exit 1
}

$python $demo --build "$build" --out "$out" --steps 5 | tee "$out/table"
for text in '^Winnow sends 2[0-9] times fewer bytes than Gloo, and learns the same: word vectors' \
	'^  On links of 100 Mbit/s the exchanges of 5 steps take [0-9]* s over Gloo, [0-9]* s over Winnow\.$' \
	'^  Gloo sends in a step  *#\{30\}  *13\.[0-9]* MB$' '^  Winnow sends  *#  *0\.5[0-9] MB, 2[0-9] times fewer$' '^  Winnow receives  *###* ' \
	'^Without zeros it is 1\.[0-9] times fewer: letter transformer' '^  Winnow, local steps  *#* ' '^Done in'; do
	grep -q "$text" "$out/table" || fail "no line '$text'"
done
[ "$(wc -l <"$out/table")" -le 25 ] || fail "a newcomer reads more than 25 lines"
numbers() { $python -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]][sys.argv[3]])' "$out/demo/result.json" "$@"; }
[ "$(numbers skipgram steps)" = 5 ] || fail "result.json has $(numbers skipgram steps) steps"
[ "$(head -c 8 "$out/demo.png" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "demo.png is no picture"
for model in skipgram letters; do
	blocks=$(numbers "$model" bucket_blocks)
	for rank in 0 1 2 3; do
		bytes=$(stat -c %s "$out/demo/$model.$rank.bits")
		[ "$bytes" = $(((blocks + 7) / 8)) ] || fail "$model.$rank.bits has $bytes bytes for $blocks blocks"
	done
	# The bitmaps are what winnow bench takes.
	"$build/winnow" bench --local 4 --size $((blocks * 1024)) --overlap "file:$out/demo/$model.%r.bits" \
		--iters 2 --warmup 1 --check >"$out/bench" || fail "winnow bench refuses $model's bitmaps"
done
cmp -s "$out/demo/skipgram.0.bits" "$out/demo/skipgram.1.bits" && fail "two workers have one bitmap"

# A dead orphan may wait long for an init that collects it.
alive() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }

# Steps are under way: in its network a worker sees what they exchange.
trains() { [ "$(awk '$1 == "lo:" { print $2 }' "/proc/$1/net/dev" 2>/dev/null || echo 0)" -gt 50000000 ]; }

# A worker dies, or the demo is told to stop: one line, status 1, nothing left.
end_it() { # how expected
	local begun=$SECONDS workers worker status=0
	# Job control: background jobs of a script ignore SIGINT otherwise.
	set -m
	$python $demo --build "$build" --out "$out" --steps 2000 >"$out/table" 2>"$out/errors" &
	pid=$!
	set +m
	until workers=$(pgrep -P "$pid" -f worker.py) && [ "$(wc -w <<<"$workers")" = 4 ] && trains "${workers##*$'\n'}"; do
		[ $((SECONDS - begun)) -lt 120 ] || fail "$1: no training: $(cat "$out/errors")"
		sleep 0.1
	done
	worker=$(sed -n 3p <<<"$workers")
	case $1 in
	worker) kill -KILL "$worker" ;;
	*) kill -"$1" "$pid" ;;
	esac
	wait "$pid" || status=$?
	if [ "$1" != KILL ]; then
		[ $status = 1 ] || fail "$1: status $status"
		[ "$(wc -l <"$out/errors")" = 1 ] || fail "$1: more than one line: $(cat "$out/errors")"
		grep -q "$2" "$out/errors" || fail "$1: not '$2' but: $(cat "$out/errors")"
	fi
	begun=$SECONDS
	for worker in $workers; do
		while alive "$worker"; do
			[ $((SECONDS - begun)) -lt 5 ] || fail "$1: worker $worker is left"
			sleep 0.1
		done
	done
	[ -z "$(pgrep -P "$pid")" ] || fail "$1: children are left"
	pid=
}
end_it worker '^demo: worker 2 was ended by SIGKILL'
end_it INT '^demo: stopped by SIGINT'
end_it KILL ''
echo "the demo works and ends well"
