#!/usr/bin/env bash
# All of tests/python with Debian's python, against one winnowd on a free loopback port.
# no-sanitizers: Debian's python and torch are not built with them
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=$(realpath "${BUILD:-build}")
export BUILD
python=${PYTHON:-/usr/bin/python3} # another torch: PYTHON=venv/bin/python tests/e2e/test_python.sh

for module in numpy torch; do
	$python -c "import importlib.util as u, sys; sys.exit(u.find_spec('$module') is None)" 2>/dev/null || {
		echo "no python3-$module"
		exit 77
	}
done

# The tests' own settings, whatever the caller's environment says.
for name in $(compgen -e | grep -E '^(WINNOW_|RANK$|WORLD_SIZE$|MASTER_)' || true); do
	unset "$name"
done
port=$($python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export WINNOW_AGGREGATORS=127.0.0.1:$port WINNOW_LIBRARY=$BUILD/libwinnow.so PYTHONDONTWRITEBYTECODE=1

"$BUILD/winnowd" --listen "$WINNOW_AGGREGATORS" --insecure-no-key --threads 3 --log error &
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT
$python -m unittest discover -s tests/python -t tests/python -v
kill -0 $pid || {
	echo "winnowd ended meanwhile"
	exit 1
}
