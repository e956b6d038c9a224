#!/usr/bin/env bash
# Every command of docs/start.md but `make demo`, which test_demo.sh runs, as it is printed: on one machine, then on two
# hosts that are network namespaces with the page's addresses.
# release: it makes a wheel and an environment of Python's
# no-sanitizers: the wheel is built without
# shellcheck disable=SC2015,SC2016 # a chain that may fail anywhere; Markdown's quotes
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || {
	echo "needs root, for two hosts"
	exit 77
}
export PATH=/usr/bin:$PATH # Debian's python3
lines() { # chapter: the commands of its indented blocks
	awk -v chapter="## $1" '/^## / { inside = index($0, chapter) == 1 } inside && /^    / { print substr($0, 5) }' docs/start.md
}
sed -n '/^```python$/,/^```$/p' docs/start.md | sed '1d;$d' >"$tmp/train.py"
[ "$(wc -l <"$tmp/train.py")" -gt 15 ] || fail "the page has no script"
lines 2 | grep -v apt-get | sed "s|build/wheel|$BUILD/wheel|; s|packages env|packages $tmp/env|; s|^\. env|. $tmp/env|" >"$tmp/install"
grep -q "make wheel" "$tmp/install" || fail "the page does not make a wheel: $(cat "$tmp/install")"
mkdir -p build && flock build/wheel.lock bash -e "$tmp/install" >"$tmp/out" 2>&1 || fail "step 2: $(tail -n 5 "$tmp/out")"

(cd "$tmp" && . "$tmp/env/bin/activate" && bash -e <(cd "$OLDPWD" && lines 4 | grep winnow)) >"$tmp/out" 2>"$tmp/err" || fail "step 4: $(tail -n 5 "$tmp/err")"
for line in $(lines 4 | grep '^\[' | tr ' ' _); do
	seen -xF "${line//_/ }" <"$tmp/out" || fail "step 4 prints $(cat "$tmp/out")"
done

# Two hosts, joined by a cable.
a=start-a-$$ b=start-b-$$
namespaces+=("$a" "$b")
ip netns add "$a" && ip netns add "$b" && ip -n "$a" link add eth0 type veth peer name eth0 netns "$b" || fail "hosts"
for side in "$a 10.0.0.1" "$b 10.0.0.2"; do
	read -r host address <<<"$side"
	ip -n "$host" link set lo up && ip -n "$host" addr add "$address/24" dev eth0 && ip -n "$host" link set eth0 up || fail "host $host"
done
on() { # host commands: in the environment, where the script and the key are; the page tells what to do about the host's name
	(cd "$tmp" && . env/bin/activate && export GLOO_SOCKET_IFNAME=eth0 && exec ip netns exec "$1" bash -ec "$2")
}
lines 5 >"$tmp/five"
on "$a" "$(grep 'winnow key' "$tmp/five")" || fail "no key"
on "$a" "exec $(grep ^winnowd "$tmp/five")" 2>"$tmp/winnowd-start.log" &
pids+=($!)
await 'event=ready' "$tmp/winnowd-start.log"
on "$b" "$(grep ^export "$tmp/five" | tail -n 2); $(grep RANK=1 "$tmp/five")" >"$tmp/one" 2>&1 &
other=$!
on "$a" "$(grep ^export "$tmp/five" | head -n 2); $(grep RANK=0 "$tmp/five")" >"$tmp/zero" 2>&1 || fail "step 5: $(tail -n 5 "$tmp/zero")"
wait "$other" || fail "step 5, host 2: $(tail -n 5 "$tmp/one")"
for out in zero one; do
	seen -xF "$(grep '^loss' "$tmp/five")" <"$tmp/$out" || fail "step 5 prints $(cat "$tmp/$out")"
done
