# Winnow. `make help` lists the goals. Everything made lands in build/.
#   V=1                                 print the commands
#   SAN=address,undefined  SAN=thread   build and check with sanitizers, in build/san-...
#   WERROR=1                            warnings are errors, as in CI
#   CROSS=aarch64-linux-gnu             build for 64-bit Arm, in build/aarch64-linux-gnu
#   PREFIX=/usr/local LIBDIR=$PREFIX/lib DESTDIR=    where `make install` puts things
#   MAINTAINER="NAME <ADDRESS>" HOMEPAGE=URL         what `make deb` and `make wheel` say of whoever makes them

MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := all
comma := ,
SAN ?=
CROSS ?=
BUILD := build$(if $(CROSS),/$(CROSS))$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
export MAINTAINER HOMEPAGE CROSS
CC := $(if $(filter default,$(origin CC)),$(CROSS:%=%-)gcc,$(CC))
AR := $(if $(filter default,$(origin AR)),$(CROSS:%=%-)ar,$(AR))
# Where Debian has a processor's libraries: x86_64-linux-gnu. Those of another one lie in a folder, by docker/arm64-root.sh.
multiarch := $(or $(CROSS),$(shell $(CC) -print-multiarch 2>/dev/null))
arch := $(firstword $(subst -, ,$(multiarch)))
root := $(if $(CROSS),$(CURDIR)/$(BUILD)/root)
export SYSROOT := $(root)# for docker/target.sh
ifneq ($(filter-out aarch64-linux-gnu,$(CROSS)),)
$(error CROSS is '$(CROSS)': want aarch64-linux-gnu)
endif
ifneq ($(root),$(wildcard $(root)))
$(error CROSS=$(CROSS) needs that processor's headers and libraries: run docker/arm64-root.sh $(BUILD)/root)
endif
pkg_config := $(if $(CROSS),PKG_CONFIG_SYSROOT_DIR=$(root) PKG_CONFIG_LIBDIR=$(root)/usr/lib/$(CROSS)/pkgconfig:$(root)/usr/share/pkgconfig) pkg-config
CLANG ?= clang
BPFTOOL ?= $(or $(shell command -v bpftool),/usr/sbin/bpftool)
werror := $(if $(filter 1,$(WERROR)),-Werror)
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)';)

VERSION := 0.1.0
CFLAGS ?= -O2 -g
warnings := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Wundef -Wwrite-strings $(werror)
sanitize := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
compile = $(root:%=--sysroot=%) -std=c11 -D_GNU_SOURCE -DWINNOW_VERSION='"$(VERSION)"' -I. -I$(BUILD) -MMD -MP -fPIC -fvisibility=hidden \
	-ffp-contract=off $(if $(filter x86_64,$(arch)),-mpopcnt) -pthread $(warnings) $(CFLAGS) $(sanitize) $(extra)
link := $(CC) $(root:%=--sysroot=%) $(sanitize) -pthread -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS)

# One list per folder; docs/ARCHITECTURE.md draws who may include whom, tests/check_layers.sh enforces it.
sources_of = $(patsubst %.c,%,$(wildcard $(1)/*.c))
sources_in = $(foreach folder,$(1),$(call sources_of,$(folder)))
bpf := $(filter %.bpf,$(call sources_of,ebpf))
xdp := ebpf/xdp
engines := scalar $(if $(filter x86_64,$(arch)),avx2 avx512) $(if $(filter aarch64,$(arch)),neon)
bitmap := $(filter-out $(patsubst %,bitmap/bitmap_%,$(filter-out $(engines),avx2 avx512 neon)),$(call sources_of,bitmap))
core := $(bitmap) $(filter-out $(bpf) $(xdp),$(call sources_in,ebpf bitmap/net bitmap/control))
daemon := $(filter-out aggregator/winnowd,$(call sources_in,aggregator aggregator/channel aggregator/jobs aggregator/http aggregator/site))
# A site is a worker to its parent.
winnowd := aggregator/winnowd $(daemon) $(call sources_of,client/worker) $(xdp) $(core)
library := $(call sources_in,$(addprefix client/,worker comm gpu node trace))
cli := $(call sources_in,client/cli $(addprefix client/cli/,bench doctor status tune))
object = $(patsubst %,$(BUILD)/%.o,$(1))

core_libs := -lssl -lcrypto -ljansson -lm -ldl
# The dpdk data path is an object of its own, opened when somebody wants it; without DPDK's headers it is left out.
dpdk := $(call sources_of,aggregator/dpdk)
frames := $(addprefix aggregator/dpdk/,frame frame_write neighbours)# which need no DPDK
have_dpdk := $(shell $(pkg_config) --exists libdpdk 2>/dev/null && echo yes)
dpdk_flags := $(if $(have_dpdk),$(shell $(pkg_config) --cflags libdpdk)) -DALLOW_EXPERIMENTAL_API
dpdk_libs := $(if $(have_dpdk),$(shell $(pkg_config) --libs libdpdk))

daemon_libs := $(core_libs) -luv -lmicrohttpd -lbpf -lcap
cli_libs := -lbpf -lcap -ldl -luv

include kernels/kernels.mk
binaries := $(addprefix $(BUILD)/,winnowd winnow libwinnow.so $(if $(have_dpdk),winnow-dpdk.so) $(if $(have_cuda),winnow-cuda.so))

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all demo demo-elastic format docs install deb manifests clean help deps wheel wheel-library
all: $(binaries) ## build winnowd, winnow and libwinnow.so
	@:

# Flags for one file only: no other file may use these instructions.
$(BUILD)/bitmap/bitmap_scalar.o $(BUILD)/bitmap/topk.o: private extra := -O3
$(BUILD)/bitmap/bitmap_neon.o: private extra := -O3
$(BUILD)/bitmap/bitmap_avx2.o: private extra := -O3 -mavx2 -mf16c -mbmi -mbmi2
$(BUILD)/bitmap/bitmap_avx512.o: private extra := -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mbmi -mbmi2 -mprefer-vector-width=512

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(compile) -c $< -o $@

# DPDK's headers are not made for our warnings.
dpdk_extra = $(dpdk_flags) -Wno-pedantic -Wno-conversion -Wno-shadow -Wno-undef
$(BUILD)/aggregator/dpdk/%.o: private extra := $(dpdk_extra)
$(call object,$(frames)): private extra := -O3# for checksums

$(BUILD)/winnow-dpdk.so: $(call object,$(dpdk))
	$(call say,LD,$@)$(link) -shared $^ $(dpdk_libs) -o $@

# Programs for the kernel, and the headers that bpftool makes of them, programs and all.
$(BUILD)/%.bpf.o: %.bpf.c Makefile
	@mkdir -p $(@D)
	$(call say,BPF,$@)$(CLANG) -target bpf -mcpu=v3 -O2 -g -Wall -Wextra $(werror) -fno-strict-aliasing -I. \
		-I/usr/include/$(shell uname -m)-linux-gnu -MMD -MP -c $< -o $@

# Linking a program with nothing leaves out what only a debugger reads: half of it.
$(BUILD)/%.skel.h: $(BUILD)/%.bpf.o
	$(call say,SKEL,$@)$(BPFTOOL) gen object $(<:.bpf.o=.linked.o) $< && \
		$(BPFTOOL) gen skeleton $(<:.bpf.o=.linked.o) name $(notdir $*)_bpf > $@

# Only the loader sees a skeleton, and it is not code that our warnings were made for.
$(BUILD)/ebpf/xdp.o: $(BUILD)/ebpf/winnow.skel.h
$(BUILD)/ebpf/xdp.o: private warnings := -Wall -Wextra $(werror)

$(BUILD)/libcore.a: $(call object,$(core) $(xdp) $(daemon) $(library) $(frames) $(filter-out client/cli/main,$(cli)))
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/winnowd: $(call object,$(winnowd))
	$(call say,LD,$@)$(link) $^ $(daemon_libs) -o $@

# The public header's functions, and nothing else, leave the library. Programs load the one that they were built for.
soname := libwinnow.so.$(shell sed -n 's/^.define WINNOW_ABI_VERSION //p' client/winnow.h)
$(BUILD)/libwinnow.so: $(call object,$(library) $(core)) client/libwinnow.map
	$(call say,LD,$@)$(link) -shared -Wl,-soname,$(soname) -Wl,--version-script=client/libwinnow.map \
		$(filter %.o,$^) $(core_libs) -o $@
	@ln -sf libwinnow.so $(BUILD)/$(soname)

# For a wheel: programs and objects side by side, with the libraries that they load. DT_RPATH, since it holds for what those load.
wheel_link = $(link) -s -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN'
wheel := $(addprefix $(BUILD)/wheel/,$(notdir $(binaries)))
# In the library OpenSSL is linked in: a process of Python has one of its own, perhaps newer, under the same name.
linked_in = $(subst -lssl -lcrypto,-Wl$(comma)-Bstatic -lssl -lcrypto -Wl$(comma)-Bdynamic,$(core_libs))

$(wheel): | $(BUILD)/wheel
$(BUILD)/wheel:
	@mkdir -p $@

$(BUILD)/wheel/libwinnow.so: $(call object,$(library) $(core)) client/libwinnow.map
	$(call say,LD,$@)$(wheel_link) -shared -Wl,-soname,libwinnow.so -Wl,--version-script=client/libwinnow.map \
		$(filter %.o,$^) $(linked_in) -o $@

$(BUILD)/wheel/winnow: $(call object,$(cli)) $(BUILD)/wheel/libwinnow.so $(BUILD)/libcore.a
	$(call say,LD,$@)$(wheel_link) $(filter %.o,$^) -L$(BUILD)/wheel -lwinnow $(BUILD)/libcore.a $(core_libs) $(cli_libs) -o $@

$(BUILD)/wheel/winnowd: $(call object,$(winnowd))
	$(call say,LD,$@)$(wheel_link) $(filter %.o,$^) $(daemon_libs) -o $@

$(BUILD)/wheel/winnow-dpdk.so: $(call object,$(dpdk))
	$(call say,LD,$@)$(wheel_link) -shared $(filter %.o,$^) $(dpdk_libs) -o $@

$(BUILD)/wheel/winnow-cuda.so: $(BUILD)/winnow-cuda.so
	$(call say,COPY,$@)$(CROSS:%=%-)strip -o $@ $<

wheel-library: $(wheel)
	$(Q)docker/package/libraries.sh $(BUILD)/wheel $^

wheel: wheel-library ## a wheel of the Python package with programs and libraries inside, in build/wheel
	$(Q)/usr/bin/python3 -m pip wheel -q --no-deps --no-build-isolation -w $(BUILD)/wheel client/python
	@ls $(BUILD)/wheel/*.whl

$(BUILD)/winnow: $(call object,$(cli)) $(BUILD)/libwinnow.so $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $(filter %.o,$^) -L$(BUILD) -lwinnow -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib$(addprefix :$$ORIGIN/../lib/,$(multiarch))' \
		$(BUILD)/libcore.a $(core_libs) $(cli_libs) -o $@

# On all CPUs, unless the caller has said -j himself.
all_cpus = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
demo: ## install what is missing, build, train two models over Gloo and over Winnow (one to three minutes; DEMO_STEPS=10 for less)
	$(Q)docker/install-packages.sh build demo
	$(Q)$(MAKE) --no-print-directory $(if $(Q),-s) $(all_cpus) all
	$(Q)/usr/bin/python3 client/python/demo/demo.py $(if $(DEMO_STEPS),--steps $(DEMO_STEPS))

demo-elastic: ## one worker and one winnowd are killed, another worker joins, and training continues: build/elastic.png
	$(Q)docker/install-packages.sh build demo
	$(Q)$(MAKE) --no-print-directory $(all_cpus) all
	$(Q)/usr/bin/python3 client/python/demo/elastic.py $(if $(DEMO_STEPS),--steps $(DEMO_STEPS))

format: ## let clang-format rewrite all sources
	$(Q)git ls-files '*.c' '*.h' '*.cu' '*.cc' | xargs clang-format -i

share := $(DESTDIR)$(PREFIX)/share
install: all $(BUILD)/ebpf/redirect.bpf.o ## PREFIX=/usr/local LIBDIR=PREFIX/lib DESTDIR=
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 $(BUILD)/winnowd $(BUILD)/winnow $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/libwinnow.so $(DESTDIR)$(LIBDIR)/$(soname)
	ln -sf $(soname) $(DESTDIR)$(LIBDIR)/libwinnow.so
	[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true
	[ ! -e $(BUILD)/winnow-dpdk.so ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/winnow $(BUILD)/winnow-dpdk.so
	[ ! -e $(BUILD)/winnow-cuda.so ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/winnow $(BUILD)/winnow-cuda.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/winnow $(BUILD)/ebpf/redirect.bpf.o
	install -m 644 client/winnow.h $(DESTDIR)$(PREFIX)/include/
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' client/winnow.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/winnow.pc
	docker/package/man.sh $(BUILD) $(share)/man
	install -d $(share)/bash-completion/completions $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/sysusers.d
	install -m 644 docker/package/completion.bash $(share)/bash-completion/completions/winnow
	ln -sf winnow $(share)/bash-completion/completions/winnowd
	sed 's|/usr/bin/|$(PREFIX)/bin/|' docker/systemd/winnowd.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/winnowd.service
	install -m 644 docker/systemd/winnow.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/winnow.conf

deb: ## install what is missing, build build/winnow_VERSION_ARCH.deb
	$(Q)docker/install-packages.sh build deb
	$(Q)$(MAKE) --no-print-directory $(all_cpus) all
	$(Q)docker/package/deb.sh $(BUILD) $(VERSION)

docs: ## write the reference pages of docs from the code's own tables and docstrings
	$(Q)docker/install-packages.sh build check
	$(Q)$(MAKE) --no-print-directory $(all_cpus) all
	$(Q)/usr/bin/python3 docs/reference.py $(BUILD)

manifests: ## the chart as plain manifests for kubectl, in build/kubernetes; PyPI has Helm's own library
	$(Q)docker/manifests.sh $(BUILD)/kubernetes

deps: ## install from Debian what building needs and this machine lacks
	$(Q)docker/install-packages.sh build

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(filter-out %.d,$(MAKEFILE_LIST))

-include tests/tests.mk # images are built without tests/

# Other builds lie inside, and may be under way.
-include $(shell find $(BUILD) \( -name containers -o -name 'debian-*' -o -name mutants -o -name root -o -path '$(BUILD)/*-linux-gnu' -o -path $(BUILD)/fuzz -o -path $(BUILD)/cov -o -path '$(BUILD)/san-*' \) -prune -o -name '*.d' -print 2>/dev/null)
