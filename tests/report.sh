# shellcheck shell=bash
# report.sh - for the scripts that run tests: a line for each, and counts. Logs lie in $logs
#
# Exit status 0 passed, 77 skipped (its last line says why), anything else failed.
# shellcheck disable=SC2154
passed=0 failed=0 skipped=0
took=()

report() { # name status seconds [CPU seconds [aside]]: that it ran beside others, which takes it longer
	took+=("$3 $1 ${4:-0} ${5:-}")
	case $2 in
	0)
		echo "ok    $1 ($3 s${5:+, $5})"
		passed=$((passed + 1))
		;;
	77)
		echo "skip: $1: $(tail -n 1 "$logs/$1")"
		skipped=$((skipped + 1))
		;;
	*)
		echo "FAIL  $1 (exit status $2, $3 s); its last lines:"
		tail -n 25 "$logs/$1" | sed 's/^/      /'
		failed=$((failed + 1))
		;;
	esac
}

run() { # name seconds command..
	local name=$1 limit=$2 start=$SECONDS status
	shift 2
	timeout -k 10 "$limit" "$@" >"$logs/$name" 2>&1 </dev/null
	status=$?
	report "$name" $status $((SECONDS - start))
}

slowest() { # how many: of those that did not run aside, and of those that did; and what takes most CPU time. $logs/times has all
	local kind
	printf '%s\n' "${took[@]}" | sort -k3,3rn |
		awk 'BEGIN { print "seconds     CPU test" } { printf "%7d %7d %s %s\n", $1, $3, $2, $4 }' >"$logs/times"
	for kind in "" aside; do
		printf '%s\n' "${took[@]}" | awk -v kind="$kind" '$4 == kind' | sort -rn | head -n "$1" |
			awk -v head="slowest${kind:+, $kind}: " '{ printf "%s%s %d s", NR == 1 ? head : ", ", $2, $1 } END { if (NR) print "" }'
	done
	printf '%s\n' "${took[@]}" | sort -k3,3rn | awk -v most="$1" '{ all += $3 } NR <= most { list = list ", " $2 " " $3 " s" }
		END { printf "CPU time: %.0f s in all%s\n", all, list }'
}
