#!/usr/bin/env bash
# release: it builds and installs a wheel
# aside: it calls make
# no-sanitizers: what is preloaded would come before them
# One install: a wheel into an empty environment, without a network, brings winnow, winnowd and the library with all that they
# load; winnow run starts a job there whose results are right; the tag says what the files need.
. "$(dirname "$0")/lib.sh"
for module in venv ensurepip pip setuptools wheel numpy; do
	/usr/bin/python3 -c "import $module" 2>/dev/null || {
		echo "skip: no python3-$module"
		exit 77
	}
done
mkdir -p build
exec 8>build/wheel.lock && flock 8 # test_start.sh makes a wheel, too
rm -f build/wheel/*.whl
make -s wheel >"$tmp/make.log" 2>&1 || fail "make wheel: $(tail -n 20 "$tmp/make.log")"
cp build/wheel/*.whl "$tmp" && exec 8>&-
wheel=$(ls "$tmp"/*.whl)
[ "$(wc -w <<<"$wheel")" = 1 ] || fail "not one wheel: $wheel"

# In a network namespace of its own, where that is allowed: nothing can be fetched.
apart=()
unshare -rn true 2>/dev/null && apart=(unshare -rn)
/usr/bin/python3 -m venv "$tmp/venv" || fail "no environment"
"${apart[@]}" "$tmp/venv/bin/pip" install -q --no-index "$wheel" >"$tmp/pip.log" 2>&1 || fail "pip install: $(cat "$tmp/pip.log")"
package=$(cd / && env -i "$tmp/venv/bin/python" -c 'import winnow, pathlib; print(pathlib.Path(winnow.library_path).parent)') || fail "import winnow"
case $package in "$(realpath "$tmp")"/venv/*) ;; *) fail "the library is another one: $package" ;; esac

# All that they load lies there, or is what a manylinux machine has; none needs a newer glibc than the tag says.
for file in "$package/winnow" "$package/winnowd" "$package"/*.so; do
	foreign=$(env -i ldd "$file" | awk '$2 == "=>" { print $1, $3 }' | grep -v " $package/" |
		grep -vE '^(lib(c|m|dl|rt|pthread|resolv|util|anl|gcc_s|stdc\+\+|z)\.so|ld-linux|linux-vdso)' || true)
	[ -z "$foreign" ] || fail "$(basename "$file") loads what is the machine's: $foreign"
done
tagged() { # wheel folder processor: the tag says which glibc its files need
	local minor
	minor=$(readelf -WV "$2/winnow" "$2/winnowd" "$2"/*.so* | grep -oE 'GLIBC_2\.[0-9]+' | cut -d. -f2 | sort -n | tail -n 1)
	[[ $1 == *-py3-none-manylinux_2_${minor}_$3.whl ]] || fail "the files need glibc 2.$minor: $1"
}
tagged "$wheel" "$package" "$(uname -m)"
[ "$(find "$package/licenses" -type f | wc -l)" -gt 5 ] || ! command -v dpkg >/dev/null || fail "licences are missing"

# The commands, as a new user types them: nothing of this repository is in the environment.
mkdir "$tmp/lent" "$tmp/work"
ln -s "$(/usr/bin/python3 -c 'import numpy, os; print(os.path.dirname(numpy.__file__))')" "$tmp/lent/numpy"
cat >"$tmp/work/train.py" <<'END'
import os, numpy, winnow
with winnow.Comm() as comm:
    gradient = numpy.zeros(100000, numpy.float32)
    gradient[comm.rank * 256 : comm.rank * 256 + 512] = comm.rank + 1
    comm.allreduce(gradient)
    want = numpy.zeros(100000, numpy.float32)
    want[:256], want[256:512], want[512:768] = 1, 3, 2
    assert comm.world == 2 and (gradient == want).all(), gradient[:768]
    open(f"right.{comm.rank}", "w").write(winnow.library_path)
END
user() { (cd "$tmp/work" && env -i HOME="$tmp" PATH="$tmp/venv/bin:/usr/bin:/bin" VIRTUAL_ENV="$tmp/venv" PYTHONPATH="$tmp/lent" "$@"); }
user winnow run -n 2 -- python train.py >"$tmp/run.log" 2>&1 || fail "winnow run: $(cat "$tmp/run.log")"
for rank in 0 1; do
	[ "$(cat "$tmp/work/right.$rank")" = "$package/libwinnow.so" ] || fail "rank $rank has not done its work: $(cat "$tmp/run.log")"
done
version=$(user winnow --version)
[[ $(user winnowd --version) == "winnowd ${version##* }"* ]] || fail "winnowd and winnow differ: $(user winnowd --version), $version"
user winnow bench --local 2 --size 1M --iters 2 --check >"$tmp/bench.log" 2>&1 || fail "winnow bench: $(cat "$tmp/bench.log")"
got=0
user winnow bench --no-such 2>/dev/null || got=$?
[ $got = 2 ] || fail "the exit status of winnow is $got"

# A package without programs takes the machine's, and does not call itself.
mkdir "$tmp/bare" "$tmp/elsewhere"
cp -r client/python/winnow "$tmp/bare/"
cp build/wheel/{winnow,libwinnow.so} build/wheel/lib*.so.* "$tmp/elsewhere/"
bare() { env -i PATH="$tmp/venv/bin:$1" WINNOW_LIBRARY="$package/libwinnow.so" PYTHONPATH="$tmp/bare" "$tmp/venv/bin/python" -c 'from winnow import _programs; _programs.winnow()' --version; }
bare "$tmp/elsewhere" | seen '^winnow ' || fail "the machine's program is not found"
bare /bin 2>"$tmp/bare.err" && fail "a program from nowhere"
grep -q 'built without the programs: install the wheel' "$tmp/bare.err" || fail "without programs: $(cat "$tmp/bare.err")"
# The wheel for 64-bit Arm, made here: the same files, which pip installs on that processor and Python uses there.
need_arm
rm -f "$arm"/wheel/*.whl
make -s CROSS="$cross" wheel >"$tmp/make.log" 2>&1 || fail "make CROSS=$cross wheel: $(tail -n 20 "$tmp/make.log")"
arm_wheel=$(ls "$arm"/wheel/*.whl)
contents() { python3 -m zipfile -l "$1" | awk 'NR > 1 { print $1 }' | grep -v winnow-cuda.so; }
contents_differ=$(diff <(contents "$wheel") <(contents "$arm_wheel")) || fail "the wheel for Arm has other files: $contents_differ"
ln -s "$("$tmp/venv/bin/python" -c 'import pip, os; print(os.path.dirname(pip.__file__))')" "$tmp/pip"
python=("${qemu[@]}" "$PWD/$arm/root/usr/bin/python3")
on_arm() { (cd "$tmp/work" && env -i HOME="$tmp" PYTHONPATH="$tmp:$tmp/arm" "$@"); }
on_arm "${python[@]}" -m pip install -q --no-index --target "$tmp/arm" "$PWD/$arm_wheel" >"$tmp/pip.log" 2>&1 || fail "pip on Arm: $(cat "$tmp/pip.log")"
all_for_arm "$tmp/arm/winnow"
tagged "$arm_wheel" "$tmp/arm/winnow" aarch64
winnowd --insecure-no-key
on_arm WINNOW_INSECURE_NO_KEY=1 "${python[@]}" -c 'import sys, winnow
with winnow.Comm(aggregators=sys.argv[1], job="arm", rank=0, world=1) as comm:
    print(winnow.library_path, comm.world)' "127.0.0.1:$PORT" >"$tmp/arm.out" 2>"$tmp/arm.err" || fail "Python on Arm"
[ "$(cat "$tmp/arm.out")" = "$tmp/arm/winnow/libwinnow.so 1" ] || fail "Python on Arm: $(cat "$tmp/arm.out")"
[ "$(on_arm "${qemu[@]}" "$tmp/arm/winnow/winnowd" --version)" = "$(user winnowd --version)" ] || fail "winnowd for Arm is another one"

echo "one install: $(basename "$wheel"), $(stat -c %s "$wheel") bytes"
