# shellcheck shell=bash
# python.sh - for tests that run Python: one that has what they need, an environment that is the tests' own
#
#   need_modules NAME..  skips the test where $python lacks one of them; PYTHON=venv/bin/python for another torch
#   run_modules N NAME.. in tests/python: modules of tests, N at a time (lanes.py). None may be skipped: nobody would see it
#   BUILD, WINNOW_LIBRARY  become absolute; what a caller's job would say to workers is gone
python=${PYTHON:-/usr/bin/python3}
need_modules() {
	local module
	for module; do
		$python -c "import importlib.util as u, sys; sys.exit(u.find_spec('$module') is None)" 2>/dev/null || {
			echo "no python3-$module"
			exit 77
		}
	done
}
for name in $(compgen -e | grep -E '^(WINNOW_|RANK$|WORLD_SIZE$|MASTER_)' || true); do
	unset "$name"
done
BUILD=$(realpath "${BUILD:-build}")
export BUILD PYTHON=$python WINNOW_LIBRARY=$BUILD/libwinnow.so PYTHONDONTWRITEBYTECODE=1
run_modules() {
	$python lanes.py "$@" >"$tmp/lanes.out" 2>&1 &
	pids+=($!)
	wait $! || fail "$(cat "$tmp/lanes.out")"
	cat "$tmp/lanes.out"
}
