# shellcheck shell=bash
# gpu.sh - after lib.sh: jobs of device_workers on emulated GPUs, one after the other
#
#   names           of the job's processes
#   faulty, fault   one of them, and what it has in its environment: NAME=VALUE
export WINNOW_CUDA_PLUGIN=$PWD/$BUILD/winnow-cuda-emulated.so WINNOW_NCCL=$PWD/$BUILD/tests/gpu/libemulated-cuda.so
names=() jobs=0 faulty="" fault=""

# A node's only process has all its GPUs: n0, n1 ..; or there is one process a GPU, which is its GPU 0: n0-0, n0-1 ..
# Without GPUs of a node's, each is a worker with one of two.
nodes() { # all|each nodes gpus arg..: starts these processes
	local count=$2 gpus=$3 node part parts=all devices=$3 name own
	names=() jobs=$((jobs + 1))
	[ "$gpus" != 0 ] || devices=2
	[ "$1" = all ] || parts=$(seq 0 $((gpus - 1))) devices=1
	for ((node = 0; node < count; node++)); do
		for part in $parts; do
			name=n$node own=SEED=
			[ "$part" = all ] || name+=-$part
			[ "$name" != "$faulty" ] || own=$fault
			names+=("$name")
			rm -f "$tmp/$name.out" # an earlier job's
			EMULATED_CUDA_SEED=${#names[@]} EMULATED_CUDA_DEVICES=$devices \
				start "$name" "${worker_side[@]}" env "$own" "$BUILD/tests/gpu/device_worker" "aggregators=$HOST:$PORT" \
				rank=$node "world=$count" "gpus=$gpus" "local=$part" "id=$tmp/id$jobs.$node" "job=job$jobs" "${@:4}"
		done
	done
}
well() { # as nodes()
	local name
	nodes "$@"
	for name in "${names[@]}"; do expect "$name" 400 0; done
}
end() { # seconds pattern [name]: all but that one, with one line
	local name
	for name in "${names[@]}"; do [ "$name" = "${3:-}" ] || expect "$name" "$1" 1 "$2"; done
}
busy() { # as nodes(): they go on and on, and some operations are over
	local name
	nodes "$@" ops=0
	for name in "${names[@]}"; do await running "$tmp/$name.out"; done
}
