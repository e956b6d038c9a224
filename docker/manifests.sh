#!/usr/bin/env bash
# manifests.sh FOLDER - the chart with its values as they are, as plain manifests for kubectl
set -euo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. docker/kubernetes/helm.sh
mkdir -p "$1"
render() { # FILE WHAT..
	"$helm" docker/kubernetes/render.py docker/kubernetes/chart "${@:2}" >"$tmp/made" 2>"$tmp/says" || {
		cat "$tmp/says" >&2
		exit 1
	}
	mv "$tmp/made" "$1"
	echo "$1"
}
render "$1/winnow.yaml"
render "$1/worker-deployment.yaml" workers
