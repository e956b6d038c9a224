#!/usr/bin/env bash
# An idle daemon, and an idle job, use no CPU to speak of: under 1 % of a core over five seconds.
# no-sanitizers: loads the library into python, which has none; and CPU time would say nothing
# waits: and looks at CPU time, not at the clock
. "$(dirname "$0")/lib.sh"
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
idle() { # pid:what ..
	local each before=() after
	for each; do before+=("$(ticks "${each%%:*}")"); done
	sleep 5
	for each; do
		after=$(ticks "${each%%:*}")
		echo "${each#*:}: $((after - before[0])) ticks of 10 ms in 5 s"
		[ $((after - before[0])) -lt 5 ] || fail "${each#*:} is not idle"
		before=("${before[@]:1}")
	done
}
winnowd --insecure-no-key --threads 2
idle "$DAEMON:winnowd"
python3 - "$PORT" "$BUILD" <<'P' &
import ctypes, os, sys, time
lib = ctypes.CDLL(sys.argv[2] + "/libwinnow.so")
os.environ.update(WINNOW_AGGREGATORS="127.0.0.1:" + sys.argv[1], WINNOW_INSECURE_NO_KEY="1")
config = ctypes.create_string_buffer(512)
lib.winnow_config_init(config)
comm = ctypes.c_void_p()
assert lib.winnow_comm_create(config, ctypes.byref(comm)) == 0
data = (ctypes.c_float * 100000)(1.0)
for _ in range(10):
    assert lib.winnow_allreduce(data, data, ctypes.c_uint64(100000), 1, 1, comm) == 0
time.sleep(60)
P
WORKER=$!
pids+=("$WORKER")
sleep 2
grep -q event=job_started "$tmp/winnowd-$PORT.log" || fail "the job does not run"
idle "$DAEMON:winnowd with an idle job" "$WORKER:an idle worker"
