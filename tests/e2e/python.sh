# shellcheck shell=bash
# python.sh - for tests that run Python: one that has what they need, an environment that is the tests' own
#
#   need_modules NAME..  skips the test where $python lacks one of them; PYTHON=venv/bin/python for another torch
#   run_modules N NAME..  modules of tests, in N processes: each takes every Nth of them, for to import PyTorch takes longer than
#                        many a module does. None may be skipped: nobody would see it
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
	local i at processes=$1 names=("${@:2}") these lanes=()
	for ((i = 0; i < processes && i < ${#names[@]}; i++)); do
		these=()
		for ((at = i; at < ${#names[@]}; at += processes)); do these+=("${names[at]}"); done
		$python -m unittest -v "${these[@]}" >"$tmp/modules-$i.out" 2>&1 &
		lanes+=($!) pids+=($!)
	done
	wait "${lanes[@]}" # for all: who fails at once ends winnowd, for which the others would wait
	for i in "${!lanes[@]}"; do
		cat "$tmp/modules-$i.out"
		grep -qx OK "$tmp/modules-$i.out" || fail "$(tail -n 30 "$tmp/modules-$i.out")" # not "OK (skipped=1)"
	done
}
