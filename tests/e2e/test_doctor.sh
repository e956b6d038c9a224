#!/usr/bin/env bash
# winnow doctor on this machine: text and JSON agree, each finding that is not well says how to mend it, odd Pythons are
# survived, and nothing is changed. test_status_xdp.sh has the network.
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
winnowd --insecure-no-key

machine() { # what doctor looks at, less what others change meanwhile
	sysctl net.core vm.nr_hugepages 2>/dev/null | grep -v -e '_cookie' -e somaxconn
	ip -d link show lo
	cat /sys/devices/system/clocksource/clocksource0/current_clocksource
}
machine >"$tmp/before"
"$w" doctor --aggregator "127.0.0.1:$PORT" --insecure-no-key >"$tmp/doctor.out" || fail "doctor: $(cat "$tmp/doctor.out")"
machine >"$tmp/after"
cmp -s "$tmp/before" "$tmp/after" || fail "the machine has changed: $(diff "$tmp/before" "$tmp/after")"
neighbours=$(cat /proc/sys/net/ipv4/neigh/default/unres_qlen_bytes 2>/dev/null || true)
for name in kernel cpu clock 'huge pages' capabilities 'receive buffer' 'send buffer' 'udp offload' 'xdp program' aggregator mtu \
	multicast libwinnow gpu nccl ${neighbours:+neighbours}; do
	grep -qE "^(ok|-|warn) +$name  +[^ ]" "$tmp/doctor.out" || fail "nothing about $name: $(cat "$tmp/doctor.out")"
done
grep -qE "^kernel|^ok +kernel .*$(uname -r)" "$tmp/doctor.out" || fail "another kernel"
"$w" doctor --aggregator "127.0.0.1:$PORT,127.0.0.1:1" --insecure-no-key --json >"$tmp/doctor.json" && fail "doctor has not failed"
python3 - "$tmp/doctor.json" <<-'END' || fail "doctor --json: $(cat "$tmp/doctor.json")"
	import json, sys
	said = json.load(open(sys.argv[1]))
	assert said["status"] == "fail" and len(said["checks"]) > 12
	for check in said["checks"]:
	    assert check["state"] in ("ok", "absent", "warn", "fail") and check["text"] and check["name"], check
	    assert check["state"] not in ("warn", "fail") or check["fix"] or check["name"].startswith("xdp"), check
	    assert check["state"] != "ok" or not check["fix"], check
	assert [c["state"] for c in said["checks"] if c["name"] == "aggregator"] == ["ok", "fail"]
END

# Without rights, as most workers run: not a failure. nobody must be able to reach the program.
if [ "$(id -u)" = 0 ]; then
	mkdir "$tmp/bin"
	cp "$BUILD/winnow" "$BUILD"/libwinnow.so* "$tmp/bin/"
	chmod -R a+rX "$tmp"
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all "$tmp/bin/winnow" doctor --python no \
		>"$tmp/doctor.out" || fail "doctor as nobody: $(cat "$tmp/doctor.out")"
	grep -qE '^- +capabilities +without CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN' "$tmp/doctor.out" || fail "capabilities: $(cat "$tmp/doctor.out")"
	grep -qE '^- +xdp program +not tried' "$tmp/doctor.out" || fail "xdp program: $(cat "$tmp/doctor.out")"
fi

# Pythons: none, one that says what a terminal would obey, one with our package, one that stays after it has spoken.
python() { # pattern, program
	"$w" doctor --python "$2" >"$tmp/doctor.out" || fail "doctor --python $2: exit status $?"
	grep -qE -- "$1" "$tmp/doctor.out" || fail "doctor --python $2: no /$1/ in: $(cat "$tmp/doctor.out")"
	! grep -q $'\033' "$tmp/doctor.out" || fail "doctor lets escapes through"
}
python '^- +python +cannot run /no/such' /no/such
printf '#!/bin/sh\nprintf "python \\033[2J\\n- ImportError torch\\nwinnow /somewhere\\n"\n' >"$tmp/odd"
chmod +x "$tmp/odd"
python '^ok +python +python \?\[2J' "$tmp/odd"
grep -qE '^- +torch +ImportError torch$' "$tmp/doctor.out" || fail "torch: $(cat "$tmp/doctor.out")"
grep -qE '^ok +winnow package +winnow /somewhere$' "$tmp/doctor.out" || fail "package: $(cat "$tmp/doctor.out")"
[ -n "${SAN:-}" ] || PYTHONPATH=client/python python '^ok +winnow package +winnow .*client/python/winnow' /usr/bin/python3

# Without --python: the environment that is active, whether by its variable or by the PATH; what it lacks is said with its name.
if /usr/bin/python3 -m venv --without-pip "$tmp/venv" 2>/dev/null; then
	mkdir "$tmp/broken"
	echo 'raise OSError("no library")' >"$tmp/broken/winnow.py"
	active() { # pattern, variable=value..
		env -u VIRTUAL_ENV -u PYTHONPATH "${@:2}" "$w" doctor >"$tmp/doctor.out" || fail "doctor in an environment: exit status $?"
		grep -qE -- "$1" "$tmp/doctor.out" || fail "doctor with ${*:2}: no /$1/ in: $(cat "$tmp/doctor.out")"
	}
	active "^ok +python +python 3[.0-9]+[^ ]*, $tmp/venv/bin/python" VIRTUAL_ENV="$tmp/venv"
	grep -qE "^- +winnow package +ModuleNotFoundError" "$tmp/doctor.out" || fail "a package from nowhere: $(cat "$tmp/doctor.out")"
	grep -qF "> $tmp/venv/bin/python -m pip install" "$tmp/doctor.out" || fail "nothing to mend it: $(cat "$tmp/doctor.out")"
	active "^ok +python +python 3[.0-9]+[^ ]*, $tmp/venv/bin/python" PATH="$tmp/venv/bin:$PATH"
	active '^ok +python ' VIRTUAL_ENV=/no/such
	active '^warn +winnow package +OSError no library$' VIRTUAL_ENV="$tmp/venv" PYTHONPATH="$tmp/broken"
fi
# A deployment in which jobs have keys of their own. The job itself does not notice: not while it runs, not while it begins.
printf 'alice %s\nbob %s\n' "$("$w" key)" "$("$w" key)" >"$tmp/keys"
winnowd --key-file "$tmp/keys"
treat() { "$w" doctor --python no --aggregator "127.0.0.1:$PORT" --key-file "$tmp/keys" "$@" >"$tmp/doctor.out" 2>&1; }
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
refuses 2 "'alice/7' is no job's name" "$w" doctor --job alice/7

refuses 2 'no option --devise; did you mean --device' "$w" doctor --devise x
echo "looked at, and left as it was"
