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
rm -f build/wheel/*.whl
make -s wheel >"$tmp/make.log" 2>&1 || fail "make wheel: $(tail -n 20 "$tmp/make.log")"
wheel=$(ls build/wheel/*.whl)
[ "$(wc -w <<<"$wheel")" = 1 ] || fail "not one wheel: $wheel"

# In a network namespace of its own, where that is allowed: nothing can be fetched.
apart=()
unshare -rn true 2>/dev/null && apart=(unshare -rn)
/usr/bin/python3 -m venv "$tmp/venv" || fail "no environment"
"${apart[@]}" "$tmp/venv/bin/pip" install -q --no-index "$wheel" >"$tmp/pip.log" 2>&1 || fail "pip install: $(cat "$tmp/pip.log")"
package=$(cd / && env -i "$tmp/venv/bin/python" -c 'import winnow, pathlib; print(pathlib.Path(winnow.library_path).parent)') || fail "import winnow"
case $package in "$(realpath "$tmp")"/venv/*) ;; *) fail "the library is another one: $package" ;; esac

# All that they load lies there, or is what a manylinux machine has; none needs a newer glibc than the tag says.
newest=0
for file in "$package/winnow" "$package/winnowd" "$package"/*.so; do
	foreign=$(env -i ldd "$file" | awk '$2 == "=>" { print $1, $3 }' | grep -v " $package/" |
		grep -vE '^(lib(c|m|dl|rt|pthread|resolv|util|anl|gcc_s|stdc\+\+|z)\.so|ld-linux|linux-vdso)' || true)
	[ -z "$foreign" ] || fail "$(basename "$file") loads what is the machine's: $foreign"
done
for file in "$package/winnow" "$package/winnowd" "$package"/*.so*; do
	minor=$(readelf -WV "$file" | grep -oE 'GLIBC_2\.[0-9]+' | cut -d. -f2 | sort -n | tail -n 1)
	[ "${minor:-0}" -le "$newest" ] || newest=$minor
done
[[ $wheel == *-py3-none-manylinux_2_${newest}_$(uname -m).whl ]] || fail "the files need glibc 2.$newest: $wheel"
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
echo "one install: $(basename "$wheel"), $(stat -c %s "$wheel") bytes"
