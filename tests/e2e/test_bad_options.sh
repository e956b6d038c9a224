#!/usr/bin/env bash
# Wrong usage: exit status 2 and one line that says what is wrong and what to do.
. "$(dirname "$0")/lib.sh"
d=$BUILD/winnowd b="$BUILD/winnow bench"

refuses 2 'no job key: give --key-file FILE or.*--insecure-no-key' "$d"
refuses 2 'no option --lisen; did you mean --listen' "$d" --lisen 1:2
refuses 2 'no option --frobnicate; see winnowd --help' "$d" --frobnicate
refuses 2 "'x' is not an option" "$d" x
refuses 2 'listen.*not HOST:PORT' "$d" --insecure-no-key --listen 5555
refuses 2 'listen.*not HOST:PORT' "$d" --insecure-no-key --listen 1.2.3.4:99999
refuses 2 'cannot find host' "$d" --insecure-no-key --listen '[fe80::1%no-such-device]:5555'
[ -n "${SAN:-}" ] || { # a name server that does not answer yet: a service manager is to try again
	gcc -shared -fPIC -O2 -D_GNU_SOURCE -o "$tmp/no_names.so" tests/e2e/no_names.c || fail "no_names.c does not compile"
	refuses 1 'listen: cannot find host .never.host' env LD_PRELOAD="$tmp/no_names.so" "$d" --insecure-no-key --listen never.host:5555
	refuses 1 'metrics: cannot find host' env LD_PRELOAD="$tmp/no_names.so" "$d" --insecure-no-key --metrics never.host:5555
	refuses 1 'hosts: cannot find host' env LD_PRELOAD="$tmp/no_names.so" "$BUILD/winnow" colocate --hosts never.host -- true
}
refuses 2 'jobs-max is 0: want 1 to' "$d" --insecure-no-key --jobs-max 0
refuses 2 'payload-max is 70000: want 584 to 65000' "$d" --insecure-no-key --payload-max 70000
refuses 2 'threads is 1000: want 0 to 64' "$d" --insecure-no-key --threads 1000
refuses 2 'multicast.*want a multicast /16' "$d" --insecure-no-key --multicast 10.0.0.0
refuses 2 "datapath is 'warp': want auto, udp, xdp or dpdk" "$d" --insecure-no-key --datapath warp
refuses 1 "no datapath 'warp': want udp or dpdk" "$BUILD/winnow" bench --aggregators 127.0.0.1:1 --insecure-no-key --datapath warp
refuses 2 'contradicts --key-file' "$d" --insecure-no-key --key-file /dev/null
refuses 2 'contradicts --key .WINNOW_KEY.' "$d" --insecure-no-key --key not-a-secret
refuses 2 'cannot read key file /no/such: No such file' "$d" --key-file /no/such
refuses 2 'cannot read key file /dev/null: it is a device' "$d" --key-file /dev/null
refuses 2 'cannot read /no/such.ini' "$d" --config /no/such.ini
printf '[winnowd]\njobs-max = many\n' >"$tmp/a.ini"
refuses 2 "a.ini, line 2: jobs-max is 'many'" "$d" --config "$tmp/a.ini"
printf '[winnowd]\njob-max = 3\n' >"$tmp/b.ini"
refuses 2 'b.ini, line 2: no option job-max; did you mean jobs-max.$' "$d" --config "$tmp/b.ini"

# shellcheck disable=SC2086 # $b is two words
{
	refuses 2 'give --aggregators HOST:PORT, or --local N' $b
	refuses 2 'leave --aggregators out' $b --local 2 --aggregators 127.0.0.1:1
	refuses 2 'rank must be below --world' $b --aggregators 127.0.0.1:1 --rank 4 --world 4
	refuses 2 "density is '1.5': want numbers from 0 to 1" $b --local 2 --density 1.5
	refuses 2 'fixed32 is for --dtype f32 with --op sum or avg' $b --local 2 --wire fixed32 --dtype i32
	refuses 2 'block is 0: want 1 to 65536' $b --local 2 --block 0
	refuses 2 'iters is 0: want 1 to' $b --local 2 --iters 0
	refuses 2 'local is 9999: want 0 to 512' $b --local 9999
	refuses 2 'world is 0: want 1 to' $b --aggregators 127.0.0.1:1 --world 0
	refuses 2 "RANK is 'first': want a whole number" env RANK=first $b --aggregators 127.0.0.1:1
	refuses 1 'no job key' $b --aggregators 127.0.0.1:1
	refuses 1 'not HOST:PORT' $b --aggregators 127.0.0.1 --insecure-no-key
	refuses 1 "job name 'a b'" $b --aggregators 127.0.0.1:1 --insecure-no-key --job 'a b'
	refuses 1 'are the same' $b --aggregators 127.0.0.1:1,127.0.0.1:1 --insecure-no-key
}
refuses 2 "^winnow: no command 'bend'; did you mean winnow bench.$" "$BUILD/winnow" bend
refuses 2 "^winnow: no command 'frobnicate'; see winnow --help$" "$BUILD/winnow" frobnicate

# shellcheck disable=SC2086 # $b is two words
refuses 2 "^winnow bench: no option --aggregator; did you mean --aggregators[?]$" $b --aggregator 127.0.0.1:5555
refuses 2 "no option --aggregator; see winnowd --help" "$d" --aggregator 127.0.0.1:5555

# A variable that nobody reads is said, if it looks like one that somebody does. All that any program reads are known to each.
strangers() { # NAME=VALUE..: what winnowd says of them
	{ env "$@" "$d" --check --insecure-no-key >/dev/null; } 2>&1
}
[ "$(strangers WINNOW_THREAD=3)" = 'winnowd: WINNOW_THREAD in the environment has no effect; did you mean WINNOW_THREADS?' ] || fail "WINNOW_THREAD: $(strangers WINNOW_THREAD=3)"
strangers WINNOW_JOINT_TIMEOUT=3 | seen 'did you mean WINNOW_JOIN_TIMEOUT.$' || fail "WINNOW_JOINT_TIMEOUT is not said"
[ -z "$(strangers WINNOW_PORT=tcp://10.0.0.1:5555 WINNOW_SERVICE_HOST=10.0.0.1 WINNOW_HOME=/tmp WINNOW_FROBNICATE=1)" ] || fail "variables of others are said"
mapfile -t known < <({
	"$BUILD/winnow" config dump
	"$d" --dump-config
	# shellcheck disable=SC2046 # a list
	grep -rhoE '(getenv\(|environ(\.get\(|\[)|flag_of\(|variable\()"WINNOW_[A-Z_]+' aggregator client bitmap --include=*.c --include=*.py | sed 's/.*"WINNOW_/env /'
} | sed -nE 's/^(; )?([a-z0-9-]+) = .*/\2/p; s/^env (.*)/\L\1/p' | tr a-z- A-Z_ | sort -u | sed 's/.*/WINNOW_&=/')
[ ${#known[@]} -gt 60 ] || fail "only ${#known[@]} variables are known"
[ -z "$(strangers "${known[@]}")" ] || fail "a variable of ours is taken for a mistake: $(strangers "${known[@]}")"

# --check says what a start would, and starts nothing: the port is taken, and stays so.
winnowd --insecure-no-key
echo '* long-enough-for-a-key' >"$tmp/keys"
fine() { # option..
	[ "$("$d" --check "$@" 2>"$tmp/check.err")" = 'winnowd: these options are fine' ] || fail "--check $*: $(cat "$tmp/check.err")"
}
fine --listen "127.0.0.1:$PORT" --insecure-no-key
fine --key-file "$tmp/keys" --metrics no --datapath xdp --device no-such-device
WINNOW_MULTICAST=1 fine --insecure-no-key # as workers have it
printf '[winnowd]\nlisten = foo\n' >"$tmp/f.ini"
# shellcheck disable=SC2086 # several words
for wrong in "--config $tmp/f.ini --insecure-no-key" '--metrics foo --insecure-no-key' '--key-file /no/such' '--jobs-max 0 --insecure-no-key' \
	'--datapath warp --insecure-no-key' '--datapath xdp --insecure-no-key' '--multicast 10.0.0.0 --insecure-no-key' ''; do
	"$d" $wrong 2>"$tmp/start.err" && fail "winnowd $wrong ends with status 0"
	refuses 2 "^$(sed 's/[][\\.*^$]/\\&/g' "$tmp/start.err")$" "$d" --check $wrong
done
printf '[winnowd]\ncheck = yes\n' >"$tmp/g.ini"
refuses 2 'check is allowed on the command line only' "$d" --config "$tmp/g.ini"
WINNOW_CHECK=1 winnowd --insecure-no-key # which is for winnow bench

# Programs share a file: each knows the sections of the others.
{ "$BUILD/winnow" config dump && printf '[winnow]\nblock = 8\n'; } >"$tmp/all.ini" || fail "winnow config dump"
"$d" --config "$tmp/all.ini" --dump-config >/dev/null || fail "winnowd does not know the sections of winnow config dump"

# Help and version are no errors, and go to stdout.
"$d" --help | seen 'usage: winnowd' || fail "winnowd --help"
"$d" --version | seen '^winnowd [0-9]' || fail "winnowd --version"

# Started by name, it opens no object of the folder that its caller is in, but its own.
mkdir -p "$tmp/bin/winnow" "$tmp/lib/winnow"
echo 'a stranger' | tee "$tmp/bin/winnow-dpdk.so" "$tmp/bin/winnow/winnow-dpdk.so" >"$tmp/lib/winnow/winnow-dpdk.so"
here=$(realpath "$BUILD")
by_name=$(cd "$tmp/bin" && PATH=$here:$PATH command winnowd --version)
[ "$by_name" = "$("$here/winnowd" --version)" ] || fail "winnowd by name says: $by_name"
[ ! -e "$BUILD/winnow-dpdk.so" ] || [[ $by_name = *'dpdk with'* ]] || fail "winnowd finds no winnow-dpdk.so: $by_name"
(cd "$tmp/bin" && PATH=$here:$PATH command winnowd --insecure-no-key --datapath dpdk 2>&1 || true) | seen 'cannot open' &&
	fail "winnowd by name opens an object of the present folder"
"$BUILD/winnow" bench --help | seen -- '--density' || fail "winnow bench --help"
for command in "$d" "$BUILD/winnow "{bench,colocate,doctor,run,status,tune}; do
	# shellcheck disable=SC2086 # words
	[ "$($command --help | wc -l)" -le 45 ] || fail "$command --help: more than one screen"
done
[ "$("$BUILD/winnow" key | wc -c)" = 65 ] || fail "winnow key"
for mask in 022 077; do
	(umask $mask && "$BUILD/winnow" key >"$tmp/key.$mask" 2>"$tmp/key.err") || fail "winnow key into a file"
	[ "$(grep -c 'other users can read' "$tmp/key.err")" = $((mask == 022)) ] || fail "winnow key with umask $mask: $(cat "$tmp/key.err")"
done

# A full disk is said, too.
if "$BUILD/winnow" bench --local 1 --size 4K --iters 1 --warmup 0 --json >/dev/full 2>"$tmp/full.err"; then
	fail "bench on a full disk ends with status 0"
fi
grep -q 'cannot write' "$tmp/full.err" || fail "bench does not say that it cannot write: $(cat "$tmp/full.err")"
printf '#!/bin/sh\nexec "$@" >/dev/full\n' >"$tmp/full"
chmod +x "$tmp/full"
refuses 1 'cannot write' "$tmp/full" "$BUILD/winnow" key
refuses 2 'cannot write' "$tmp/full" "$BUILD/winnow" config dump run
for command in "$d" "$BUILD/winnow" "$BUILD/winnow run" "$BUILD/winnow bench" "$BUILD/winnow status"; do
	# shellcheck disable=SC2086 # two words
	refuses 2 'cannot write: No space left' "$tmp/full" $command --help
	# shellcheck disable=SC2086
	refuses 2 'cannot write: No space left' "$tmp/full" $command --version
done
refuses 2 'cannot write: No space left' "$tmp/full" "$BUILD/winnow" config --help
refuses 2 'cannot write: No space left' "$tmp/full" "$BUILD/winnow" key --help
# Its help names all commands that have options.
"$BUILD/winnow" config --help >"$tmp/config"
for name in $("$BUILD/winnow" config dump | sed -n 's/^\[\(.*\)\]$/\1/p'); do
	grep -qw "$name" "$tmp/config" || fail "winnow config --help does not name $name"
done
refuses 2 'cannot write' "$tmp/full" "$d" --dump-config
[ -n "${SAN:-}" ] || for few in 4 5 6 7; do # sanitizers need descriptors
	printf '#!/bin/sh\nulimit -n %s\nexec "$@"\n' $few >"$tmp/few"
	chmod +x "$tmp/few"
	refuses 1 'the limit of open files is too low' "$tmp/few" "$BUILD/winnow" run -- true
	refuses 1 'the limit of open files is too low' "$tmp/few" "$BUILD/winnow" colocate --hosts 127.0.0.1 -- true
done
echo "all refused"
