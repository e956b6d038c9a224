#!/usr/bin/env bash
# Two levels: sums of workers at two sites, and of one without a site, are those of one level; deaths on either level end the
# job everywhere, with the reason; what two levels cannot do is refused in a line.
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy
(umask 077 && "$BUILD/winnow" key >"$tmp/keys")
export WINNOW_KEY_FILE=$tmp/keys
winnowd --threads 2 --metrics no
parent=$HOST:$PORT parent_pid=$DAEMON parent_log=$tmp/winnowd-$PORT.log
site() { # name arg..: sets AT
	winnowd --threads 2 --metrics no --parent "$parent" --site "$@"
	AT=$HOST:$PORT
}
site rack1
first=$AT first_log=$tmp/winnowd-$PORT.log
site rack2
second=$AT second_pid=$DAEMON
of=("$first" "$first" "$second" "$second" "$parent")
workers() { # job world arg..
	local rank
	for ((rank = 0; rank < $2; rank++)); do
		start "$1$rank" "$BUILD/winnow" bench --aggregators "${of[rank]}" --job "$1" --rank "$rank" --world "$2" "${@:3}"
	done
}
end_well() { # job world
	local rank
	for ((rank = 0; rank < $2; rank++)); do expect "$1$rank" 60 0; done
}

# ---- sums ----
workers sums 5 --size 1K,100K,8M --density 1,0.1,0.01 --check --iters 3
end_well sums 5
for kind in "--dtype i32 --op max" "--dtype f16" "--wire fixed32 --op avg" "--op avg" "--wire bf16" "--dtype f64 --op min" "--dtype i64 --op prod" "--overlap none"; do
	# shellcheck disable=SC2086 # words
	workers kind 5 --size 500K $kind --check --iters 2
	end_well kind 5
done
# Each worker receives its share alone, wherever it is.
for ((rank = 0; rank < 5; rank++)); do
	start "scatter$rank" env PYTHONPATH=client/python WINNOW_AGGREGATORS="${of[rank]}" "$PYTHON" tests/e2e/scatter.py "$rank" 5 2
done
end_well scatter 5
# All at one site; the parent has no worker but the site's.
of=("$first" "$first")
workers alone 2 --size 1M --check --iters 3
end_well alone 2
of=("$first" "$first" "$second" "$second" "$parent")

# ---- deaths ----
dies() { # job pid pattern.. of ranks 0 to 3
	local rank
	workers "$1" 4 --size 4M --iters 1000000 --silence 2s
	await "event=job_started job=$1 " "$first_log"
	sleep 0.3
	if [ "$2" = worker ]; then kill -KILL "$(pid_of "${1}3")"; else kill -KILL "$2"; fi
	for rank in 0 1 2 3; do
		[ "$2$rank" = worker3 ] || expect "$1$rank" 5 1 "${@:3+rank:1}"
	done
}
lost='rank 3 \(.*\) is lost: connection closed$'
dies worker worker 'rank 3 \(.*, site rack2\) is lost: connection closed$' "$lost" "$lost"
workers still 5 --size 1M --check --iters 2
end_well still 5
gone="aggregator $second is lost: (connection closed|Connection reset)"
dies site "$second_pid" 'rank [23] \(.*\) is lost: ' 'rank [23] \(.*\) is lost: ' "$gone" "$gone"
winnowd_on "${second##*:}" --threads 2 --metrics no --parent "$parent" --site rack2
workers back 5 --size 1M --check --iters 2
end_well back 5
gone="parent $parent: (connection closed|connection reset)"
dies parent "$parent_pid" "$gone" "$gone" "$gone" "$gone"

# ---- refusals ----
start nobody "$BUILD/winnow" bench --aggregators "$first" --job nobody --rank 0 --world 1
finish nobody 30 && fail "a job without a parent"
grep -q "parent $parent: no answer: connection refused; is winnowd running there" "$tmp/nobody.err" || fail "$(cat "$tmp/nobody.err")"
winnowd_on "${parent##*:}" --threads 2 --metrics no
workers again 5 --size 1M --check --iters 2
end_well again 5
one() { # pattern arg..: a worker alone, at $AT
	start one "$BUILD/winnow" bench --aggregators "$AT" --job one --rank 0 --world 1 --size 1M "${@:2}"
	expect one 20 1 "$1"
	rm -f "$tmp"/one.*
}
site rack1 --threads 1
one 'the parent has 2 data threads, this site 1: start the site with --threads 2'
AT=$first one "its wire form cannot be fixed16" --wire fixed16
start here "$BUILD/winnow" bench --aggregators "$first" --job named --rank 0 --world 2
await 'waiting for rank 1 of 2' "$tmp/here.err"
site rack1
start there "$BUILD/winnow" bench --aggregators "$AT" --job named --rank 1 --world 2
expect there 10 1 "another aggregator \(.*\) has joined as site 'rack1': give each a --site of its own"
start there "$BUILD/winnow" bench --aggregators "$second" --job named --rank 0 --world 2
expect there 10 1 "rank 0 of job 'named' is taken by "
start there "$BUILD/winnow" bench --aggregators "$second" --job named --rank 1 --world 3
expect there 10 1 "job 'named' has world 2 .* you say 3"
itself=$(free_port)
winnowd_on "$itself" --threads 2 --metrics no --parent "$HOST:$itself" --site loop
AT=$HOST:$itself one "this aggregator is site 'loop' of parent $HOST:$itself, and cannot be the parent of site 'loop'"
"$BUILD/winnowd" --parent nowhere --check 2>"$tmp/bad.err" && fail "a parent without a port"
grep -q -- '--parent: ' "$tmp/bad.err" || fail "$(cat "$tmp/bad.err")"
"$BUILD/winnowd" --parent 127.0.0.1:1 --datapath dpdk --device x --check 2>"$tmp/bad.err" && fail "a parent with DPDK"
grep -q -- '--parent works with --datapath udp alone' "$tmp/bad.err" || fail "$(cat "$tmp/bad.err")"
echo "two levels, as one"
