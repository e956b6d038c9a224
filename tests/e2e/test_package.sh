#!/usr/bin/env bash
# make install and make deb: what is in them runs from there; man pages and bash's completion know every option that --help-all has.
# release: it needs images, packages or a booted system
# no-sanitizers: a package of a sanitizer's build is nobody's
# aside: it packs
. "$(dirname "$0")/lib.sh"
version=$("$BUILD/winnowd" --version | cut -d' ' -f2)
docker/install-packages.sh deb >/dev/null || fail "dpkg-dev"
docker/package/deb.sh "$BUILD" "$version" >"$tmp/deb.out" 2>"$tmp/deb.err" || fail "deb.sh"
deb=$(cat "$tmp/deb.out")
root=$tmp/root
dpkg -x "$deb" "$root" || fail "dpkg cannot unpack $deb"

# ---- it runs from where it was put ----
field() { dpkg-deb -f "$deb" "$1"; }
[ "$(field Package) $(field Version) $(field Architecture)" = "winnow $version $(dpkg --print-architecture)" ] || fail "control: $(dpkg-deb -f "$deb")"
# Debian 13 has some of them under names that end in t64: with 64-bit times.
for library in libssl3 libuv1 libmicrohttpd12 libbpf1 libc6; do
	grep -qE "(^|, )$library(t64)? \(" <<<"$(field Depends)" || fail "no $library in Depends: $(field Depends)"
done
libraries=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
ldd "$root/usr/bin/winnow" | grep -E "libwinnow.so.[0-9]+ => $root/usr/bin/../lib/[a-z0-9_-]+/libwinnow.so" >/dev/null || fail "winnow takes another libwinnow: $(ldd "$root/usr/bin/winnow")"
# Suggestions are what DPDK and a GPU need, and no machine has anyway.
for library in libc6 libgcc-s1 libstdc++6 libssl3; do
	grep -qF "$library" <<<"$(field Suggests)" && fail "$library in Suggests: $(field Suggests)"
done
[ "$(field Homepage)$(field Maintainer)" = 'The Winnow authors <winnow@localhost>' ] || fail "who has made it: $(dpkg-deb -f "$deb")"
# Plugins are found from the program and from the library.
[ ! -e "$BUILD/winnow-dpdk.so" ] || {
	"$root/usr/bin/winnowd" --version | seen 'dpdk with DPDK' || fail "winnowd finds no winnow-dpdk.so: $("$root/usr/bin/winnowd" --version)"
	"$root/usr/bin/winnow" bench --insecure-no-key --datapath dpdk --device no-such-device --aggregators 127.0.0.1:1 2>&1 | seen 'in this build' &&
		fail "the library finds no winnow-dpdk.so"
}
[ "$(find "$root" -name '*.a' -o -name '*.pyc' -o -perm /022 ! -type l | wc -l)" = 0 ] || fail "what has no place in a package: $(find "$root" -perm /022)"
grep -q "^ExecStart=/usr/bin/winnowd " "$root/usr/lib/systemd/system/winnowd.service" || fail "the unit starts something else"
"$root/usr/bin/winnow" key >"$tmp/keys"
# The file that the unit names, with the key where the package puts it.
sed "s|/etc/winnow/keys|$tmp/keys|" "$root/etc/winnow/winnow.ini" >"$tmp/winnow.ini"
BUILD=$root/usr/bin winnowd --config "$tmp/winnow.ini"
WINNOW_KEY_FILE=$tmp/keys "$root/usr/bin/winnow" bench --aggregators "127.0.0.1:$PORT" --size 256K --iters 2 --check >"$tmp/bench.out" || fail "bench of the package"
if [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
	WINNOW_KEY_FILE=$tmp/keys WINNOW_AGGREGATORS=127.0.0.1:$PORT WINNOW_LIBRARY=$libraries/libwinnow.so \
		PYTHONPATH=$root/usr/lib/python3/dist-packages /usr/bin/python3 -B -c '
import numpy, winnow
assert winnow.__file__.startswith("'"$root"'"), winnow.__file__
with winnow.Comm() as comm:
    x = numpy.arange(1000, dtype="float32")
    assert (comm.allreduce(x) == x).all()' || fail "the package's Python module"
fi
# Another prefix, as people without a package manager have it.
make -s install BUILD="$BUILD" PREFIX=/opt/winnow DESTDIR="$tmp/other" >"$tmp/install.out" 2>"$tmp/install.err" || fail "make install"
grep -q "^ExecStart=/opt/winnow/bin/winnowd " "$tmp/other/opt/winnow/lib/systemd/system/winnowd.service" || fail "PREFIX is not in the unit"
"$tmp/other/opt/winnow/bin/winnow" --version >/dev/null || fail "winnow under another prefix"

# The example of docs/reference.md, as it says, against the package.
# shellcheck disable=SC2016 # sed's
sed -n '/^```c$/,/^```$/p' docs/reference.md | sed '1d;$d' >"$tmp/sum.c"
export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$libraries/pkgconfig
[ "$(pkg-config --modversion winnow)" = "$version" ] || fail "pkg-config says $(pkg-config --modversion winnow)"
# shellcheck disable=SC2046 # lists of options
cc -Wall -Wextra -Werror "$tmp/sum.c" $(pkg-config --cflags --libs winnow) -o "$tmp/sum" || fail "the example in C does not compile"
for rank in 0 1; do
	start sum$rank env LD_LIBRARY_PATH="$libraries" WINNOW_KEY_FILE="$tmp/keys" WINNOW_AGGREGATORS="127.0.0.1:$PORT" WINNOW_JOB=sums \
		RANK=$rank WORLD_SIZE=2 "$tmp/sum"
done
for rank in 0 1; do
	expect sum$rank 20 0
	[ "$(cat "$tmp/sum$rank.out")" = "rank $rank of 2: 1, 1" ] || fail "the example in C says $(cat "$tmp/sum$rank.out")"
done

# ---- the same for 64-bit Arm, made here ----
need_arm
make -s CROSS="$cross" deb >"$tmp/arm-deb.out" 2>"$tmp/arm-deb.err" || fail "make CROSS=$cross deb"
arm_deb=$(tail -n 1 "$tmp/arm-deb.out") arm_root=$tmp/arm
dpkg -x "$arm_deb" "$arm_root" || fail "dpkg cannot unpack $arm_deb"
all_for_arm "$arm_root"
[ "$(dpkg-deb -f "$arm_deb" Package) $(dpkg-deb -f "$arm_deb" Version) $(dpkg-deb -f "$arm_deb" Architecture)" = "winnow $version arm64" ] ||
	fail "control: $(dpkg-deb -f "$arm_deb")"
same() { # what command, with the package as its last argument: prints the same of both
	diff <("${@:2}" "$deb" | sort) <("${@:2}" "$arm_deb" | sort) >"$tmp/differ" || fail "$1 of the package for Arm: $(cat "$tmp/differ")"
}
needs_of() { dpkg-deb -f "$1" Depends Suggests | tr , '\n' | sed 's/ (.*//; s/^[A-Z][a-z]*://; s/ //g' | sort -u; }
files_of() { dpkg-deb -c "$1" | grep -v winnow-cuda.so | sed -E 's|( ).* [0-9]{4}-[0-9-]+ [0-9:]+ |\1|; s|[a-z0-9_]+-linux-gnu|ARCH|'; }
same "what it depends on" needs_of
same "the files" files_of
diff -r --exclude=changelog.gz "$root/usr/share" "$arm_root/usr/share" >"$tmp/differ" || fail "pages of the package for Arm: $(head -n 5 "$tmp/differ")"
[ "$("${qemu[@]}" "$arm_root/usr/bin/winnowd" --version)" = "$("$root/usr/bin/winnowd" --version)" ] || fail "winnowd for Arm is another one"

# ---- man pages and completion against --help ----
commands=$("$BUILD/winnow" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 6 ] || fail "winnow's commands: $commands"
options_of() { "$@" --help-all | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p'; }
page() { # name.section command..
	local file=$root/usr/share/man/man${1##*.}/$1.gz option
	[ -s "$file" ] || fail "no man page $1"
	zcat "$file" | groff -man -Tascii -ww >"$tmp/page" 2>"$tmp/page.err" || fail "groff: $1"
	[ ! -s "$tmp/page.err" ] || fail "groff about $1: $(cat "$tmp/page.err")"
	sed -i 's/.\x08//g; s/\x1b\[[0-9;]*m//g' "$tmp/page"
	for option in $(options_of "${@:2}"); do
		grep -qE -- "^ +$option( |\$|=)" "$tmp/page" || fail "$1 does not have $option"
	done
}
page winnowd.8 "$BUILD/winnowd"
grep -q SIGHUP "$tmp/page" || fail "winnowd.8 says nothing of SIGHUP"
page winnow.1 "$BUILD/winnow"
for command in $commands; do
	page "winnow-$command.1" "$BUILD/winnow" "$command"
	zcat "$root/usr/share/man/man1/winnow.1.gz" | seen "winnow\\\\-$command " || fail "winnow.1 does not name winnow-$command"
done

. "$root/usr/share/bash-completion/completions/winnow"
complete_it() { # words..: what is offered for the last
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_winnow_complete "$1"
	printf '%s\n' "${COMPREPLY[@]}" | sort | xargs
}
offers() { # expected, words..
	local got
	got=$(complete_it "${@:2}")
	[ "$got" = "$(tr -s ' ' '\n' <<<"$1" | sort | xargs)" ] || fail "completion of '${*:2}': '$got', want '$1'"
}
offers "$(options_of "$BUILD/winnowd" | xargs) --help --help-all --version" "$BUILD/winnowd" --
offers "$commands" "$BUILD/winnow" ""
offers "bench" "$BUILD/winnow" be
for command in bench status doctor; do
	offers "$(options_of "$BUILD/winnow" "$command" | xargs) --help --help-all --version" "$BUILD/winnow" "$command" --
done
offers "native" "$BUILD/winnowd" --xdp-mode n
offers "error info warn" "$BUILD/winnowd" --log ""
offers "lo" "$BUILD/winnowd" --device lo
offers "$tmp/keys" "$BUILD/winnowd" --key-file "$tmp/key"
offers "auto bf16 f32 fixed16 fixed32 fixed8" "$BUILD/winnow" bench --wire ""
offers "" "$BUILD/winnow" bench --size ""
# What is offered for a value, the program takes.
for value in $(complete_it "$BUILD/winnow" bench --dtype ""); do
	"$BUILD/winnow" bench --dtype "$value" --dump-config >/dev/null || fail "bench does not take --dtype $value"
done
echo "$(basename "$deb"): $(($(stat -c %s "$deb") / 1024)) KB"
