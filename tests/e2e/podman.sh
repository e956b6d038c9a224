# shellcheck shell=bash
# podman.sh - for tests of images, after lib.sh: podman with a store of its own, a base image made of the packages of this machine's Debian, our images
#
#   pod ARG..        podman; its containers, images and networks are in $BUILD/containers, nobody else's
#   image NAME TAG ARG..  builds docker/NAME.Dockerfile; says size and seconds. Layers of an earlier run serve again
#   image NAME TAG "${platform[@]}" linux/arm64  the same for that platform
#   image_for_both NAME TAG  the same for x86-64 and 64-bit Arm, under one name; in $tmp/arm is the root of the one for Arm
#   group_image NAME  an image winnow-NAME of Debian with packages.txt's group NAME
#   debian_program NAME   where it is: installed, or unpacked from the package prometheus, which would start a service if it were installed
#   container NAME ARG..  runs one in the background, named $net-NAME, gone at the end; network=ns:PATH puts it into a namespace
#   bpf_profile FILE the engine's seccomp profile, with bpf() for those who have CAP_BPF, as newer engines have it by themselves
#   ready NAME       waits until winnowd in it serves
#   ended NAME SECONDS    its exit status, once it has ended; what it said is in $tmp/NAME.out and .err
# No registry is asked: the image that our Dockerfiles begin with is made here, under the same name.
. docker/debian.sh
[ "$(id -u)" = 0 ] || {
	echo "needs root, for podman and network namespaces"
	exit 77
}
tries=5 pause=0.2 # each look takes podman as long
store=$PWD/$BUILD/containers
mkdir -p "$store"
docker/install-packages.sh container >"$tmp/apt.out" 2>"$tmp/apt.err" || fail "packages: $(tail -n 1 "$tmp/apt.err")"
# Limits above our own would need CAP_SYS_RESOURCE; runc, unlike crun, takes any mixture of cgroups v1 and v2.
cat >"$tmp/containers.conf" <<E
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
E
# Podman 5 warns of cgroups v1 at each call.
export PODMAN_IGNORE_CGROUPSV1_WARNING=1
export CONTAINERS_CONF=$tmp/containers.conf
cat >"$tmp/podman" <<E
#!/bin/sh
exec /usr/bin/podman --root $store/storage --runroot $store/run --network-config-dir $tmp/networks "\$@"
E
chmod +x "$tmp/podman"
mkdir -p "$tmp/networks"
started=()
networks=()
pod() { "$tmp/podman" "$@"; }
stop_containers() {
	local name passed=$?
	for name in "${started[@]}"; do pod rm -f -t 0 "$name"; done >/dev/null 2>&1
	for name in "${networks[@]}"; do pod network rm -f "$name"; done >/dev/null 2>&1
	pod umount --all >/dev/null 2>&1
	umount "$store/storage/overlay" "$store"/run/* 2>/dev/null
	(exit $passed)
	stop_all
}
trap 'stop_containers || exit 1' EXIT

debian=$(debian_codename)
base=debian:$debian-slim
base_image() {
	if ! pod image exists "docker.io/library/$base"; then
		debian_sources "$debian" >"$tmp/base.list"
		mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
			--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt=force-unsafe-io "$debian" "$tmp/base.tar" \
			"$tmp/base.list" >"$tmp/base.log" 2>&1 || fail "mmdebstrap"
		pod import -q --change 'CMD ["bash"]' "$tmp/base.tar" "docker.io/library/$base" >/dev/null 2>"$tmp/import.err" || fail "podman import"
		rm "$tmp/base.tar"
	fi
	pod run --rm --network none "$base" true 2>"$tmp/first.err" || fail "podman cannot run a container"
}

# Beside other tests it takes what they leave, of which four times as much as another process does that has a niceness of 19, since
# tests wait for images. A container's processes are weighed together, whatever their niceness.
build_options=(--format docker --network host)
[ "$(nice)" = 0 ] || build_options+=(--cpu-shares 60)

built() { # NAME ARG..
	local name=$1
	if [ ! -d "$tmp/context" ]; then # what git knows, as a clone has it
		mkdir "$tmp/context"
		git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$tmp/context"
		: >"$tmp/context/build" # what was built here has no place in an image: let it be in the way if it gets there
	fi
	pod build "${build_options[@]}" -f "$tmp/context/docker/$name.Dockerfile" --build-arg "DEBIAN=$debian" "${@:2}" "$tmp/context" \
		>"$tmp/build-$name.log" 2>&1 </dev/null || fail "cannot build docker/$name.Dockerfile"
}

image() {
	local begun=$SECONDS name=$1 tag=$2
	shift 2
	built "$name" -t "$tag" "$@"
	echo "image $tag: $(($(pod image inspect -f '{{.Size}}' "$tag") / 100000 * 100000 / 1000)) KB, built in $((SECONDS - begun)) s"
}

# Podman 4.3 does not know BUILDPLATFORM by itself.
platform=(--build-arg "BUILDPLATFORM=linux/$(dpkg --print-architecture)" --platform)
# It makes containers of its own platform's image alone if it is given the name.
image_for_both() {
	local begun=$SECONDS digest image
	pod rmi "$2" >/dev/null 2>&1
	built "$1" --manifest "$2" "${platform[@]}" linux/amd64,linux/arm64
	echo "image $2 for two platforms, built in $((SECONDS - begun)) s"
	pod manifest inspect "$2" >"$tmp/platforms" || fail "$2 is no manifest"
	digest=$(python3 -c '
import json, sys
images = {"{os}/{architecture}".format(**image["platform"]): image["digest"] for image in json.load(sys.stdin)["manifests"]}
assert sorted(images) == ["linux/amd64", "linux/arm64"], images
print(images["linux/arm64"])' <"$tmp/platforms") || fail "the platforms of $2"
	image=$(pod images -a --digests --format '{{.Digest}} {{.ID}}' | awk -v digest="$digest" '$1 == digest { print $2 }')
	started+=("$net-arm")
	mkdir "$tmp/arm"
	{ pod create --name "$net-arm" --no-healthcheck "$image" && pod export "$net-arm" | tar -x -C "$tmp/arm"; } \
		>"$tmp/export.out" 2>"$tmp/export.err" || fail "cannot unpack $2 for Arm"
}

group_image() {
	pod image exists "winnow-$1" || pod build "${build_options[@]}" -t "winnow-$1" --ignorefile /dev/null -f - docker >"$tmp/build-$1.log" 2>&1 <<-D || fail "image with $1"
		FROM $base
		COPY packages.txt install-packages.sh /root/
		RUN /root/install-packages.sh $1
	D
}

debian_program() {
	[ ! -x "/usr/bin/$1" ] || { echo "/usr/bin/$1"; return; }
	local package=prometheus # which has promtool, too, up to Debian 12
	if [ ! -x "$store/prometheus/usr/bin/$1" ]; then
		apt-get install -qs "$1" >"$tmp/download.log" 2>&1 && package=$1
		(cd "$store" && { apt-get download -q "$package" || { apt-get update -q && apt-get download -q "$package"; }; } && dpkg -x "$package"_*.deb prometheus) \
			>"$tmp/download.log" 2>&1 || fail "apt-get download $package"
	fi
	echo "$store/prometheus/usr/bin/$1"
}

container() {
	local name=$1 alias=()
	shift
	started+=("$net-$name")
	[[ ${network:-} == ns:* ]] || alias=(--network-alias "$name")
	pod run -d --name "$net-$name" --network "${network:-$net}" "${alias[@]}" "$@" >"$tmp/run-$name.out" 2>"$tmp/run-$name.err" || fail "podman run $name"
}

bpf_profile() {
	python3 - "$1" <<'P'
import json, sys
profile = json.load(open("/usr/share/containers/seccomp.json"))
for rule in profile["syscalls"]:
    if rule["action"] == "SCMP_ACT_ERRNO":
        rule["names"] = [name for name in rule["names"] if name not in ("bpf", "perf_event_open")]
for name, cap in (("bpf", "CAP_BPF"), ("perf_event_open", "CAP_PERFMON")):
    profile["syscalls"].append({"names": [name], "action": "SCMP_ACT_ALLOW", "includes": {"caps": [cap]}})
json.dump(profile, open(sys.argv[1], "w"))
P
}

ready() {
	answers() { pod exec "$net-$1" /usr/bin/winnow status --quiet >/dev/null 2>&1; }
	soon 20 answers "$1" && return
	pod logs "$net-$1" >"$tmp/$1.log" 2>&1
	fail "winnowd in container $1 does not start"
}

ended() {
	is_over() { [ "$(pod inspect -f '{{.State.Status}}' "$net-$1")" = exited ]; }
	soon "$2" is_over "$1"
	local over=$?
	pod logs "$net-$1" >"$tmp/$1.out" 2>"$tmp/$1.err"
	[ $over = 0 ] || fail "container $1 still runs after $2 s"
	pod inspect -f '{{.State.ExitCode}}' "$net-$1"
}
