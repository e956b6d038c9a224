#!/usr/bin/env bash
# What images and the chart listen at: on hosts with IPv4 alone, with IPv6 alone, with both, and where the system has no IPv6 at
# all; a job by each address that there is, the metrics, and the image's health check.
. "$(dirname "$0")/lib.sh"
need_namespaces
hosts_up 2 1 1500
gcc -shared -fPIC -O2 -o "$tmp/no_ipv6.so" tests/e2e/no_ipv6.c || fail "no_ipv6.c does not compile"
where=$(sed -n 's/^ENV \(WINNOW_LISTEN=.*\)/\1/p' docker/winnowd.Dockerfile)
[[ $where == *METRICS=* ]] || fail "docker/winnowd.Dockerfile says not where to listen"
# shellcheck disable=SC2054 # lists of sizes
common=(--insecure-no-key --iters 2 --warmup 1 --json --size 4K,1M --density 1,0.1)
for i in 0 1; do ip -n "$net-w$i" addr add "fd77::$((i + 1))/64" dev eth0 nodad; done
try() { # name, what is preloaded, then each address
	local name=$1 preload=$2 address
	# shellcheck disable=SC2086 # a list
	ip netns exec "$net-a0" env $where ${preload:+LD_PRELOAD=$preload} "$BUILD/winnowd" --insecure-no-key --threads 2 2>"$tmp/winnowd-$name.log" &
	DAEMON=$!
	pids+=("$DAEMON")
	daemons+=("$DAEMON")
	until_ready "$tmp/winnowd-$name.log"
	# shellcheck disable=SC2086 # a list
	inside a0 env $where "$BUILD/winnow" status --alive --quiet || fail "$name: the health check fails"
	shift 2
	for address; do
		bench_inside 2 "$address:5555" 60 "${common[@]}"
		has w multicast 1
		inside w1 curl -sgf "http://$address:9555/readyz" >/dev/null || fail "$name: no answer at $address:9555"
	done
	winnowd_stop
}
try kernel "$tmp/no_ipv6.so" 10.77.0.101
inside a0 sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
try four '' 10.77.0.101
inside a0 sh -c 'echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
ip -n "$net-a0" addr add fd77::101/64 dev eth0 nodad
try both '' 10.77.0.101 '[fd77::101]'
ip -n "$net-a0" addr del 10.77.0.101/24 dev eth0
try six '' '[fd77::101]'
echo "all right"
