#!/usr/bin/env bash
# The package on a Debian of its own, with a real systemd: installed, enabled, reloaded, watched, upgraded while a job runs,
# removed and purged; nothing is left but the user. lintian finds nothing that docker/package/lintian-overrides does not explain.
# release: it needs images, packages or a booted system
# no-sanitizers: a package of a sanitizer's build is nobody's
. "$(dirname "$0")/lib.sh"
. tests/e2e/podman.sh
docker/install-packages.sh deb >/dev/null || fail "dpkg-dev"
version=$("$BUILD/winnowd" --version | cut -d' ' -f2)
mkdir "$tmp/debs"
docker/package/deb.sh "$BUILD" "$version" >"$tmp/deb.out" 2>"$tmp/deb.err" || fail "deb.sh"
mv "$(cat "$tmp/deb.out")" "$tmp/debs/$version.deb"
# The newer one has another winnow.ini.
dpkg-deb -R "$tmp/debs/$version.deb" "$tmp/newer"
sed -i "s/^Version: .*/Version: $version+1/" "$tmp/newer/DEBIAN/control"
echo '; something new' >>"$tmp/newer/etc/winnow/winnow.ini"
dpkg-deb --root-owner-group -Zgzip -b "$tmp/newer" "$tmp/debs/$version+1.deb" >"$tmp/build.out" || fail "dpkg-deb"

base_image
group_image lintian
group_image service

# ---- lintian ----
pod run --rm --network none -v "$tmp/debs:/debs:ro" winnow-lintian lintian --allow-root --fail-on error,warning "/debs/$version.deb" >"$tmp/lintian.log" 2>"$tmp/lintian.err" ||
	fail "lintian finds fault"
[ ! -s "$tmp/lintian.log" ] || fail "lintian finds fault"

# ---- a machine with systemd ----
systemd=$(pod run --rm --network none winnow-service systemctl --version | awk 'NR == 1 { print $2 }')
if [ "$systemd" -ge 256 ] && [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ]; then
	echo "systemd $systemd needs cgroups v2, and this machine has v1"
	exit 77
fi
networks+=("$net")
pod network create "$net" >/dev/null || fail "podman network create"
container machine --privileged --systemd=always --no-healthcheck -v "$tmp/debs:/debs:ro" winnow-service /lib/systemd/systemd
on() { pod exec "$net-machine" "$@"; }
quietly() { on "$@" >"$tmp/step.out" 2>"$tmp/step.err" || fail "$*"; }
property() { on systemctl show -P "$1" winnowd; }
journal() { on journalctl --no-pager -o cat -u winnowd >"$tmp/journal.log" && grep -qE "$1" "$tmp/journal.log"; }
booted() { on systemctl is-system-running 2>/dev/null | seen -E 'running|degraded'; }
soon 30 booted || fail "systemd does not start: $(pod logs "$net-machine" 2>&1 | tail -n 3)"
apt() { quietly env DEBIAN_FRONTEND=noninteractive apt-get "$@"; }
files() { on find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache \) -prune -o -print | sort; }
# What the package depends on comes first: it is not the package's.
apt update -q
mapfile -t needs < <(dpkg-deb -f "$tmp/debs/$version.deb" Depends | tr , '\n' | sed 's/ *(.*//; s/ //g')
apt install -qy --no-install-recommends "${needs[@]}"
files >"$tmp/before"

apt install -qy --no-install-recommends "/debs/$version.deb"
[ "$(on stat -c '%a %U %G' /etc/winnow /etc/winnow/keys | xargs)" = "750 root winnow 640 root winnow" ] || fail "rights in /etc/winnow: $(on ls -la /etc/winnow)"
on systemctl is-active -q winnowd && fail "it runs though nobody has enabled it"
quietly systemctl enable --now winnowd
key=$(on cat /etc/winnow/keys)
bench_on() { on winnow bench --aggregators 127.0.0.1:5555 --key-file /etc/winnow/keys "$@" --check; }
quietly winnow status
bench_on --size 1M --iters 3 >"$tmp/bench.out" 2>"$tmp/bench.err" || fail "bench of the package"

# ---- what the unit says holds ----
pid=$(property MainPID)
state=$(on grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$pid/status" | tr -s '\t ' ' ' | cut -d' ' -f1,2 | xargs)
[ "$state" = "Uid: $(on id -u winnow) CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2" ] || fail "the service's process: $state"
quietly systemctl reload winnowd
journal 'event=reloaded key_file=/etc/winnow/keys keys=1' || fail "reload does not reload"
# Frozen, it is killed and started again by the watchdog, here after 2 s.
quietly sh -c 'mkdir -p /run/systemd/system/winnowd.service.d && printf "[Service]\nWatchdogSec=2\nRestartSec=0\n" >/run/systemd/system/winnowd.service.d/fast.conf'
quietly systemctl daemon-reload
quietly systemctl restart winnowd
pid=$(property MainPID)
signal() { quietly sh -c "kill -$1 $2"; }
signal STOP "$pid"
restarted() { [ "$(property NRestarts)" = 1 ] && on winnow status --quiet 2>/dev/null; }
soon 20 restarted || fail "the watchdog does not restart it: $(on systemctl status winnowd)"
journal 'Watchdog timeout' || fail "systemd says nothing of a watchdog"
quietly rm -r /run/systemd/system/winnowd.service.d
quietly systemctl daemon-reload

# ---- upgraded while a job runs: drains, the job ends well; the operator's winnow.ini stays ----
quietly sed -i 's/^listen = .*/listen = 127.0.0.1:5555/' /etc/winnow/winnow.ini
quietly systemctl restart winnowd
pid=$(property MainPID)
start job bench_on --job upgrade --size 1M --iters 5000 --silence 120s
# Once it runs a worker is stopped, at once, so that it is not done too soon.
# shellcheck disable=SC2016 # the inner shell's
worker=$(on timeout 20 sh -c 'until winnow status | grep -q "upgrade  *running"; do sleep 0.1; done
	worker=$(grep -lz "^bench$" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3 | head -n 1)
	kill -STOP "$worker" && echo "$worker"') || fail "the job does not run"
start upgrade on env DEBIAN_FRONTEND=noninteractive apt-get install -qy -o Dpkg::Options::=--force-confold "/debs/$version+1.deb"
soon 30 journal 'event=drain signal=15 jobs=1' || fail "the upgrade does not drain: $(tail -n 3 "$tmp/upgrade.out")"
signal CONT "$worker"
expect job 60 0
expect upgrade 60 0
journal 'event=job_finished job=upgrade' || fail "the job did not end well"
# shellcheck disable=SC2016 # dpkg-query's
quietly dpkg-query -W -f '${Version}' winnow
[ "$(cat "$tmp/step.out")" = "$version+1" ] || fail "not upgraded"
[ "$(property ActiveState)" = active ] || fail "it does not run after the upgrade"
[ "$(property MainPID)" != "$pid" ] || fail "the new one does not run"
journal 'listen=127.0.0.1:5555' || fail "the operator's winnow.ini is gone"
[ "$(on cat /etc/winnow/keys)" = "$key" ] || fail "an upgrade makes another key"
bench_on --size 1M --iters 2 >"$tmp/bench.out" 2>"$tmp/bench.err" || fail "bench after the upgrade"
quietly dpkg --verify winnow
# The base image takes no documentation.
[ "$(grep -cvE ' c /etc/winnow/winnow.ini$|^missing +/usr/share/(doc|man)/' "$tmp/step.out")" = 0 ] || fail "dpkg --verify: $(cat "$tmp/step.out")"

# ---- the XDP fast path, by the drop-in that the documentation names ----
quietly mkdir -p /etc/systemd/system/winnowd.service.d
pod cp docker/systemd/winnowd-xdp.conf "$net-machine:/etc/systemd/system/winnowd.service.d/" >"$tmp/cp.out" 2>&1 || fail "podman cp"
quietly sed -i 's/^listen = .*/listen = 0.0.0.0:5555/; s/^; device = .*/device = eth0/' /etc/winnow/winnow.ini
quietly systemctl daemon-reload
quietly systemctl restart winnowd
journal 'event=ready .*xdp="(native|generic)' || fail "no XDP with the drop-in: $(tail -n 3 "$tmp/journal.log")"
[ "$(on grep -c '^Cap\(Eff\|Prm\):[[:space:]]*0*$' "/proc/$(property MainPID)/status")" = 2 ] || fail "it keeps capabilities"
quietly rm -r /etc/systemd/system/winnowd.service.d

# ---- away ----
apt remove -qy winnow
on sh -c 'cat /proc/[0-9]*/comm' 2>/dev/null | seen -x winnowd && fail "it runs without its package"
[ "$(property ActiveState)" = inactive ] || fail "removed, it is $(property ActiveState)"
on test -s /etc/winnow/keys || fail "removed, not purged, and the keys are gone"
apt install -qy "/debs/$version+1.deb"
[ "$(on cat /etc/winnow/keys)" = "$key" ] || fail "a second installation makes another key"
apt purge -qy winnow
files >"$tmp/after"
# sysusers makes back-ups of the files that name users; who owns files must not lose his name.
diff "$tmp/before" "$tmp/after" | grep '^[<>]' | grep -vE '^> /etc/(passwd|group|shadow|gshadow)-$|^> /etc/\.pwd\.lock$' >"$tmp/left.log"
[ ! -s "$tmp/left.log" ] || fail "purged, it leaves something behind"
on id winnow >/dev/null || fail "the user is gone: what it owned is anybody's who comes next"
echo "installed, upgraded, removed, purged"
