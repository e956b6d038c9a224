#!/usr/bin/env bash
# Programs with capabilities that their caller lacks: winnowd and the library load no code that he names, and do not hear his
# environment. The same programs without capabilities do both, or this would test nothing.
# no-sanitizers: they are libraries that such a program does not load
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || { echo "it takes root to give a program capabilities" && exit 77; }
mkdir "$tmp/bin" "$tmp/out"
chmod a+rx "$tmp" "$tmp/bin" && chmod a+rwx "$tmp/out"
cp "$BUILD/winnowd" "$BUILD/tests/e2e/secure" "$tmp/bin/"
[ ! -f "$BUILD/winnow-dpdk.so" ] || cp "$BUILD/winnow-dpdk.so" "$tmp/bin/"
cp "$tmp/bin/winnowd" "$tmp/bin/winnowd-caps"
cp "$tmp/bin/secure" "$tmp/bin/secure-caps"
# What a stranger would have loaded: it says with which capabilities it runs.
cat >"$tmp/loaded.c" <<'END'
#include <stdio.h>
#include <string.h>
__attribute__((constructor)) static void say(void)
{
	FILE *in = fopen("/proc/self/status", "r"), *out = fopen(WHERE, "a");
	char line[200];

	while (in != NULL && out != NULL && fgets(line, sizeof(line), in) != NULL)
		if (strncmp(line, "CapEff", 6) == 0)
			fputs(line, out);
	if (out != NULL)
		fclose(out);
}
END
# DPDK loads nothing from beneath a folder that all may write to.
there=$(mktemp -d /run/winnow-test.XXXXXX)
trap 'stop_all || bad=1; rm -rf "$there"; [ -z "${bad:-}" ] || exit 1' EXIT
chmod a+rx "$there"
gcc -shared -fPIC -DWHERE="\"$tmp/out/ran\"" -o "$there/loaded.so" "$tmp/loaded.c" || fail "loaded.c does not compile"
for program in winnowd-caps secure-caps; do
	setcap cap_net_admin=ep "$tmp/bin/$program" || { echo "no file capabilities can be set in $tmp" && exit 77; }
done
chmod -R a+rX "$tmp/bin"
nobody() { timeout 20 setpriv --reuid=65534 --regid=65534 --clear-groups env -C "$tmp/out" "$@"; }
nobody "$tmp/bin/secure-caps" >"$tmp/one" || { echo "no file capabilities hold in $tmp" && exit 77; }
port=$(free_port)
ran() { [ -s "$tmp/out/ran" ]; }

# ---- winnowd ----
if [ -f "$tmp/bin/winnow-dpdk.so" ]; then
	dpdk=(--listen "127.0.0.1:$port" --insecure-no-key --datapath dpdk --eal "-d $there/loaded.so --no-huge --no-pci -m 64")
	nobody "$tmp/bin/winnowd" "${dpdk[@]}" >/dev/null 2>&1 # DPDK may end it for another reason, once it has loaded that
	ran || fail "DPDK does not load what is named; the test is blind"
	rm "$tmp/out/ran"
	for more in "" --check; do
		# shellcheck disable=SC2086 # or nothing
		refuses 2 'does not open winnow-dpdk.so.* file capabilities or set-user-ID' nobody "$tmp/bin/winnowd-caps" "${dpdk[@]}" $more
		ran && fail "code of another user runs with $(cat "$tmp/out/ran")"
	done
fi
# Without a key in its environment it does not start; told so on the command line it does, and says which rights it keeps.
refuses 2 'no job key.*a program with file capabilities reads no environment' nobody env WINNOW_KEY=long-enough-a-key "$tmp/bin/winnowd-caps" --listen "127.0.0.1:$port"
refuses 2 'no job key.*to try things out, --insecure-no-key$' nobody "$tmp/bin/winnowd" --listen "127.0.0.1:$port"
nobody env WINNOW_THREADS=none WINNOW_CONFIG=/no/such "$tmp/bin/winnowd-caps" --insecure-no-key --listen "127.0.0.1:$port" --metrics no --check >"$tmp/one" 2>&1 ||
	fail "the environment is heard: $(cat "$tmp/one")"
[ "$(nobody env WINNOW_THREAD=3 "$tmp/bin/winnowd-caps" --insecure-no-key --check 2>&1)" = 'winnowd: these options are fine' ] || fail "it has a word about a variable that it does not read"
# Another user's rights altogether.
cp "$tmp/bin/winnowd" "$tmp/bin/winnowd-suid"
chmod u+s "$tmp/bin/winnowd-suid"
refuses 1 'set-user-ID or set-group-ID: remove that' nobody "$tmp/bin/winnowd-suid" --insecure-no-key --config /etc/shadow

# ---- the library ----
printf '[winnow]\nblock = 64\n' >"$tmp/bin/winnow.ini"
settings=(WINNOW_EAL=--mine WINNOW_JOB=mine WINNOW_CONFIG="$tmp/bin/winnow.ini" WINNOW_CUDA_PLUGIN="$there/loaded.so" WINNOW_NCCL="$there/loaded.so")
nobody env "${settings[@]}" "$tmp/bin/secure" >"$tmp/one" || fail "the library fails"
grep -qx 'eal --mine, job mine, block 64' "$tmp/one" || fail "the library does not hear its environment: $(cat "$tmp/one")"
ran || fail "WINNOW_CUDA_PLUGIN is not loaded; the test is blind: $(cat "$tmp/one")"
rm "$tmp/out/ran"
nobody env "${settings[@]}" "$tmp/bin/secure-caps" >"$tmp/one" || fail "the library fails"
grep -qx 'eal -, job default, block 256' "$tmp/one" || fail "the library hears another user's environment: $(cat "$tmp/one")"
grep -q 'does not open winnow-cuda.so' "$tmp/one" || fail "it does not say why there is no GPU: $(cat "$tmp/one")"
ran && fail "code of another user runs with $(cat "$tmp/out/ran")"
echo "nothing is loaded for strangers"
