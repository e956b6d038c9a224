#!/usr/bin/env bash
# winnowd without keys: workers that have one do not trust it, and ranks are checked all the same.
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key --job-bytes-max 200K
small=(--size 4K --iters 1 --warmup 0)
refuses 1 'runs with --insecure-no-key and cannot prove who it is' env WINNOW_KEY=some-long-key "$BUILD/winnow" bench --aggregators "127.0.0.1:$PORT" "${small[@]}"
refuses 1 'the job needs [0-9]+ bytes here, 204800 are allowed \(job-bytes-max\)' bench "${small[@]}" --insecure-no-key
echo "refused"
