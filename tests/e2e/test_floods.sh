#!/usr/bin/env bash
# Whatever strangers and tenants send to the control port and to HTTP without end (flood.py): heartbeats of other jobs leave in
# time, a 4 KB operation takes at most three times its own time, and SIGTERM ends winnowd. test_floods_all.sh has the other floods.
# late: it measures what others on this machine would disturb
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy
floods=${FLOODS:-passphrases http}
seconds=3
http=$(free_port)
honest=$("$BUILD/winnow" key) evil=$("$BUILD/winnow" key)
printf '%s\n' "honest $honest" "watch $honest" "flood $evil" >"$tmp/keys"
for i in $(seq 0 199); do echo "team$i passphrase-number-$i"; done >>"$tmp/keys"
chmod 600 "$tmp/keys"

flood() { # name kind seconds NAME=VALUE..
	start "$1" "$python" tests/e2e/flood.py "$2" "$PORT" "${@:3}"
	await flooding "$tmp/$1.out"
}
median() { # of two workers' operations of 4 KB, in microseconds
	local rank
	for rank in 0 1; do start r$rank bench --job honest --rank $rank --world 2 --size 4K --iters "$(scaled 3000)" --multicast=0 --json "${keys[@]}"; done
	for rank in 0 1; do expect r$rank 60 0; done
	json "$tmp/r0.out" time_us.median
}
within() { $python -c 'import sys; sys.exit(not float(sys.argv[1]) <= float(sys.argv[2]))' "$1" "$2"; } # value limit

for kind in $floods; do
	# Strangers come without a key to those who want none; tenants have one of their own.
	case $kind in
	pings | halves | huge | connects | newcomers | http | probes) keys=(--insecure-no-key) its=() their=() ;;
	*) keys=(--key-file "$tmp/keys") its=("key=$evil") their=("key=$honest") ;;
	esac
	case $kind in
	newcomers) its+=(members=16) ;;
	http | probes) its+=(members=800 "http=$http") ;;
	passphrases) its+=(connections=200) ;;
	esac
	winnowd "${keys[@]}" --metrics "127.0.0.1:$http" --drain-timeout 1
	own=$(median) || exit 1
	flood watch watch 600 silence=2 job=watch "${their[@]}"
	flood flood "$kind" 600 "${its[@]}"
	begun=$SECONDS
	for _ in 1 2 3; do # a busy machine may be slow for other reasons: so each is compared with one just before it
		beside=$(median) || exit 1
		! within "$beside" "$($python -c "print(3 * $own)")" || break
		kill -STOP "$(pid_of flood)"
		own=$(median) || exit 1
		kill -CONT "$(pid_of flood)"
	done
	while [ $((SECONDS - begun)) -lt "$seconds" ]; do sleep 0.1; done
	[ ! -e "$tmp/flood.status" ] || fail "$kind: the flood has ended by itself: $(cat "$tmp/flood.err")"
	[ ! -e "$tmp/watch.status" ] || fail "$kind: the member that counts its pings has ended by itself: $(cat "$tmp/watch.err")"
	kill -TERM "$(pid_of watch)"
	expect watch 10 0
	late=$(sed -nE 's/^[1-9][0-9]* pings, late by ([0-9]+) ms.*/\1/p' "$tmp/watch.out")
	before=$(date +%s%3N)
	winnowd_stop
	ended=$(($(date +%s%3N) - before))
	kill -TERM "$(pid_of flood)"
	expect flood 20 0
	echo "$kind: pings late by ${late:-?} ms, 4 KB in $beside us beside it and $own alone, ended after $ended ms"
	[ "${late:-1000}" -le 500 ] || fail "$kind: pings are late: $(cat "$tmp/watch.out" "$tmp/watch.err")"
	within "$beside" "$($python -c "print(3 * $own)")" || fail "$kind: 4 KB take $beside us beside it, and $own alone"
	[ "$ended" -le 6000 ] || fail "$kind: winnowd has ended after $ended ms"
done
