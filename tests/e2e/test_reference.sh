#!/usr/bin/env bash
# docs/options.md, metrics.md and api.md are what `make docs` writes from this code.
# waits: it looks at one winnowd
. "$(dirname "$0")/lib.sh"
/usr/bin/python3 docs/reference.py "$BUILD" "$tmp" || fail "docs/reference.py"
for page in options metrics api; do
	diff -u "docs/$page.md" "$tmp/$page.md" >"$tmp/diff" || fail "docs/$page.md is stale: run make docs
$(head -n 20 "$tmp/diff")"
done
# Every variable that the code asks for is on the page.
git grep -hoE '(getenv\(|environ(\.get\(|\[)|flag_of\(|variable\()"WINNOW_[A-Z_]+' -- client aggregator bitmap kernels | grep -oE 'WINNOW_[A-Z_]+' | sort -u |
	while read -r name; do
		option=$(tr 'A-Z_' 'a-z-' <<<"${name#WINNOW_}")
		seen -e "\`$name\`" -e "\`--$option\`" <docs/options.md || fail "docs/options.md lacks $name"
	done
