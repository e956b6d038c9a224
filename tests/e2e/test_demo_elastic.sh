#!/usr/bin/env bash
# make demo-elastic, small: a worker and the second winnowd are killed, the first one is restarted, another worker joins; training continues to the same loss.
# no-sanitizers: Debian's python and torch are not built with them
# release: it trains; test_python.sh has the parts
. "$(dirname "$0")/lib.sh"
. tests/e2e/python.sh
need_modules numpy torch matplotlib
command -v bible >/dev/null || {
	echo "no bible-kjv"
	exit 77
}
timeout 280 "$python" client/python/demo/elastic.py --build "$BUILD" --out "$tmp" --steps 40 >"$tmp/elastic.out" 2>"$tmp/elastic.err" || fail "status $?"
for text in 'worker 3 is killed: .* 1 step(s) repeated, 3 workers' 'the second winnowd is killed: .* 3 workers' 'the first winnowd is restarted: .* 3 workers' 'a fifth worker joins: .* 4 workers' '^loss at the end'; do
	grep -q "$text" "$tmp/elastic.out" || fail "no line '$text': $(cat "$tmp/elastic.out")"
done
[ "$(head -c 8 "$tmp/elastic.png" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "elastic.png is no picture"
