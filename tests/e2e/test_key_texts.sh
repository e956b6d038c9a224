#!/usr/bin/env bash
# Keys and settings as they are written: by echo, editors, and Secrets of Kubernetes made with `echo KEY | base64`. What stands
# around a key belongs to none, in a file and in the environment alike; what stands in it does.
. "$(dirname "$0")/lib.sh"
unset WINNOW_AGGREGATORS WINNOW_JOB RANK WORLD_SIZE WINNOW_KEY WINNOW_KEY_FILE WINNOW_INSECURE_NO_KEY
umask 077
mark=$'\xef\xbb\xbf'
tiny=(--size 4K --iters 1 --warmup 0 --join-timeout 5s)
joins() { # what, NAME=VALUE..: the environment of a worker that is let in
	env "${@:2}" "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}" >"$tmp/joins.out" 2>"$tmp/joins.err" || fail "$1: $(cat "$tmp/joins.err")"
}
stays_out() { # pattern, NAME=VALUE..
	refuses 1 "$1" env "${@:2}" "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}"
}

# A key with '#' in it is whole wherever it stands, and no part of it opens the job.
key='Sunshine#x7Qp-vR2m-kk93-Zt8w'
printf '# our keys\n%s # until the summer\n' "$key" >"$tmp/keys"
winnowd --key-file "$tmp/keys" --join-timeout 5s
joins "the whole key" WINNOW_KEY="$key"
stays_out "wrong key for job 'bench'" WINNOW_KEY=Sunshine
echo "Sunshine#another-tail" >"$tmp/other"
stays_out "wrong key for job 'bench'" WINNOW_KEY_FILE="$tmp/other"

# What people and programs put around it, at either end, as a Secret has echo's newline; tests/unit/test_job_keys.c has all that they may.
printf '%s%s\t# mine\r\n' "$mark" "$key" >"$tmp/written"
joins "a file with what an editor writes" WINNOW_KEY_FILE="$tmp/written"
one=$PORT daemon=$DAEMON
winnowd --key-file "$tmp/written" --join-timeout 5s
joins "winnowd with what an editor writes" WINNOW_KEY="$key"$'\n'
winnowd_stop
PORT=$one DAEMON=$daemon
stays_out 'WINNOW_KEY: there is a blank in the key' WINNOW_KEY="bench $key"
stays_out 'WINNOW_KEY: there is a line end, or another control character' WINNOW_KEY="$key"$'\n'"$key"
stays_out "WINNOW_KEY: there is no key; '#' begins a comment" WINNOW_KEY="# $key"
printf '%s' "$key" | iconv -t UTF-16 >"$tmp/wide"
stays_out 'key file .*wide: it is in UTF-16, save it as UTF-8' WINNOW_KEY_FILE="$tmp/wide"
refuses 2 'key file .*wide: it is in UTF-16' "$BUILD/winnowd" --check --key-file "$tmp/wide"

# A file that all may read: said once, and the worker joins.
printf '%s\n' "$key" >"$tmp/open"
joins "a file of its own" WINNOW_KEY_FILE="$tmp/open"
[ ! -s "$tmp/joins.err" ] || fail "it warns of a file with mode 600: $(cat "$tmp/joins.err")"
chmod 644 "$tmp/open"
joins "a file of all" WINNOW_KEY_FILE="$tmp/open"
[ "$(cat "$tmp/joins.err")" = "winnow: every user of this machine may read the key file $tmp/open: chmod o-r $tmp/open" ] || fail "of a file with mode 644: $(cat "$tmp/joins.err")"

# The other settings: a newline behind, a space after a comma.
env WINNOW_KEY="$key" WINNOW_AGGREGATORS="127.0.0.1:$PORT"$'\n' WINNOW_JOB=$'lines\n' RANK=$'0\n' WORLD_SIZE=$'1\r\n' "$BUILD/winnow" bench "${tiny[@]}" \
	>"$tmp/joins.out" 2>"$tmp/joins.err" || fail "settings with line ends: $(cat "$tmp/joins.err")"
one=$PORT
winnowd --key-file "$tmp/keys"
env WINNOW_KEY="$key" WINNOW_AGGREGATORS=" 127.0.0.1:$one, 127.0.0.1:$PORT "$'\n' "$BUILD/winnow" bench "${tiny[@]}" \
	>"$tmp/joins.out" 2>"$tmp/joins.err" || fail "a list with blanks: $(cat "$tmp/joins.err")"
refuses 2 "RANK is '0[?]1': want a whole number" env RANK=$'0\n1' "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${tiny[@]}"
refuses 1 "job name 'two[?]lines'" env WINNOW_KEY="$key" "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" --job $'two\nlines' "${tiny[@]}"
echo "the key is what stands there"
