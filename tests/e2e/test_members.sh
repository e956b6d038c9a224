#!/usr/bin/env bash
# Workers are killed, freeze, come and go, by seed; a trainer tells the others how to continue. No sum is wrong, and they need no long time.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
(umask 077 && printf 'trained a-key-of-that-job\n* another-key\n' >"$tmp/keys")
go() { # seed rounds workers bytes
	"${worker_side[@]}" env WINNOW_JOB=trained WINNOW_KEY_FILE="$tmp/keys" WINNOW_SILENCE=2s WINNOW_AGGREGATORS="$aggregators" \
		timeout 300 "$BUILD/tests/e2e/members" "$@" || fail "seed $1 with $aggregators"
}
winnowd --key-file "$tmp/keys" --log info
aggregators=$HOST:$PORT
one=$PORT
rounds=${MEMBERS_ROUNDS:-8}
go 1 "$rounds" 4 200000
go 2 "$rounds" 4 64
winnowd --key-file "$tmp/keys" --threads 2 --log info
aggregators=$aggregators,$HOST:$PORT
go 3 "$rounds" 4 1000000
for seed in 5 6 7; do go $seed 0 6 30000 self; done
go 4 "$rounds" 8 20000

# They help themselves while winnowd dies: the second of two for good, the first to be restarted, and workers with it.
for seed in ${CHAOS_SEEDS:-1 2 3}; do
	one_port=$(free_port) other_port=$(free_port)
	aggregators=127.0.0.1:$one_port,127.0.0.1:$other_port
	[ -z "${TWO_HOSTS:-}" ] || break # it starts winnowd beside the workers
	go "$seed" "$rounds" 6 30000 self "$one_port,$other_port" "$BUILD/winnowd" --threads 1 --key-file "$tmp/keys" --log error --metrics no
done
grep -q 'event=job_finished job=trained/[0-9]* .*has continued in another membership' "$tmp/winnowd-$one.log" || fail "winnowd does not say that members went on"
grep -q 'event=job_failed job=trained/[0-9]* code=lost' "$tmp/winnowd-$one.log" || fail "winnowd does not say that a member was lost"
