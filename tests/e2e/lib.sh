# shellcheck shell=bash
# lib.sh - functions for the scripts beside it: daemons and workers that are always stopped, and expectations
#
#   BUILD         the folder of the binaries (default build)
#   tmp           a temporary folder for this test
#   winnowd ARG.. start winnowd on a free loopback port; sets PORT and DAEMON (its pid). When the test has passed, each one
#                 that still runs gets SIGTERM. All must end with a good status, unless the test killed them
#   winnowd_stop  stop the last one; its status must be 0
#   bench ARG..   run winnow bench against it
#   fail TEXT     end the test
#   chaos AGGREGATOR SEED LOSS DUPLICATE REORDER
#                 start a proxy before an aggregator, which does this to its datagrams (chaos.c); sets PORT, which is then on
#                 127.0.0.1. `chaos_ends` stops it, and fails if it has done nothing
#   await PATTERN FILE  wait until a line of the file matches
#   soon SECONDS COMMAND..  wait until the command succeeds; false if it does not in that time
#   seen PATTERN  true if the pattern is in this pipe's input. (grep -q stops reading early, and the writer then fails)
#   WINNOWD_OPTIONS  options for every winnowd; test_xdp_suite.sh and test_dpdk_suite.sh set it and run other tests
#   HOST, INSIDE  the address that winnowd listens on (default 127.0.0.1), and a command that starts it there
#   TWO_HOSTS=1   winnowd in one network namespace, workers in another, instead of all on loopback:
#                 put "${server_side[@]}" and "${worker_side[@]}" before commands
#   steady JOB..  two workers that run until `steady_ends JOB`, which fails if a result was wrong
#   caller JOB RANK WORLD..  a worker that calls only on request: `calls JOB RANK COUNT`, `calls JOB RANK leave`
#   job NAME "HOST=AGGREGATOR .." OPTION..  workers of bench on hosts of hosts_up, rank by rank; with what `own RANK` prints besides.
#                 `job_ends NAME SECONDS` waits for them: all must end well, or with the STATUS and the PATTERN of expect
#   has NAME FIELD VALUE..  what each rank's JSON says
#   need_arm      what `make CROSS=$cross` needs; sets arm, the folder where it builds, and qemu, which runs the result
#   all_for_arm FOLDER  fails if a program or an object there is for another CPU
#   scaled COUNT  a number of iterations for some seconds: COUNT, or fewer if something slows them down
set -uo pipefail
set -m # every background job is a process group, so that it can be stopped with all its children
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. tests/e2e/switch.sh
free_ports=$PWD/tests/python/ports.py
BUILD=${BUILD:-build}
HOST=${HOST:-127.0.0.1}
tmp=$(mktemp -d)
pids=()
daemons=()
declare -A leader # the shell that waits for a process of start()
namespaces=()
declare -A caller_in # the standard input of each caller
declare -A job_ranks # of each job()
server_side=() worker_side=()

seen() { grep "$@" >/dev/null; } # GREP'S OPTIONS.. PATTERN

# A test fails if a sanitizer, an assertion or a signal ended a daemon. These statuses are good: 137, the test killed it;
# 143, SIGTERM came at its end; 127, it was another shell's child; daemon_status, the test has checked it itself.
daemons_end() {
	local pid i status
	for pid in "${daemons[@]}"; do
		for i in $(seq 600); do
			[ "$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)" = $$ ] || break
			case $i in 1 | 20 | 200) kill -CONT "$pid" && kill -TERM "$pid" ;; esac # the first drains, the next ends
			sleep 0.05
		done 2>/dev/null
		[ "$i" -lt 600 ] || kill -KILL "$pid"
		wait "$pid" 2>/dev/null
		status=$?
		[ "$i" -lt 600 ] || status="none: it did not end within 30 s"
		case $status in 0 | 127 | 137 | 143 | "${daemon_status:-0}") continue ;; esac
		echo "FAILED: a winnowd has ended with status $status"
		tail -n 25 "$tmp"/winnowd-*.log
		return 1
	done >&2
}

stop_all() {
	local passed=$? pid ns bad=0
	[ $passed != 0 ] || daemons_end || bad=1
	for pid in "${pids[@]}"; do kill -KILL -- "-$pid"; done 2>/dev/null
	wait 2>/dev/null
	for ns in "${namespaces[@]}"; do ip netns del "$ns" 2>/dev/null; done
	rm -rf "$tmp"
	[ "${reserved:-0}" = 0 ] || echo $(($(cat "$huge") - reserved)) >"$huge"
	return $bad
}
trap 'stop_all || exit 1' EXIT
trap 'exit 1' INT TERM

fail() {
	echo "FAILED: $*" >&2
	for file in "$tmp"/*.err "$tmp"/*.log; do
		[ -s "$file" ] && { echo "--- $(basename "$file")"; tail -n 8 "$file"; } >&2
	done
	exit 1
}

scaled() {
	local count=$1
	[ -z "${TWO_HOSTS:-}" ] || count=$((count / 8)) # at MTU 1500 and through a bridge
	case ${SAN:-} in
	*thread*) echo $((count / 16)) ;;
	?*) echo $((count / 2)) ;;
	*) echo "$count" ;;
	esac
}

free_port() {
	python3 "$free_ports"
}

listens() { # host port
	local host=${1#[}
	# shellcheck disable=SC2016 # the inner shell's
	"${worker_side[@]}" bash -c 'exec 3<>"/dev/tcp/$0/$1"' "${host%]}" "$2" 2>/dev/null
}
wait_port() { soon 20 listens "$@"; } # host port; the machine may be busy

tries=20 pause=0.05 # in a second, and between two
soon() { # seconds command..
	local i
	for ((i = 0; i < $1 * tries; i++)); do
		"${@:2}" && return
		sleep $pause
	done
	"${@:2}"
}
gone() { ! kill -0 "$1" 2>/dev/null; } # pid

await() { # pattern file
	soon 20 grep -qsE "$1" "$2" || fail "no /$1/ in $(basename "$2"): $(tail -n 3 "$2")"
}

until_ready() { await 'event(=|": ?")ready' "$1"; } # winnowd's log

winnowd_on() { # port arg..
	PORT=$1
	shift
	rm -f "$tmp/winnowd-$PORT.log" # the previous one has a line event=ready
	# shellcheck disable=SC2086 # lists
	"${server_side[@]}" ${INSIDE:-} "$BUILD/winnowd" --listen "$HOST:$PORT" ${WINNOWD_OPTIONS:-} "$@" 2>"$tmp/winnowd-$PORT.log" &
	DAEMON=$!
	pids+=("$DAEMON")
	daemons+=("$DAEMON")
	until_ready "$tmp/winnowd-$PORT.log"
}

winnowd() {
	winnowd_on "$(free_port)" "$@"
}

winnowd_stop() {
	kill -TERM "$DAEMON"
	wait "$DAEMON" || fail "winnowd ended with status $?"
}

chaos() { # aggregator seed loss duplicate reorder
	PORT=$(free_port)
	"${worker_side[@]}" "$BUILD/tests/e2e/chaos" "$PORT" "$@" >"$tmp/chaos.out" 2>"$tmp/chaos.err" &
	CHAOS=$!
	pids+=("$CHAOS")
	wait_port 127.0.0.1 "$PORT" || fail "chaos does not listen"
}

chaos_ends() { # the proxy says what it has done
	kill -TERM "$CHAOS"
	wait "$CHAOS" || fail "the proxy ended with status $?"
	cat "$tmp/chaos.out"
	grep -qE 'lost [1-9].*doubled [1-9].*held back [1-9]' "$tmp/chaos.out" || fail "there was no chaos"
}

bench() {
	"${worker_side[@]}" "$BUILD/winnow" bench --aggregators "$HOST:$PORT" "$@"
}

# Run bench in the background, with its exit status in $tmp/NAME.status and its output in NAME.out and .err.
start() { # name command..
	local name=$1
	shift
	rm -f "$tmp/$name.status"
	(
		"$@" >"$tmp/$name.out" 2>"$tmp/$name.err"
		echo $? >"$tmp/$name.status"
	) &
	leader[$name]=$!
	pids+=($!)
}

pid_of() { # name: the program itself
	pgrep -P "${leader[$1]}"
}

finish() { # name seconds: wait for its end; its exit status
	soon "$2" test -s "$tmp/$1.status" || fail "$1 still runs after $2 s"
	return "$(cat "$tmp/$1.status")"
}

# finish with status STATUS and, unless it is 0, exactly one line of error that matches PATTERN
expect() { # name seconds status pattern
	local status=0
	finish "$1" "$2" || status=$?
	[ "$status" = "$3" ] || fail "$1: exit status $status, want $3"
	[ "$3" = 0 ] && return 0
	[ "$(wc -l <"$tmp/$1.err")" = 1 ] || fail "$1: want one line of error, got: $(cat "$tmp/$1.err")"
	grep -qE "$4" "$tmp/$1.err" || fail "$1: the error does not say /$4/: $(cat "$tmp/$1.err")"
}

steady() { # job NAME=VALUE..: of its environment
	local rank
	for rank in 0 1; do
		start "$1$rank" "${worker_side[@]}" env "WINNOW_AGGREGATORS=$HOST:$PORT" "WINNOW_JOB=$1" "${@:2}" "$BUILD/tests/e2e/caller" $rank 2 1048576
	done
}

steady_ends() { # job
	local rank
	for rank in 0 1; do [ ! -e "$tmp/$1$rank.status" ] || fail "job $1 has ended by itself: $(cat "$tmp/$1$rank.err")"; done
	kill -TERM "$(pid_of "${1}0")"
	for rank in 0 1; do expect "$1$rank" 20 0; done
	grep -qE '^[1-9][0-9]+ sums, all right$' "$tmp/${1}0.out" || fail "job $1 has done little: $(cat "$tmp/${1}0.out")"
}

caller() { # job rank world NAME=VALUE..: of its environment
	mkfifo "$tmp/$1$2.in"
	# shellcheck disable=SC1083,SC2086,SC2093 # a descriptor that goes into the array
	exec {caller_in[$1$2]}<>"$tmp/$1$2.in"
	start "$1$2" "${worker_side[@]}" env "WINNOW_AGGREGATORS=$HOST:$PORT" "WINNOW_JOB=$1" WINNOW_INSECURE_NO_KEY=1 "${@:4}" \
		"$BUILD/tests/e2e/caller" "$2" "$3" <"$tmp/$1$2.in"
}

calls() { # job rank COUNT|leave
	echo "$3" >&"${caller_in[$1$2]}"
}

has_lines() { [ "$(grep -cE "$2" "$3" 2>/dev/null)" = "$1" ]; } # how many, pattern, file
called() { # job rank times: wait until it has returned from this many calls
	soon 10 has_lines "$3" '^ok$' "$tmp/$1$2.out" || fail "job $1 rank $2 has not come back $3 times: $(cat "$tmp/$1$2.err")"
}

# A command that must end with STATUS and one line that matches PATTERN on stderr.
refuses() { # status pattern command..
	local status=$1 pattern=$2 got=0
	shift 2
	if [ "$(type -t "$1")" = function ]; then
		"$@" >"$tmp/refuses.out" 2>"$tmp/refuses.err" </dev/null || got=$?
	else
		timeout 30 "$@" >"$tmp/refuses.out" 2>"$tmp/refuses.err" </dev/null || got=$?
	fi
	[ "$got" = "$status" ] || fail "$*: exit status $got, want $status"
	[ "$(wc -l <"$tmp/refuses.err")" = 1 ] || fail "$*: want one line of error"
	grep -qE "$pattern" "$tmp/refuses.err" || fail "$*: the error does not say /$pattern/: $(cat "$tmp/refuses.err")"
}

# Network namespaces need root; CI has it.
need_namespaces() {
	if [ "$(id -u)" != 0 ] || ! ip netns add "wt$$-probe" 2>/dev/null; then
		echo "needs root and network namespaces"
		exit 77
	fi
	ip netns del "wt$$-probe"
}

cross=aarch64-linux-gnu
need_arm() {
	arm=build/$cross
	qemu=("qemu-${cross%%-*}-static" -L "$PWD/$arm/root")
	docker/install-packages.sh cross build >"$tmp/arm.out" 2>&1 || fail "$(cat "$tmp/arm.out")"
	docker/arm64-root.sh "$arm/root" dpdk arm64-check >"$tmp/arm.out" 2>&1 || fail "Debian's headers for Arm: $(tail -n 5 "$tmp/arm.out")"
}
all_for_arm() {
	local file found=0
	while read -r file; do
		readelf -h "$file" | seen AArch64 || fail "$file is for another CPU"
		found=$((found + 1))
	done < <(find "$1" -type f ! -name '*.bpf.o' -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print)
	[ $found -gt 2 ] || fail "$found programs and objects in $1"
}

# Add or remove huge pages of 2 MB; other programs may also use some. Pages that remain at the end are given back.
huge=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
reserved=0
reserve() { # pages
	local before
	before=$(cat $huge)
	reserved=$((reserved + $1))
	echo $((before + $1)) >$huge
	[ "$(cat $huge)" = $((before + $1)) ] || fail "the kernel has no $1 huge pages to spare"
}

uses_huge_pages() { # true if winnowd uses them
	awk '/_Hugetlb/ { kb += $2 } END { exit kb == 0 }' "/proc/$DAEMON/smaps_rollup"
}

# The dpdk datapath is built only where DPDK's headers are.
# The thread sanitizer sees neither what DPDK's drivers write nor the barriers of its rings.
has_dpdk() { [[ ${SAN:-} != *thread* && -e $BUILD/winnow-dpdk.so ]]; }
need_dpdk() {
	need_namespaces
	has_dpdk && return
	echo "built without DPDK (libdpdk-dev is missing), or with the thread sanitizer"
	exit 77
}

# A star of hosts: $net-w0.. at 10.77.0.1.., $net-a0.. at 10.77.0.101.., joined by a bridge in $net-sw.
net=wt$$
hosts_up() { # workers aggregators mtu
	local i
	namespaces+=("$net-sw")
	ip netns add "$net-sw"
	ip -n "$net-sw" link add br0 mtu "$3" type bridge mcast_snooping 0
	ip -n "$net-sw" link set br0 up
	for ((i = 0; i < $1; i++)); do host_up "$net-w$i" "10.77.0.$((i + 1))" "$3"; done
	for ((i = 0; i < $2; i++)); do
		host_up "$net-a$i" "10.77.0.$((i + 101))" "$3"
		# On a veth, native XDP_TX arrives only if the other end also has a program.
		[[ ${WINNOWD_OPTIONS:-} != *xdp* ]] ||
			ip netns exec "$net-sw" ip link set dev "$net-a$i" xdp obj "$BUILD/tests/e2e/pass.bpf.o" sec xdp || fail "cannot attach a program"
	done
}

hosts_mtu() { # mtu host..
	local host
	for host in "${@:2}"; do
		ip -n "$net-$host" link set eth0 mtu "$1"
		ip -n "$net-sw" link set "$net-$host" mtu "$1"
	done
	ip -n "$net-sw" link set br0 mtu "$1"
}

# fd77::1, ::2 .. for the first workers, and fd77::101 for the first aggregator.
hosts_six() { # workers
	local i
	for ((i = 0; i < $1; i++)); do ip -n "$net-w$i" addr add "fd77::$((i + 1))/64" dev eth0 nodad; done
	ip -n "$net-a0" addr add fd77::101/64 dev eth0 nodad
}

# Senders' kernels leave super-packets for a network card to cut; a port without a card receives them whole. Let the switch cut them
# before they reach this host. (On a veth winnowd does that itself.)
whole_frames() { # host
	ip netns exec "$net-sw" ethtool -K "$net-$1" tx-udp-segmentation off gso off tso off >"$tmp/ethtool.out" 2>&1 ||
		fail "cannot switch segmentation off: $(cat "$tmp/ethtool.out")"
}

# Make the switch lose 3 % of the datagrams from a host; "off" stops that. Other switch ports are not affected.
lossy() { # host [off]
	if [ "${2:-}" = off ]; then
		ip -n "$net-sw" link set dev "$net-$1" xdpgeneric off
	else
		ip -n "$net-sw" link set dev "$net-$1" xdpgeneric obj "$BUILD/tests/e2e/lose.bpf.o" sec xdp || fail "cannot attach a program"
	fi
}

metric() { # address name: print the value of the samples whose name begins so
	python3 -c 'import sys, urllib.request
for line in urllib.request.urlopen("http://%s/metrics" % sys.argv[1]).read().decode().splitlines():
    if line.startswith(sys.argv[2]): print(int(float(line.split()[-1])))' "$1" "$2"
}

host_up() { # name address mtu
	namespaces+=("$1")
	ip netns add "$1"
	# With two queues, packets of one job arrive on both CPUs.
	ip link add "$1" netns "$net-sw" mtu "$3" numtxqueues 2 numrxqueues 2 type veth \
		peer name eth0 netns "$1" mtu "$3" numtxqueues 2 numrxqueues 2
	ip -n "$net-sw" link set "$1" master br0 up
	ip -n "$1" addr add "$2/24" dev eth0
	ip -n "$1" link set lo up
	ip -n "$1" link set eth0 up
}

inside() { # host command..
	ip netns exec "$net-$1" "${@:2}"
}

winnowd_inside() { # aggregator number, arg..
	local n=$1
	shift
	rm -f "$tmp/winnowd-a$n.log" # the previous one has a line event=ready
	# shellcheck disable=SC2086 # a list
	ip netns exec "$net-a$n" ${INSIDE:-} "$BUILD/winnowd" --listen "10.77.0.$((n + 101)):5555" ${WINNOWD_OPTIONS:-} "$@" 2>"$tmp/winnowd-a$n.log" &
	DAEMON=$!
	pids+=("$DAEMON")
	daemons+=("$DAEMON")
	until_ready "$tmp/winnowd-a$n.log"
}

own() { :; } # rank: options of its own
job() { # name places option..
	local name=$1 places rank
	read -ra places <<<"$2"
	shift 2
	for rank in "${!places[@]}"; do
		# shellcheck disable=SC2046 # a list
		start "$name$rank" inside "${places[rank]%%=*}" "$BUILD/winnow" bench --aggregators "${places[rank]#*=}" --job "$name" --rank "$rank" \
			--world ${#places[@]} --check $(own "$rank") "$@"
	done
	job_ranks[$name]=${!places[*]}
}
job_ends() { # name seconds [status pattern]
	local rank
	for rank in ${job_ranks[$1]}; do expect "$1$rank" "$2" "${3:-0}" "${4:-}"; done
}
everywhere() { # workers aggregators: places of as many workers, one a host
	local i
	for ((i = 0; i < $1; i++)); do printf 'w%d=%s ' $i "$2"; done
}

# Run bench with --check on N workers in namespaces w0..; each must end with status 0.
bench_inside() { # workers aggregators-list seconds arg..
	job w "$(everywhere "$1" "$2")" "${@:4}"
	job_ends w "$3"
}

has() { # name field, then each rank's value; or one for all
	local rank want got
	for rank in ${job_ranks[$1]}; do
		want=$3
		[ $# = 3 ] || want=${*:3+rank:1}
		got=$(json "$tmp/$1$rank.out" "$2")
		[ "$got" = "$want" ] || fail "$1: $2 of rank $rank is $got, not $want"
	done
}

json() { # file field: a value of a JSON object
	python3 -c 'import json, sys; v = json.load(open(sys.argv[1]))
for k in sys.argv[2].split("."): v = v[k]
print(v)' "$1" "$2"
}

if [ -n "${TWO_HOSTS:-}" ]; then
	need_namespaces
	hosts_up 1 1 1500
	HOST=10.77.0.101
	server_side=(ip netns exec "$net-a0")
	worker_side=(ip netns exec "$net-w0")
fi
