#!/usr/bin/env bash
# winnow doctor on this machine: text and JSON agree, each finding that is not well says how to mend it, jobs do not notice
# it, and nothing is changed. test_status_xdp.sh has the network, tests/unit/test_doctor.c other machines.
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
winnowd --insecure-no-key

machine() { # what doctor looks at, less what others change meanwhile
	sysctl net.core 2>/dev/null | grep -v -e '_cookie' -e somaxconn
	ip -d link show lo
}
machine >"$tmp/before"
"$w" doctor --aggregators "127.0.0.1:$PORT" --insecure-no-key >"$tmp/doctor.out" || fail "doctor: $(cat "$tmp/doctor.out")"
machine >"$tmp/after"
cmp -s "$tmp/before" "$tmp/after" || fail "the machine has changed: $(diff "$tmp/before" "$tmp/after")"
neighbours=$(cat /proc/sys/net/ipv4/neigh/default/unres_qlen_bytes 2>/dev/null || true)
for name in kernel cpu capabilities 'receive buffer' 'send buffer' aggregator mtu multicast ${neighbours:+neighbours}; do
	grep -qE "^(ok|-|warn) +$name  +[^ ]" "$tmp/doctor.out" || fail "nothing about $name: $(cat "$tmp/doctor.out")"
done
grep -qE "^kernel|^ok +kernel .*$(uname -r)" "$tmp/doctor.out" || fail "another kernel"
"$w" doctor --aggregators "127.0.0.1:$PORT,127.0.0.1:1" --insecure-no-key --json >"$tmp/doctor.json" && fail "doctor has not failed"
python3 - "$tmp/doctor.json" <<-'END' || fail "doctor --json: $(cat "$tmp/doctor.json")"
	import json, sys
	said = json.load(open(sys.argv[1]))
	assert said["status"] == "fail" and len(said["checks"]) > 8
	for check in said["checks"]:
	    assert check["state"] in ("ok", "absent", "warn", "fail") and check["text"] and check["name"], check
	    assert check["state"] not in ("warn", "fail") or check["fix"] or check["name"] == "xdp", check
	    assert check["state"] != "ok" or not check["fix"], check
	assert [c["state"] for c in said["checks"] if c["name"] == "aggregator"] == ["ok", "fail"]
END

# A site works through its parent, and says when that is what fails.
parent=$PORT parent_pid=$DAEMON
winnowd --insecure-no-key --metrics no --parent "127.0.0.1:$parent" --site rack1
"$w" doctor --aggregators "127.0.0.1:$PORT" --insecure-no-key >"$tmp/doctor.out" || fail "doctor at a site: $(cat "$tmp/doctor.out")"
kill -KILL "$parent_pid"
"$w" doctor --aggregators "127.0.0.1:$PORT" --insecure-no-key >"$tmp/doctor.out" && fail "doctor at a site without a parent"
grep -A 1 "could not join within 5.0 s: waiting for the parent 127.0.0.1:$parent to answer" "$tmp/doctor.out" | grep -q '> this is a site: start its parent' ||
	fail "doctor at a site without a parent: $(cat "$tmp/doctor.out")"

# Without rights, as most workers run: not a failure. nobody must be able to reach the program.
if [ "$(id -u)" = 0 ]; then
	mkdir "$tmp/bin"
	cp "$BUILD/winnow" "$BUILD"/libwinnow.so* "$tmp/bin/"
	chmod -R a+rX "$tmp"
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all "$tmp/bin/winnow" doctor \
		>"$tmp/doctor.out" || fail "doctor as nobody: $(cat "$tmp/doctor.out")"
	grep -qE '^- +capabilities +not all of CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN' "$tmp/doctor.out" || fail "capabilities: $(cat "$tmp/doctor.out")"
fi

# A program without vector instructions.
WINNOW_ISA=scalar "$w" doctor >"$tmp/doctor.out" || fail "doctor with WINNOW_ISA: $(cat "$tmp/doctor.out")"
grep -qE '^warn +cpu .*uses scalar: without AVX2 and F16C' "$tmp/doctor.out" || fail "cpu: $(cat "$tmp/doctor.out")"

# A deployment in which jobs have keys of their own. The job itself does not notice: not while it runs, not while it begins.
printf 'alice %s\nbob %s\n' "$("$w" key)" "$("$w" key)" >"$tmp/keys"
winnowd --key-file "$tmp/keys"
treat() { "$w" doctor --aggregators "127.0.0.1:$PORT" --key-file "$tmp/keys" "$@" >"$tmp/doctor.out" 2>&1; }
treat && fail "doctor needs no key of a job"
for said in "has no key for job 'doctor-" '> .*--job NAME'; do
	grep -q -- "$said" "$tmp/doctor.out" || fail "doctor without --job: $(cat "$tmp/doctor.out")"
done
start early bench --job alice --rank 0 --world 2 --size 64K --iters 2 --check --key-file "$tmp/keys"
sleep 0.5
treat --job alice || fail "doctor --job: $(cat "$tmp/doctor.out")"
grep -qE 'joined as alice/doctor-[0-9]+; 1 MB summed' "$tmp/doctor.out" || fail "doctor --job: $(cat "$tmp/doctor.out")"
start late bench --job alice --rank 1 --world 2 --size 64K --iters 2 --check --key-file "$tmp/keys"
expect early 20 0
expect late 20 0
steady alice "WINNOW_KEY_FILE=$tmp/keys"
treat --job alice || fail "doctor --job beside a job that runs: $(cat "$tmp/doctor.out")"
steady_ends alice
refuses 2 "job is 'alice/7'" "$w" doctor --job alice/7

refuses 2 'no option --devise; did you mean --device' "$w" doctor --devise x
echo "looked at, and left as it was"
