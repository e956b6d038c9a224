#!/usr/bin/env bash
# check_gpu.sh BUILD - the kernels on this machine's GPU: random tensors, tensors beyond 2^32 bytes, compute-sanitizer
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1 test=$1/gpu/test_kernels
cuda_home=${CUDA_HOME:-/usr/local/cuda}
sanitizer=$(command -v compute-sanitizer || echo "$cuda_home/bin/compute-sanitizer")
failed=0

run() { # name command..
	local name=$1 log
	shift
	log=$build/gpu/${name// /-}.log
	if "$@" >"$log" 2>&1; then
		echo "ok    $name: $(tail -n 1 "$log")"
	else
		echo "FAIL  $name; the last lines of $log:"
		tail -n 20 "$log" | sed 's/^/      /'
		failed=1
	fi
}

run "kernels" "$test"
for seed in 11 12 13; do
	run "kernels seed $seed" env WINNOW_SEED=$seed "$test" 2000 0
done
if [ -x "$sanitizer" ]; then
	run "kernels memcheck" "$sanitizer" --tool memcheck --leak-check full --error-exitcode 9 "$test" 60 0
	run "kernels racecheck" "$sanitizer" --tool racecheck --error-exitcode 9 "$test" 60 0
	run "kernels synccheck" "$sanitizer" --tool synccheck --error-exitcode 9 "$test" 60 0
	run "kernels initcheck" "$sanitizer" --tool initcheck --error-exitcode 9 "$test" 60 0
else
	echo "skip: compute-sanitizer: $sanitizer is not there"
fi
exit $failed
