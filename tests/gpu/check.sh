#!/usr/bin/env bash
# check.sh FOLDER [PART..] - what only a GPU can show: kernels end-to-end order load deaths memcheck torch
#
# FOLDER is what `make gpu-bundle` makes. Needs one GPU; PyTorch 2.x with NCCL for the part torch, compute-sanitizer
# for memcheck. Lines say ok, skip or FAIL; the last one counts them. Logs: FOLDER/log. Without a GPU: one line and
# exit status 77.
#
#   PYTHON=python3   the one that has PyTorch
#   EMULATED=1       on the emulated CUDA, less of it: FOLDER is a whole build
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
folder=$(realpath "${1:?usage: tests/gpu/check.sh FOLDER [PART..]}")
shift
parts=${*:-kernels end-to-end order load deaths memcheck torch}
PYTHON=${PYTHON:-python3} EMULATED=${EMULATED:-}
programs=$folder
[ -z "$EMULATED" ] || programs=$folder/tests/gpu
streams=$programs/device_streams
logs=$folder/log
mkdir -p "$logs"
jobs=0
pids=()
stop_all() {
	for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
}
trap stop_all EXIT
trap 'exit 1' INT TERM

for name in $(compgen -e | grep -E '^(WINNOW_|RANK$|WORLD_SIZE$|MASTER_|CUDA_LAUNCH_BLOCKING$|CUDA_DEVICE_MAX_CONNECTIONS$)' || true); do
	unset "$name"
done
[ -z "$EMULATED" ] || export WINNOW_CUDA_PLUGIN=$folder/winnow-cuda-emulated.so
export WINNOW_LIBRARY=$folder/libwinnow.so BUILD=$folder PYTHONDONTWRITEBYTECODE=1

[ -x "$streams" ] || {
	echo "check-gpu: $streams is missing: run \`make gpu-bundle\` on a machine with CUDA and the libraries of docker/packages.txt, and bring its build/gpu here" >&2
	exit 1
}
gpu=$("$streams" device 2>&1)
status=$?
[ $status = 0 ] || {
	echo "check-gpu: $gpu" >&2
	exit $status
}
echo "$gpu"

# ---- running ----

. tests/report.sh

# N aggregators on free loopback ports; sets WINNOW_AGGREGATORS.
aggregators() { # N
	local i port list=
	for ((i = 0; i < $1; i++)); do
		port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
		"$folder/winnowd" --listen "127.0.0.1:$port" --insecure-no-key --threads 2 --log error >"$logs/winnowd-$port" 2>&1 </dev/null &
		pids+=($!)
		list+=${list:+,}127.0.0.1:$port
	done
	export WINNOW_AGGREGATORS=$list
}

# Workers 0 .. world - 1 of a fresh job in the background; their pids in `team`, output in $logs/NAME.RANK.
start() { # name world command..
	local name=$1 world=$2 rank
	shift 2
	team=()
	jobs=$((jobs + 1))
	rm -f "$logs/$name".[0-9]* # of an earlier run: its lines are not this one's
	for ((rank = 0; rank < world; rank++)); do
		RANK=$rank WORLD_SIZE=$world WINNOW_JOB=check-gpu-$$-$jobs "$@" >"$logs/$name.$rank" 2>&1 </dev/null &
		team+=($!)
		pids+=($!)
	done
}

# Status and output of the first of `team` that failed, else 0 and all output.
finish() { # name: into $logs/NAME
	local rank status bad=0
	for rank in "${!team[@]}"; do
		wait "${team[$rank]}"
		status=$?
		[ $status = 0 ] || [ $bad != 0 ] || bad=$status
	done
	cat "$logs/$1".[0-9]* >"$logs/$1"
	return $bad
}

workers() { # name seconds world command..: all must end well
	local name=$1 limit=$2 world=$3 begun=$SECONDS
	shift 3
	start "$name" "$world" timeout -k 5 "$limit" "$@"
	finish "$name"
	report "$name" $? $((SECONDS - begun))
}

# ---- parts ----

if [ -z "$EMULATED" ]; then
	cases=150 elements=1500000 some=20M load=256M
else
	cases=24 elements=30000 some=64K load=256K
fi
some=$(numfmt --from=iec "$some") load=$(numfmt --from=iec "$load")

part_kernels() { # random tensors, and tensors beyond 2^32 bytes
	local seed
	run kernels 300 "$programs/test_kernels"
	for seed in 11 12 13; do
		run "kernels-seed-$seed" 120 env WINNOW_SEED=$seed "$programs/test_kernels" 2000 0
	done
}

part_end_to_end() {
	local world
	aggregators 1
	workers one-worker 60 1 "$streams" check 1 $cases $elements "$some"
	for world in 2 4; do
		workers "$world-workers" 90 "$world" "$streams" check $((world + 10)) $cases $elements "$some"
	done
	workers one-queue 90 2 env CUDA_DEVICE_MAX_CONNECTIONS=1 "$streams" check 20 $cases $elements "$some"
	workers launch-blocking 90 2 env CUDA_LAUNCH_BLOCKING=1 "$streams" check 21 $cases $elements "$some"
	# shellcheck disable=SC2016 # start()'s environment
	workers odd-values 90 3 bash -c 'exec "$0" "$WINNOW_AGGREGATORS" "$RANK" "$WORLD_SIZE" "$@" "$WINNOW_JOB"' \
		"$programs/device_worker" 7 $((cases * 2))
	workers captured-stream 60 2 "$streams" capture
	aggregators 3
	workers three-workers-three-aggregators 90 3 "$streams" check 30 $cases $elements "$some"
}

# Streams that wait while others, and the program, do something else. CUDA's driver may let nobody make a call before
# memory is free, a stream has room or a copy is made, however long a stream waits: then the job has to end, and nobody to wait.
part_order() {
	local call status begun
	aggregators 1
	workers two-orders 60 2 "$programs/device_order" orders
	workers far-ahead 60 2 "$programs/device_order" ahead
	# Streams that stand still share these queues of the device; the library's own must not, having another priority.
	for call in 2 3; do
		workers "$call-queues" 60 2 env CUDA_DEVICE_MAX_CONNECTIONS=$call "$programs/device_order" meanwhile copy
	done
	for call in allocate allocate-pinned create copy synchronize; do
		workers "meanwhile-$call" 40 2 "$programs/device_order" meanwhile $call
	done
	workers blocking-free 40 2 env CUDA_LAUNCH_BLOCKING=1 "$programs/device_order" meanwhile free
	for call in free free-pinned queue copy-pageable; do
		begun=$SECONDS
		start "meanwhile-$call" 2 timeout -k 5 40 "$programs/device_order" meanwhile $call
		finish "meanwhile-$call"
		status=$?
		[ $status != 3 ] || ! grep -q 'did not come back' "$logs/meanwhile-$call.0" || status=0
		report "meanwhile-$call" $status $((SECONDS - begun))
		echo "      $(head -n 1 "$logs/meanwhile-$call.0" | cut -c 1-110)"
	done
}

# Streams that are at work for long before and after each operation, tensors of several segments.
part_load() {
	local seed
	aggregators 2
	for seed in 40 41 42; do
		workers "load-$seed" 90 3 "$streams" check $seed $((cases / 2)) $((elements * 4)) "$load"
	done
}

# One is killed while operations are under way: the others hear of it, with its rank, and end.
part_deaths() {
	local i rank begun=$SECONDS status=0
	aggregators 1
	start killed 3 env WINNOW_SILENCE_MS=2000 "$streams" forever 50 $((elements / 4)) "$some"
	for ((i = 0; i < 600; i++)); do
		[ "$(cat "$logs"/killed.[0-2] | grep -c running)" = 3 ] && break
		sleep 0.1
	done
	kill -KILL "${team[1]}"
	wait "${team[1]}" 2>/dev/null
	for ((i = 0; i < 300; i++)); do
		kill -0 "${team[0]}" 2>/dev/null || kill -0 "${team[2]}" 2>/dev/null || break
		sleep 0.1
	done
	for rank in 0 2; do
		kill -KILL "${team[$rank]}" 2>/dev/null && echo "still runs after 30 s" >>"$logs/killed.$rank"
		wait "${team[$rank]}"
		[ $? = 3 ] || status=1
		grep -qE '(rank|worker) 1\b' "$logs/killed.$rank" || status=1
	done
	cat "$logs"/killed.[0-2] >"$logs/killed"
	report killed $status $((SECONDS - begun))
}

part_memcheck() {
	local sanitizer tool
	sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
	[ -x "$sanitizer" ] || {
		echo "no compute-sanitizer" >"$logs/memcheck"
		report memcheck 77 0
		return
	}
	run memcheck-kernels 120 "$sanitizer" --tool memcheck --leak-check full --error-exitcode 9 "$programs/test_kernels" 60 0
	for tool in racecheck synccheck initcheck; do
		run "$tool-kernels" 120 "$sanitizer" --tool $tool --error-exitcode 9 "$programs/test_kernels" 60 0
	done
	aggregators 1
	workers memcheck 240 2 "$sanitizer" --tool memcheck --leak-check full --error-exitcode 9 \
		"$streams" check 60 $((cases / 5)) $((elements / 10)) 1000000
}

part_torch() {
	local class reason
	reason=$("$PYTHON" -c 'import torch, sys
torch.cuda.is_available() and torch.distributed.is_nccl_available() or sys.exit("PyTorch is without CUDA or NCCL")' 2>&1) || {
		echo "$reason" >"$logs/torch"
		report torch 77 0
		return
	}
	aggregators 2
	for class in OnGpu OnGpuOfFour OnNodes Environments Deaths; do
		run "torch-$class" 240 "$PYTHON" tests/gpu/ddp_on_gpu.py -v $class
	done
}

for part in $parts; do
	function=part_${part//-/_}
	if [ "$(type -t "$function")" != function ]; then
		echo "check-gpu: there is no part '$part'" >&2
		exit 2
	fi
	$function
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
