#!/usr/bin/env bash
# The process group and the hook with the newest torch that PyPI has: Debian's is from 2022. All of tests/python runs so:
# PYTHON=~/.cache/winnow/torch/bin/python tests/e2e/test_python.sh
# no-sanitizers: PyPI's torch is not built with them
# release: it downloads PyTorch, and is long
. "$(dirname "$0")/lib.sh"
. tests/e2e/newest_torch.sh
winnowd --insecure-no-key --threads 3
export WINNOW_AGGREGATORS=$HOST:$PORT
{
	pip_install --no-deps accelerate lightning lightning-utilities peft pytorch-lightning torchft torchmetrics transformers &&
		pip_install opentelemetry-api opentelemetry-exporter-otlp-proto-http opentelemetry-sdk &&
		pip_install aiohttp huggingface_hub packaging psutil pyyaml regex requests safetensors tokenizers tqdm typer
} 2>"$tmp/pip.log" || echo "no newer packages: $(tail -n 1 "$tmp/pip.log")" # the tests say what is missing
export RECIPES="With the hook,With torch 2,With other packages" INTERRUPTS=6
cd tests/python || exit 1
# shellcheck disable=SC2086 # a pattern
mapfile -t modules < <(basename -s .py test_${PYTHON_TESTS:-newest_*}.py)
[ -n "${PYTHON_TESTS:-}" ] || modules=(test_recipes "${modules[@]}" test_group test_works test_strides test_ddp test_sparse_ddp test_local_steps test_interrupts)
run_modules 2 "${modules[@]}" # they wait for each other's processes about half of the time
kill -0 "$DAEMON" || fail "winnowd ended meanwhile"
