#!/usr/bin/env bash
# check.sh FOLDER [PART..] - tests and benches that need a GPU, the most informative part first:
#
#   kernels      scan and copies against plain loops, with tensors beyond 2^32 bytes
#   staging      one worker without a network: GB/s of a tensor, time in CUDA's calls and on the GPU
#   end-to-end   several processes and an aggregator: results, busy streams
#   bench        speed of the kernels relative to the GPU's own copy
#   torch        the hook, the process group and nodes in PyTorch, against NCCL
#   beside       operations of one process, alone and beside other work of the GPU
#   allreduce    operations of several processes, alternating with NCCL
#   memcheck     kernels and workers under compute-sanitizer
#
# `make gpu-bundle` makes FOLDER. There, run ./tests/gpu/check.sh . PART; it needs neither make nor network. It needs one
# GPU; PyTorch 2.x with NCCL for torch, beside and allreduce. Each part ends within ten minutes. Lines say ok, skip or FAIL, and
# the last one counts them. Tables are written row by row. RESULTS has the tables and all logs, RESULTS.tar.gz the same in
# one file. Without a GPU: one line and exit status 77.
#
#   RESULTS=FOLDER/results
#   PYTHON=python3   the Python that has PyTorch
#   DEVICE=cpu       those three without a GPU, against Gloo
#   SIZES=100M,1G DENSITIES=0.001,0.01,0.1,1 ITERATIONS=7 ROW_SECONDS=20 WIRE=auto WORLDS=2,4   of beside and allreduce
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
folder=$(realpath "${1:?usage: tests/gpu/check.sh FOLDER [PART..]}")
shift
parts=${*:-kernels staging end-to-end bench torch beside allreduce memcheck}
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda}
worker=$folder/device_worker
logs=$(realpath "${RESULTS:-$folder/results}")
mkdir -p "$logs"
pids=() mps=
stop_all() {
	for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
	wait 2>/dev/null
	[ -z "$mps" ] || echo quit | nvidia-cuda-mps-control >/dev/null 2>&1
	tar -C "$logs" --exclude=mps/control* -czf "$logs.tar.gz" .
}

for name in $(compgen -e | grep -E '^(WINNOW_|NCCL_|RANK$|WORLD_SIZE$|MASTER_|CUDA_LAUNCH_BLOCKING$|CUDA_DEVICE_MAX_CONNECTIONS$)' || true); do
	unset "$name"
done
export WINNOW_LIBRARY=$folder/libwinnow.so BUILD=$folder DEVICE PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

[ -x "$folder/winnowd" ] || {
	echo "check-gpu: $folder/winnowd is missing: run \`make gpu-bundle\` on a machine with CUDA and the libraries of docker/packages.txt, and bring its build/gpu here" >&2
	exit 1
}
if [ "$DEVICE" != cpu ]; then
	gpu=$("$worker" describe=1 2>&1)
	status=$?
	[ $status = 0 ] || {
		echo "check-gpu: $gpu" >&2
		exit $status
	}
	echo "$gpu"
	nvidia-smi -L 2>/dev/null
fi
trap stop_all EXIT
trap 'exit 1' INT TERM

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

workers() { # name seconds world command..: all workers of a fresh job must end well; output in $logs/NAME.RANK, and in NAME
	local name=$1 world=$3 begun=$SECONDS rank status bad=0 team=()
	rm -f "$logs/$name".[0-9]* # of an earlier run: its lines are not this one's
	for ((rank = 0; rank < world; rank++)); do
		timeout -k 5 "$2" "${@:4}" rank=$rank "world=$world" "job=check-gpu-$$-$name" >"$logs/$name.$rank" 2>&1 </dev/null &
		team+=($!)
	done
	pids+=("${team[@]}")
	for rank in "${!team[@]}"; do
		wait "${team[$rank]}"
		status=$?
		[ $bad != 0 ] || bad=$status
	done
	cat "$logs/$name".[0-9]* >"$logs/$name"
	report "$name" $bad $((SECONDS - begun))
}

# Shown as it grows: whoever ends it early has the rows so far.
table() { # name seconds command..
	local name=$1 limit=$2 begun=$SECONDS
	shift 2
	timeout -k 10 "$limit" "$@" 2>&1 </dev/null | tee "$logs/$name"
	report "$name" "${PIPESTATUS[0]}" $((SECONDS - begun))
}

# ---- parts ----

ops=200 most=1500000 some=20M staging=100M times=7
some=$(numfmt --from=iec "$some") staging=$(numfmt --from=iec "$staging")

part_kernels() {
	run kernels 300 "$folder/test_kernels"
}

part_staging() {
	table staging 540 "$folder/bench_staging" "$staging" "$times"
}

# A time limit is that of a worker who hangs. Streams that are at work for long before each operation are load=.
part_end_to_end() {
	local rank
	aggregators 1
	for rank in 1 2 4; do
		workers "$rank-workers" 90 "$rank" "$worker" "ops=$ops" "most=$most" "seed=$rank"
	done
	workers busy-streams 90 3 "$worker" "ops=$ops" "most=$((most * 4))" seed=5 "load=$some"
	workers far-ahead 90 2 "$worker" "ops=$((ops * 2))" most=20000 lanes=40 seed=6
	workers one-queue 90 2 env CUDA_DEVICE_MAX_CONNECTIONS=1 "$worker" "ops=$ops" "most=$most" seed=7 "load=$some"
	workers launch-blocking 90 2 env CUDA_LAUNCH_BLOCKING=1 "$worker" "ops=$ops" "most=$most" seed=8
	workers least-memory 90 2 env WINNOW_STAGING_MB=0 "$worker" "ops=$ops" "most=$most" seed=9

	aggregators 3
	workers three-aggregators 90 3 "$worker" "ops=$ops" "most=$most" seed=11
}

part_bench() {
	table bench 580 "$folder/bench_gpu"
}

has_torch() { # name: a line that skips it otherwise
	local reason
	[ "$DEVICE" = cpu ] || reason=$("$PYTHON" -c 'import torch, sys
torch.cuda.is_available() and torch.distributed.is_nccl_available() or sys.exit("PyTorch is without CUDA or NCCL")' 2>&1) || {
		echo "$reason" >"$logs/$1"
		report "$1" 77 0
		return 1
	}
}

part_torch() {
	local class setting
	has_torch torch || return
	aggregators 2
	for class in OnGpu Deaths; do
		run "torch-$class" 400 "$PYTHON" tests/gpu/ddp_on_gpu.py -v $class
	done
	for setting in CUDA_LAUNCH_BLOCKING=1 CUDA_DEVICE_MAX_CONNECTIONS=1; do # one kernel at a time
		run "torch-$setting" 200 env $setting "$PYTHON" tests/gpu/ddp_on_gpu.py -v OnGpu.test_many_under_way
	done
}

operations() { # name worlds
	aggregators 1
	table "$1" 580 "$PYTHON" tests/gpu/bench_allreduce.py \
		--sizes "${SIZES:-100M,1G}" --worlds "$2" --densities "${DENSITIES:-0.001,0.01,0.1,1}" \
		--iterations "${ITERATIONS:-7}" --seconds "${ROW_SECONDS:-20}" --wire "${WIRE:-auto}" --json "$logs/$1.json"
}

# Before others share the GPU: with the multi-process service one's kernels may wait until another has none left.
part_beside() {
	has_torch beside && operations beside 1
}

# Processes that share a GPU have it by turns, unless CUDA's multi-process service lets them in together.
share_gpu() {
	command -v nvidia-cuda-mps-control >/dev/null || return 1
	export CUDA_MPS_PIPE_DIRECTORY=$logs/mps CUDA_MPS_LOG_DIRECTORY=$logs/mps
	mkdir -p "$logs/mps"
	nvidia-cuda-mps-control -d >"$logs/mps.start" 2>&1 && mps=yes && timeout 60 "$folder/bench_staging" 1000000 1 >"$logs/mps.probe" 2>&1 && return
	[ -z "$mps" ] || echo quit | nvidia-cuda-mps-control >/dev/null 2>&1
	mps=
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	return 1
}

part_allreduce() {
	has_torch allreduce || return
	[ "$DEVICE" = cpu ] || share_gpu ||
		echo "There is no multi-process service here: the processes get the GPU by turns, and these times mean nothing but that it runs."
	operations allreduce "${WORLDS:-2,4}"
}

part_memcheck() {
	local sanitizer tool
	sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
	[ -x "$sanitizer" ] || sanitizer=
	# Some virtual machines show a GPU, and no debugger's view of it.
	if ! "${sanitizer:-false}" --error-exitcode 9 "$folder/test_kernels" 1 0 >"$logs/memcheck" 2>&1; then
		echo "${sanitizer:-no compute-sanitizer}${sanitizer:+ cannot watch one tensor of test_kernels: see memcheck}" >>"$logs/memcheck"
		report memcheck 77 0
		return
	fi
	run memcheck-kernels 120 "$sanitizer" --tool memcheck --error-exitcode 9 "$folder/test_kernels" 60 0
	for tool in racecheck synccheck initcheck; do
		run "$tool-kernels" 90 "$sanitizer" --tool $tool --error-exitcode 9 "$folder/test_kernels" 60 0
	done
	aggregators 1
	workers memcheck 180 2 "$sanitizer" --tool memcheck --error-exitcode 9 "$worker" ops=30 most=100000 seed=60
}

for part in $parts; do
	declare -F "part_${part//-/_}" >/dev/null && continue
	echo "check-gpu: there is no part '$part'" >&2
	exit 2
done
for part in $parts; do
	"part_${part//-/_}"
done
echo "$passed passed, $failed failed, $skipped skipped; $logs.tar.gz has the logs"
[ $failed -eq 0 ]
