# Winnow. `make help` lists the goals. Everything made lands in build/.
#   V=1                                 print the commands
#   SAN=address,undefined  SAN=thread   build and check with sanitizers, in build/san-...
#   PREFIX=/usr/local DESTDIR=          where `make install` puts things

MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := all
comma := ,
SAN ?=
BUILD := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
PREFIX ?= /usr/local
DESTDIR ?=
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
AR := $(if $(filter default,$(origin AR)),ar,$(AR))
CLANG ?= clang
BPFTOOL ?= $(or $(shell command -v bpftool),/usr/sbin/bpftool)
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)';)

VERSION := 0.1.0
CFLAGS ?= -O2 -g
warnings := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Wundef -Wwrite-strings -Werror
sanitize := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
compile = -std=c11 -D_GNU_SOURCE -DWINNOW_VERSION='"$(VERSION)"' -I. -I$(BUILD) -MMD -MP -fPIC -fvisibility=hidden \
	-ffp-contract=off -pthread $(warnings) $(CFLAGS) $(sanitize) $(extra)
link := $(CC) $(sanitize) -pthread -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS)

# One list per folder; docs/ARCHITECTURE.md draws who may include whom, tests/check_layers.sh enforces it.
sources_of = $(patsubst %.c,%,$(wildcard $(1)/*.c))
bpf := $(filter %.bpf,$(call sources_of,ebpf))
xdp := ebpf/xdp ebpf/xdp_sweep
core := $(filter-out $(bpf) $(xdp),$(foreach d,bitmap ebpf aggregator/net aggregator/control,$(call sources_of,$(d))))
daemon := $(filter-out aggregator/winnowd,$(call sources_of,aggregator))
library := $(call sources_of,client)
cli := $(call sources_of,client/cli)
units := $(notdir $(call sources_of,tests/unit))
object = $(patsubst %,$(BUILD)/%.o,$(1))

core_libs := -lsodium -ljansson -linih -lm -ldl
# The dpdk data path is an object of its own, opened when somebody wants it; without DPDK's headers it is left out.
dpdk := $(call sources_of,aggregator/net/dpdk) aggregator/net/frame aggregator/net/neighbours \
	aggregator/net/sum aggregator/net/sum_any aggregator/net/sum_avx2
have_dpdk := $(shell pkg-config --exists libdpdk && echo yes)
dpdk_flags = $(shell pkg-config --cflags libdpdk) -DALLOW_EXPERIMENTAL_API
dpdk_libs = $(shell pkg-config --libs libdpdk)

daemon_libs := $(core_libs) -luv -lmicrohttpd -lbpf -lcap
cli_libs := -levent_extra -levent_core -lbpf -lcap -ldl

binaries := $(if $(wildcard aggregator/winnowd.c),$(BUILD)/winnowd) \
	$(if $(wildcard client/comm.c),$(BUILD)/libwinnow.so) $(if $(cli),$(BUILD)/winnow) $(if $(have_dpdk),$(BUILD)/winnow-dpdk.so)
unit_tests := $(units:%=$(BUILD)/tests/unit/%)
tools := $(if $(wildcard tests/sim/sim.c),$(BUILD)/tests/sim/sim) \
	$(if $(wildcard tests/e2e/chaos.c),$(BUILD)/tests/e2e/chaos) $(BUILD)/tests/e2e/lose.bpf.o \
	$(BUILD)/ebpf/pass.bpf.o $(BUILD)/ebpf/redirect.bpf.o
fuzzers := $(patsubst %,$(BUILD)/%,$(filter tests/fuzz/fuzz_%,$(call sources_of,tests/fuzz)))

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all demo check bench lint format install deb clean help deps tests fuzz fuzzers wheel wheel-library
all: $(binaries) ## build winnowd, winnow and libwinnow.so
tests: all $(unit_tests) $(tools) ## build the tests, too

# Flags for one file only: no other file may use these instructions.
$(BUILD)/bitmap/bitmap_scalar.o: private extra := -O3
$(BUILD)/bitmap/bitmap_avx2.o: private extra := -O3 -mavx2 -mf16c
$(BUILD)/bitmap/bitmap_avx512.o: private extra := -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512

$(BUILD)/aggregator/net/sum_any.o: private extra := -O3
$(BUILD)/aggregator/net/sum_avx2.o: private extra := -O3 -mavx2

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(compile) -c $< -o $@

# DPDK's headers are not made for our warnings.
dpdk_extra = $(dpdk_flags) -Wno-pedantic -Wno-conversion -Wno-shadow -Wno-undef
$(BUILD)/aggregator/net/dpdk/%.o: private extra := $(dpdk_extra)
$(BUILD)/tests/bench/dpdk_source.o $(BUILD)/tests/bench/dpdk_job.o $(BUILD)/tests/bench/dpdk_bytes.o: private extra := $(dpdk_extra)

$(BUILD)/winnow-dpdk.so: $(call object,$(dpdk))
	$(call say,LD,$@)$(link) -shared $^ $(dpdk_libs) -o $@

# Programs for the kernel, and the headers that bpftool makes of them, programs and all.
$(BUILD)/%.bpf.o: %.bpf.c Makefile
	@mkdir -p $(@D)
	$(call say,BPF,$@)$(CLANG) -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -fno-strict-aliasing -I. \
		-I/usr/include/$(shell uname -m)-linux-gnu -MMD -MP -c $< -o $@

# Linking a program with nothing leaves out what only a debugger reads: half of it.
$(BUILD)/%.skel.h: $(BUILD)/%.bpf.o
	$(call say,SKEL,$@)$(BPFTOOL) gen object $(<:.bpf.o=.linked.o) $< && \
		$(BPFTOOL) gen skeleton $(<:.bpf.o=.linked.o) name $(notdir $*)_bpf > $@

# Only the loader sees a skeleton, and it is not code that our warnings were made for.
$(BUILD)/ebpf/xdp.o: $(BUILD)/ebpf/winnow.skel.h
$(BUILD)/tests/bench/bench_xdp.o: $(BUILD)/tests/bench/bench_xdp.skel.h
$(BUILD)/tests/bench/nic.o: $(BUILD)/tests/bench/nic.skel.h
$(BUILD)/ebpf/xdp.o $(BUILD)/tests/bench/bench_xdp.o $(BUILD)/tests/bench/nic.o: private warnings := -Wall -Wextra -Werror

$(BUILD)/libcore.a: $(call object,$(core) $(xdp) $(daemon) $(library) $(filter-out client/cli/winnow,$(cli)))
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/winnowd: $(call object,aggregator/winnowd $(daemon) $(xdp) $(core))
	$(call say,LD,$@)$(link) $^ $(daemon_libs) -o $@

# The public header's functions, and nothing else, leave the library.
$(BUILD)/libwinnow.so: $(call object,$(library) $(core)) client/libwinnow.map
	$(call say,LD,$@)$(link) -shared -Wl,-soname,libwinnow.so.0 -Wl,--version-script=client/libwinnow.map \
		$(filter %.o,$^) $(core_libs) -o $@
	@ln -sf libwinnow.so $(BUILD)/libwinnow.so.0

# For a wheel: it finds beside itself what it needs and a machine may lack.
$(BUILD)/wheel/libwinnow.so: $(call object,$(library) $(core)) client/libwinnow.map $(BUILD)/libwinnow.so
	@mkdir -p $(@D)
	$(call say,LD,$@)$(link) -shared -Wl,-soname,libwinnow.so.0 -Wl,--version-script=client/libwinnow.map \
		-Wl,-rpath,'$$ORIGIN' $(filter %.o,$^) $(core_libs) -o $@
	$(Q)ldd $(BUILD)/libwinnow.so | awk '$$1 ~ /^lib(sodium|jansson|inih)/ { print $$3 }' | xargs cp -Lt $(@D)

wheel-library: $(BUILD)/wheel/libwinnow.so

wheel: wheel-library ## a wheel of the Python package with the library inside, in build/wheel
	$(Q)/usr/bin/python3 -m pip wheel -q --no-deps --no-build-isolation -w $(BUILD)/wheel client/python
	@ls $(BUILD)/wheel/*.whl

$(BUILD)/winnow: $(call object,$(cli)) $(BUILD)/libwinnow.so $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $(filter %.o,$^) -L$(BUILD) -lwinnow -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' \
		$(BUILD)/libcore.a $(core_libs) $(cli_libs) -o $@

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $< $(BUILD)/libcore.a -lcmocka $(daemon_libs) $(cli_libs) -o $@

$(BUILD)/tests/sim/sim: $(call object,$(call sources_of,tests/sim)) $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $^ $(core_libs) -o $@

$(BUILD)/tests/e2e/%: $(BUILD)/tests/e2e/%.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $< $(BUILD)/libcore.a $(daemon_libs) -o $@

$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $< $(BUILD)/libcore.a $(daemon_libs) -o $@

$(BUILD)/tests/bench/dpdk_source: $(call object,tests/bench/dpdk_source tests/bench/dpdk_job) $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $^ $(dpdk_libs) $(daemon_libs) -o $@

$(BUILD)/tests/bench/dpdk_bytes: $(BUILD)/tests/bench/dpdk_bytes.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $^ $(dpdk_libs) $(daemon_libs) -o $@

demo: ## install what is missing, build, train two models over Gloo and over Winnow (a minute or two)
	$(Q)docker/install-packages.sh build demo
	$(Q)$(MAKE) --no-print-directory all
	$(Q)/usr/bin/python3 client/python/demo/demo.py

# libFuzzer's main() is in clang's runtime: tests/fuzz/run.sh builds this goal with clang, in build/fuzz.
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) -fsanitize=fuzzer $^ $(daemon_libs) $(cli_libs) -o $@

$(BUILD)/tests/fuzz/seeds: $(BUILD)/tests/fuzz/seeds.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $^ $(core_libs) -o $@

fuzzers: $(fuzzers) $(BUILD)/tests/fuzz/seeds

# A sanitizer build checks what finds memory and thread errors; the plain build checks everything.
check: ## install what is missing, build, run all tests; SAN=... for one with sanitizers
	$(Q)docker/install-packages.sh build dpdk check
	$(Q)$(MAKE) --no-print-directory tests
	$(Q)tests/run.sh $(BUILD) '$(SAN)'

bench: ## install what is missing, measure all of docs/BENCHMARKS.md (root, long); PARTS="bound loss"
	$(Q)docker/install-packages.sh build dpdk bench
	$(Q)$(MAKE) --no-print-directory all $(BUILD)/tests/bench/bench_bitmap \
		$(BUILD)/tests/bench/bench_xdp $(BUILD)/tests/bench/flood \
		$(BUILD)/tests/bench/nic $(BUILD)/ebpf/pass.bpf.o $(BUILD)/ebpf/redirect.bpf.o \
		$(if $(have_dpdk),$(BUILD)/tests/bench/dpdk_source $(BUILD)/tests/bench/dpdk_bytes)
	$(Q)tests/bench/bench.sh $(BUILD) $(PARTS)

SECONDS ?= 60
fuzz: ## let each fuzzer of tests/fuzz run for SECONDS=60; FUZZERS="packet channel" for some
	$(Q)docker/install-packages.sh build dpdk check
	$(Q)tests/fuzz/run.sh $(SECONDS) build/fuzz $(FUZZERS)

lint: ## clang-format, clang-tidy, cppcheck, shellcheck, folder rules
	$(Q)docker/install-packages.sh build dpdk lint
	$(Q)$(MAKE) --no-print-directory $(BUILD)/ebpf/winnow.skel.h $(BUILD)/tests/bench/bench_xdp.skel.h \
		$(BUILD)/tests/bench/nic.skel.h
	$(Q)tests/lint.sh

format: ## let clang-format rewrite all sources
	$(Q)git ls-files '*.c' '*.h' '*.cu' | xargs clang-format -i

share := $(DESTDIR)$(PREFIX)/share
install: all $(BUILD)/ebpf/redirect.bpf.o ## PREFIX=/usr/local DESTDIR=
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	install -m 755 $(BUILD)/winnowd $(BUILD)/winnow $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(BUILD)/libwinnow.so $(DESTDIR)$(PREFIX)/lib/libwinnow.so.0
	ln -sf libwinnow.so.0 $(DESTDIR)$(PREFIX)/lib/libwinnow.so
	[ ! -e $(BUILD)/winnow-dpdk.so ] || install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/winnow $(BUILD)/winnow-dpdk.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/winnow $(BUILD)/ebpf/redirect.bpf.o
	install -m 644 client/winnow.h $(DESTDIR)$(PREFIX)/include/
	docker/package/man.sh $(BUILD) $(share)/man
	install -d $(share)/bash-completion/completions $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/sysusers.d
	install -m 644 docker/package/completion.bash $(share)/bash-completion/completions/winnow
	ln -sf winnow $(share)/bash-completion/completions/winnowd
	sed 's|/usr/bin/|$(PREFIX)/bin/|' docker/systemd/winnowd.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/winnowd.service
	install -m 644 docker/systemd/winnow.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/winnow.conf

deb: ## install what is missing, build build/winnow_VERSION_ARCH.deb
	$(Q)docker/install-packages.sh build deb
	$(Q)$(MAKE) --no-print-directory all
	$(Q)docker/package/deb.sh $(BUILD) $(VERSION)

deps: ## install from Debian what building needs and this machine lacks
	$(Q)docker/install-packages.sh build

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

-include $(shell find $(BUILD) -name containers -prune -o -name '*.d' -print 2>/dev/null)
