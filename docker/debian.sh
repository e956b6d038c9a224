# shellcheck shell=bash
# debian.sh - where Debian's packages come from on this machine, for tests that need a Debian of their own, and for arm64-root.sh
#
#   debian_codename        bookworm, trixie, ..
#   debian_sources SUITE   this machine's archive as a sources.list with that suite in place of its own, however apt's
#                          own sources are written (one line each, or deb822)
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
