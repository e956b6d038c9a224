# shellcheck shell=bash
# debian.sh - where Debian's packages come from on this machine: for tests that need a Debian of their own, and for what is built
#
#   debian_codename        bookworm, trixie, ..
#   debian_sources SUITE   this machine's archive as a sources.list with that suite in place of its own, however apt's
#                          own sources are written (one line each, or deb822)
#   debian_unpack FOLDER ARCHITECTURE "PACKAGE.." OPTION..   these and what they depend on, unpacked into FOLDER for that processor:
#                          nothing of them runs, so nothing is configured. The options are mmdebstrap's
debian_codename() {
	(. /etc/os-release && echo "$VERSION_CODENAME")
}

debian_sources() {
	local own
	own=$(debian_codename)
	# shellcheck disable=SC2016 # apt's
	apt-get indextargets --format 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) main' \
		'Identifier: Packages' 'Component: main' | grep -E " $own(-updates|-security)? main$" | sort -u | sed "s/ $own/ $1/"
}

debian_unpack() {
	local codename
	codename=$(debian_codename)
	debian_sources "$codename" >"$1.list"
	mmdebstrap --quiet --variant=extract --architectures="$2" --include="${3// /,}" "${@:4}" "$codename" "$1" "$1.list"
	rm "$1.list"
}
