#!/usr/bin/env bash
# no-sanitizers: mpirun and torch are other people's programs
# The same data through Open MPI's allreduce and ours, on 1, 3 and 5 workers: all elements agree.
. "$(dirname "$0")/lib.sh"
if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
	echo "no Open MPI (packages openmpi-bin and libopenmpi-dev)"
	exit 77
fi
mpicc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -I. tests/e2e/mpi_compare.c -L"$BUILD" -lwinnow -lm \
	-Wl,-rpath,"$(realpath "$BUILD")" -o "$tmp/mpi_compare" || fail "mpi_compare.c does not compile"
winnowd --insecure-no-key
for n in 1 3 5; do
	WINNOW_AGGREGATORS=127.0.0.1:$PORT WINNOW_INSECURE_NO_KEY=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		timeout 100 mpirun --oversubscribe --mca btl self,tcp --mca btl_tcp_if_include lo -n $n "$tmp/mpi_compare" || fail "$n workers"
done
