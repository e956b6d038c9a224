# Completion of winnowd and winnow in bash; the words come from --help-all, so they are those of the program at hand.
# shellcheck shell=bash

_winnow_complete() {
	local command=("$1") first=1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} help left
	COMPREPLY=()
	if [ "${1##*/}" = winnow ]; then
		if [ "$COMP_CWORD" = 1 ]; then
			mapfile -t COMPREPLY < <(compgen -W "$("$1" --help 2>/dev/null | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')" -- "$word")
			return
		fi
		command+=("${COMP_WORDS[1]}")
		first=2
	fi
	help=$("${command[@]}" --help-all 2>/dev/null) || return
	# "  --name VALUE   what it is": what VALUE is called says what to offer for it.
	left=$(sed -n "s|^  $before \([A-Za-z][^ ]*\) .*|\1|p" <<<"$help")
	if [ "$COMP_CWORD" -gt "$first" ] && [[ $before == --* ]]; then
		case $left in
		FILE) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
		IFACE) mapfile -t COMPREPLY < <(compgen -W "$(cd /sys/class/net && echo *)" -- "$word") ;;
		*[a-z]*"|"*) mapfile -t COMPREPLY < <(compgen -W "${left//|/ }" -- "$word") ;;
		NAME | MODE | LEVEL | FORM | TYPE | OP | HOW) # "auto, udp or xdp; ..."
			left=$(sed -n "s/^  $before [A-Z]* *//p" <<<"$help" | sed -E 's/ \([^)]*\)//g; s/[;:[].*//; s/, or |, | or /\n/g; s/ *$//' | grep -E '^[a-z0-9]+$')
			mapfile -t COMPREPLY < <(compgen -W "$left" -- "$word")
			;;
		esac
		[ -z "$left" ] || return
	fi
	if [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' <<<"$help") --help --help-all --version" -- "$word")
	fi
}

complete -o filenames -F _winnow_complete winnow winnowd
