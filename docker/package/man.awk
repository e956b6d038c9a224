# man.awk - a man page of what --help-all prints: usage, paragraphs, options in groups, examples
#
#   winnowd --help-all | awk -v name=winnowd -v section=8 -v version=0.1.0 -v what="one line" -f man.awk
function roff(text) {
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	gsub(/'/, "\\(aq", text)
	sub(/^\./, "\\\\\\&.", text)
	return text
}
BEGIN {
	printf ".TH %s %s \"\" \"winnow %s\" \"Winnow\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", toupper(name), section, version, name, roff(what)
}
NR == 1 {
	sub(/^usage: /, "")
	printf ".nf\n%s\n.fi\n", roff($0)
	next
}
heading == "OPTIONS" && /^[a-z]+:$/ && $0 != "examples:" { # a group
	printf ".SS %s\n", toupper(substr($0, 1, 1)) substr($0, 2, length($0) - 2)
	next
}
/^[a-z]+( \(.*\))?:$/ { # a heading
	heading = toupper($1)
	sub(/:$/, "", heading)
	printf "%s.SH %s\n", (verbatim ? ".fi\n" : ""), heading
	verbatim = 0
	if (index($0, "(")) {
		sub(/^[a-z]+ \(/, "")
		sub(/\):$/, "")
		printf "%s.\n", roff(toupper(substr($0, 1, 1)) substr($0, 2))
	}
	next
}
heading ~ /^(OPTIONS|COMMANDS)$/ && /^  / {
	split($0, part, /  +/)
	left = part[2]
	right = substr($0, index($0, left) + length(left))
	sub(/^ +/, "", right)
	printf ".TP\n.B %s\n%s\n", roff(left), roff(right)
	next
}
heading == "EXAMPLES" && NF {
	if (!verbatim)
		print ".nf"
	verbatim = 1
	sub(/^  /, "")
	print roff($0)
	next
}
heading == "" && NF {
	heading = "DESCRIPTION"
	print ".SH DESCRIPTION"
}
!NF {
	if (heading != "EXAMPLES" && heading != "")
		print ".PP"
	if (heading == "COMMANDS")
		heading = "DONE"
	next
}
{
	print roff($0)
}
END {
	if (verbatim)
		print ".fi"
}
