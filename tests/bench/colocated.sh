# shellcheck shell=bash
# colocated.sh - part of bench.sh: aggregators on the workers' own hosts against servers of their own, all links shaped alike
#
# 4 workers; "1", "2" and "4 apart": so many aggregators, each on a host of its own whose link is shaped as a worker's is;
# "4 beside": one on each worker's host, sharing its link. The bound is that of the busiest link, both ways apart.

# Bytes through the busiest port, in tensors, of N workers and A aggregators: docs/deploy.md derives it.
colocated_bound() { # where A d U: tensors
	python3 - "$@" <<'P'
import sys
where, a, d, u = sys.argv[1], *map(float, sys.argv[2:])
n = 4
if where == "apart":  # a worker sends d and receives U; an aggregator receives N d / A and sends, to a group, U / A
    print(max(d, u, n * d / a, u / a))
else:  # what a host's worker and its own aggregator say to each other crosses no link
    out = d * (n - 1) / n + u / n
    into = u * (n - 1) / n + d * (n - 1) / n
    print(max(out, into))
P
}

colocated_run() { # where A density file
	local i daemon list='' host at daemons=()
	for ((i = 0; i < $2; i++)); do
		host=w$i at=1
		[ "$1" = beside ] || host=a$((i + 1)) at=102
		list+=,10.77.0.$((i + at)):5555
		serve "$host" "${list##*,}" --insecure-no-key --metrics no
		daemons+=("$daemon")
	done
	workers 4 "$4" "${list#,}" --insecure-no-key --iters "$ITERS" --warmup 1 --check --size "$SIZE" --density "$3"
	stop "${daemons[@]}"
}

part_colocated() {
	echo
	echo "## Aggregators apart and beside the workers: 4 workers, every link $RATE, MTU 3498, seconds"
	local i d where a f row
	links_up 4 "$RATE" 3498
	for i in 1 2 3 4; do links_host "a$i" "10.77.0.$((i + 101))" "$RATE" 3498; done
	printf '%8s %7s %10s %10s %10s %10s\n' density union '1 apart' '2 apart' '4 apart' '4 beside'
	for d in 1 0.5 0.1 0.01; do
		row=
		for where in 'apart 1' 'apart 2' 'apart 4' 'beside 4'; do
			read -r where a <<<"$where"
			f=$raw/colocated-$where-$a-$d.json
			colocated_run "$where" "$a" "$d" "$f"
			row+=$(printf ' %10.4f' "$(awk "BEGIN { print $(value "$f" time_us.median) / 1e6 }")")
		done
		printf '%8s %7.3f%s\n' "$d" "$(value "$f" union)" "$row"
		row=
		for where in 'apart 1' 'apart 2' 'apart 4' 'beside 4'; do
			read -r where a <<<"$where"
			row+=$(printf ' %10.4f' "$(awk "BEGIN { print $(colocated_bound "$where" "$a" "$(value "$f" density)" "$(value "$f" union)") * $(numfmt --from=iec "$SIZE") * 8 / $(numfmt --from=si "${RATE_BITS}") }")")
		done
		printf '%16s%s\n' 'payload alone' "$row"
	done
	links_down
}
