#!/usr/bin/env bash
# winnowd that root starts: with --user it is that user, in all of its threads and for good, and works; without, it says what
# that means. What SIGHUP then needs, and which users there are.
# no-sanitizers: theirs have threads of their own
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || { echo "it takes root to become somebody else" && exit 77; }
umask 077
log() { echo "$tmp/winnowd-$PORT.log"; }
is_nobody() { # every thread, DPDK's as well
	local file threads=0
	for file in /proc/"$DAEMON"/task/*/status; do
		for line in 'Uid:	65534	65534	65534	65534' 'Gid:	65534	65534	65534	65534' 'CapEff:	0000000000000000' 'CapPrm:	0000000000000000' \
			'CapInh:	0000000000000000' 'CapAmb:	0000000000000000' 'NoNewPrivs:	1'; do
			grep -qxF "$line" "$file" || fail "$(sed -n 's/^Name:.//p' "$file") is not '$line': $(grep -E '^(Uid|Gid|Cap|NoNew)' "$file" | tr '\n\t' '  ')"
		done
		[[ $(sed -n 's/^Groups:[[:space:]]*//p' "$file") =~ ^(65534)?\ ?$ ]] || fail "other groups: $(grep Groups "$file")"
		threads=$((threads + 1))
	done
	[ $threads -ge "$1" ] || fail "$threads threads, want at least $1"
	nobody cat "/proc/$DAEMON/environ" >/dev/null 2>&1 && fail "its own user reads its memory"
	return 0
}
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
tiny=(--size 64K --iters 2 --check)

# The key file is root's alone: winnowd has read it, and says what SIGHUP will do.
chmod a+x "$tmp"
echo '* the-first-key' >"$tmp/keys"
metrics=127.0.0.1:$(free_port)
winnowd --user nobody --key-file "$tmp/keys" --threads 3 --metrics "$metrics"
until_ready "$(log)"
is_nobody 5
grep -q "level=warn event=keys_unreadable key_file=$tmp/keys text=\"user nobody cannot read the key file (Permission denied), so SIGHUP will change nothing" "$(log)" || fail "nothing about the keys: $(cat "$(log)")"
grep -q 'event=root' "$(log)" && fail "it says that it runs as root"
"$BUILD/winnow" status "$metrics" --json >"$tmp/status.json" || fail "no status"
/usr/bin/python3 -c 'import json, sys; said = json.load(open(sys.argv[1]))["aggregators"][0]; assert said["user"] == "nobody", said' "$tmp/status.json" || fail "its user is not known"
WINNOW_KEY=the-first-key bench "${tiny[@]}" >/dev/null || fail "no job"
echo '* another-key' >"$tmp/keys"
kill -HUP "$DAEMON"
await 'event=reload_failed text="cannot read key file .*: Permission denied; the old keys stay' "$(log)"
WINNOW_KEY=the-first-key bench "${tiny[@]}" >/dev/null || fail "the old key does not stay"
# Where its group may read the file, all is as ever.
chgrp 65534 "$tmp/keys" && chmod 640 "$tmp/keys"
kill -HUP "$DAEMON"
await 'event=reloaded key_file=' "$(log)"
WINNOW_KEY=another-key bench "${tiny[@]}" >/dev/null || fail "the new key does not hold"
winnowd_stop
winnowd --user 65534:65534 --key-file "$tmp/keys" --metrics no
until_ready "$(log)"
is_nobody 3
grep -q 'keys_unreadable' "$(log)" && fail "it cannot read a file of its group's"
winnowd_stop

# DPDK's threads as well.
if [ -f "$BUILD/winnow-dpdk.so" ] && [ -z "${WINNOWD_OPTIONS:-}" ]; then
	winnowd --user nobody --insecure-no-key --metrics no --threads 1 --datapath dpdk --data-address 10.78.0.100/24 \
		--eal "--no-shconf --no-huge --no-pci --no-telemetry -m 256 --vdev=net_memif0,role=server,id=0,socket=$tmp/memif.sock,socket-abstract=no"
	until_ready "$(log)"
	is_nobody 4
	winnowd_stop
fi

# Root without it is told so; and that anybody may join.
winnowd --insecure-no-key --metrics no
until_ready "$(log)"
grep -q 'level=warn event=root text="winnowd runs as root, without capabilities.*give --user NAME' "$(log)" || fail "nothing about root: $(cat "$(log)")"
grep -q 'level=warn event=no_keys text="anyone who reaches the port may join' "$(log)" || fail "nothing about keys: $(cat "$(log)")"
grep -qE '^NoNewPrivs:[[:space:]]+1$' "/proc/$DAEMON/status" || fail "it may have new privileges"

refuses 2 "there is no user 'no-such' on this machine; want a name, or UID:GID" "$BUILD/winnowd" --insecure-no-key --check --user no-such
refuses 2 "there is no user '65534' on" "$BUILD/winnowd" --insecure-no-key --check --user 65534
for wrong in -1:-1 4294967295:65534 65534:4294967295 4294967297:65534 9999999999:1 65534:65534x; do
	refuses 2 "there is no user '$wrong' on" "$BUILD/winnowd" --insecure-no-key --check --user "$wrong"
done
# Clusters give numbers of ten digits.
for many in 1000680000:1000680000 4294967294:4294967294; do
	"$BUILD/winnowd" --insecure-no-key --check --user $many >/dev/null || fail "$many is no user"
done
for root in root 0:0 0:65534 65534:0; do
	refuses 2 "'$root' is root, or of root's group: want another one" "$BUILD/winnowd" --insecure-no-key --check --user $root
done
mkdir "$tmp/bin"
cp "$BUILD/winnowd" "$tmp/bin/" && chmod -R a+rX "$tmp/bin"
refuses 2 "only root can become 'daemon': leave it out, or start as root" nobody "$tmp/bin/winnowd" --insecure-no-key --check --user daemon
nobody "$tmp/bin/winnowd" --insecure-no-key --check --user nobody >/dev/null || fail "nobody may not stay nobody"
# A container's root may lack the right to change.
refuses 1 "cannot become user 'nobody': Operation not permitted; it takes root with CAP_SETUID and CAP_SETGID" \
	setpriv --bounding-set=-setuid,-setgid --inh-caps=-setuid,-setgid "$BUILD/winnowd" --insecure-no-key --log error --user nobody --listen "127.0.0.1:$(free_port)" --metrics no
echo "it is the user that it is told to be"
