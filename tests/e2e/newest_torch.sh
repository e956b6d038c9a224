# shellcheck shell=bash
# newest_torch.sh - after lib.sh, instead of python.sh: $python has the newest torch of PyPI, for CPUs
#
#   WINNOW_CACHE  where it is kept (default ~/.cache/winnow); 540 MB are downloaded when there is a newer one
#   pip_install NAME..  more of PyPI; --no-deps for what depends on torch, which depends on gigabytes of CUDA libraries
# Skips the test where PyPI cannot be reached and nothing is kept.
cache=${WINNOW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/winnow}
mkdir -p "$cache" || exit 1
PYTHON=$cache/torch/bin/python
[ -x "$PYTHON" ] || /usr/bin/python3 -m venv --without-pip "$cache/torch" || exit 1

pip_install() {
	flock "$cache" /usr/bin/python3 -m pip --python "$PYTHON" install -q --upgrade --disable-pip-version-check "$@"
}
torch_is() { echo "$cache"/torch/lib/python3*/site-packages/torch-*.dist-info; }

before=$(torch_is)
if ! pip_install --no-deps torch numpy filelock typing-extensions sympy mpmath networkx jinja2 markupsafe fsspec setuptools 2>"${tmp:?}/pip.log"; then
	[ -e "$before" ] || { echo "no torch from PyPI: $(tail -n 1 "$tmp/pip.log")" && exit 77; }
fi
made_by=$(cksum <tests/python/torch_without_cuda.py)
if [ "$before" != "$(torch_is)" ] || [ "$(cat "$cache/torch/whole" 2>/dev/null)" != "$made_by" ]; then
	rm -f "$cache/torch/whole"
	"$PYTHON" tests/python/torch_without_cuda.py "$(dirname "$(torch_is)")" || exit 1
	echo "$made_by" >"$cache/torch/whole"
fi
. tests/e2e/python.sh
$python -c 'import torch; print("torch", torch.__version__)' || exit 1
