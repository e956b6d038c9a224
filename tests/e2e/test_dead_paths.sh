#!/usr/bin/env bash
# Ways between a worker and the aggregator that die while a job runs: the error comes after the silence time, and names cause and direction.
# waits: for silence times
. "$(dirname "$0")/lib.sh"
metrics=$HOST:$(free_port)
winnowd --insecure-no-key --metrics "$metrics"
direct=$PORT settings=(WINNOW_INSECURE_NO_KEY=1)

# Rank 0 of two by way of the proxy, which is then told what happens to its datagrams; rank 1 directly. Both call.
job() { # name word
	local rank
	PORT=$(free_port)
	mkfifo "$tmp/$1.words"
	exec {words}<>"$tmp/$1.words"
	"$BUILD/tests/e2e/chaos" "$PORT" "$HOST:$direct" 1 0 0 0 <"$tmp/$1.words" >/dev/null 2>"$tmp/$1.err" &
	pids+=($!)
	wait_port 127.0.0.1 "$PORT" || fail "chaos does not listen"
	for rank in 0 1; do
		caller "$1" $rank 2 WINNOW_SILENCE_MS=2000 WINNOW_MULTICAST=0 "${settings[@]}"
		PORT=$direct
	done
	for rank in 0 1; do calls "$1" $rank 1000000; done
	for rank in 0 1; do called "$1" $rank 1; done
	echo "$2" >&"$words"
	for rank in 0 1; do calls "$1" $rank 1000000; done
}

dies() { # name word pattern
	local rank
	job "$1" "$2"
	for _ in $(seq 30); do # until the proxy has read its word
		for rank in 0 1; do calls "$1" $rank 1000000; done
	done
	for rank in 0 1; do expect "$1$rank" 10 1 "$3"; done
}

dies mute mute 'rank 0 \(.*\) sends datagrams that do not arrive \(48 in 2\.0 s\): is UDP from it blocked\?'
dies deaf deaf 'the datagrams of rank 0 \(.*\) arrive, but ours do not reach it \(48 in 2\.0 s\): is UDP to it blocked\?'
dies narrow narrow 'datagrams of 8972 bytes from rank 0 \(.*\) no longer pass, 1472 do: the path.s MTU has shrunk'

rides() { # name
	for rank in 0 1; do called "$1" $rank 2; done
	for rank in 0 1; do calls "$1" $rank leave; done
	for rank in 0 1; do expect "$1$rank" 10 0; done
}

# A NAT gives rank 0 another address: without a key nobody can know that it is still rank 0.
dies rebind rebind 'rank 0 \(.*\) sends datagrams that do not arrive \(48 in 2\.0 s\)'

# Shorter than that, it is ridden through; and so is, with a key, another address.
job pause mute
sleep 1
echo well >&"$words"
rides pause
WINNOW_KEY=correct-horse-battery
export WINNOW_KEY
winnowd --metrics no
direct=$PORT settings=(WINNOW_INSECURE_NO_KEY=0)
job sealed rebind
rides sealed
[ "$(metric "$metrics" 'winnow_packets_dropped_total{reason="bad_address"}')" -gt 0 ] || fail "nothing came from the new address before it was known"
echo "four dead paths named, a pause and another address ridden through"
