# Winnow. `make help` lists the goals. Everything made lands in build/.
#   V=1                                 print the commands
#   SAN=address,undefined  SAN=thread   build and check with sanitizers, in build/san-...
#   WERROR=1                            warnings are errors, as in CI
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
werror := $(if $(filter 1,$(WERROR)),-Werror)
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)';)

VERSION := 0.1.0
CFLAGS ?= -O2 -g
warnings := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Wundef -Wwrite-strings $(werror)
sanitize := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
compile = -std=c11 -D_GNU_SOURCE -DWINNOW_VERSION='"$(VERSION)"' -I. -I$(BUILD) -MMD -MP -fPIC -fvisibility=hidden \
	-ffp-contract=off -pthread $(warnings) $(CFLAGS) $(sanitize) $(extra)
link := $(CC) $(sanitize) -pthread -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS)

# One list per folder; docs/ARCHITECTURE.md draws who may include whom, tests/check_layers.sh enforces it.
sources_of = $(patsubst %.c,%,$(wildcard $(1)/*.c))
sources_in = $(foreach folder,$(1),$(call sources_of,$(folder)))
bpf := $(filter %.bpf,$(call sources_of,ebpf))
xdp := ebpf/xdp ebpf/xdp_sweep
core := $(filter-out $(bpf) $(xdp),$(call sources_in,bitmap ebpf aggregator/net aggregator/control))
daemon := $(filter-out aggregator/winnowd,$(call sources_in,aggregator aggregator/channel aggregator/jobs aggregator/http))
library := $(call sources_in,$(addprefix client/,worker comm gpu node trace))
cli := $(call sources_in,client/cli $(addprefix client/cli/,bench doctor status tune))
units := $(notdir $(call sources_of,tests/unit))
object = $(patsubst %,$(BUILD)/%.o,$(1))

core_libs := -lsodium -ljansson -linih -lm -ldl
# The dpdk data path is an object of its own, opened when somebody wants it; without DPDK's headers it is left out.
dpdk := $(call sources_of,aggregator/net/dpdk)
frames := $(addprefix aggregator/net/dpdk/,frame neighbours sum sum_any sum_avx2)# which need no DPDK
have_dpdk := $(shell pkg-config --exists libdpdk 2>/dev/null && echo yes)
dpdk_flags := $(if $(have_dpdk),$(shell pkg-config --cflags libdpdk)) -DALLOW_EXPERIMENTAL_API
dpdk_libs := $(if $(have_dpdk),$(shell pkg-config --libs libdpdk))

# Kernels and what drives the GPU are an object of their own, too; without CUDA it is left out. The same
# sources on an emulated CUDA, for tests, are there always. NVIDIA's toolkit has a folder, Debian's (11.8) is in /usr.
cuda_home ?= $(or $(CUDA_HOME),$(if $(wildcard /usr/local/cuda/bin/nvcc),/usr/local/cuda,/usr))
nvcc_path := $(if $(SAN),,$(if $(wildcard $(cuda_home)/include/cuda_runtime.h),$(shell command -v $(cuda_home)/bin/nvcc)))
cuda_version := $(if $(nvcc_path),$(shell $(nvcc_path) --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | awk '{ print $$1 * 1000 + $$2 * 10 }'))
have_cuda := $(if $(nvcc_path),$(shell [ 0$(cuda_version) -ge 11080 ] && echo $(nvcc_path)))
ifneq ($(nvcc_path),$(have_cuda))
$(if $(MAKELEVEL:0=),,$(info $(nvcc_path) is older than CUDA 11.8: built without winnow-cuda.so))
endif
cuda_include := $(if $(filter-out /usr,$(cuda_home)),-isystem $(cuda_home)/include)
cuda_runtime = $(firstword $(wildcard $(addprefix $(cuda_home)/,lib64/libcudart_static.a lib/*/libcudart_static.a)) -lcudart_static)
kernels := $(call sources_of,kernels)
cuda_kernels := $(patsubst %.cu,%,$(wildcard kernels/*.cu))
cuda_others := bitmap/dtype
fake_nccl := $(BUILD)/tests/gpu/libnccl-fake.so
gpu_tests := $(patsubst %.cc,%,$(wildcard tests/gpu/test_*.cc)) $(filter tests/gpu/test_%,$(call sources_of,tests/gpu))
device_tests := $(filter tests/gpu/device_%,$(call sources_of,tests/gpu))

daemon_libs := $(core_libs) -luv -lmicrohttpd -lbpf -lcap
cli_libs := -levent_extra -levent_core -lbpf -lcap -ldl

binaries := $(if $(wildcard aggregator/winnowd.c),$(BUILD)/winnowd) \
	$(BUILD)/libwinnow.so $(if $(cli),$(BUILD)/winnow) $(if $(have_dpdk),$(BUILD)/winnow-dpdk.so) \
	$(if $(have_cuda),$(BUILD)/winnow-cuda.so)
unit_tests := $(units:%=$(BUILD)/tests/unit/%)
tools := $(if $(wildcard tests/sim/sim.c),$(BUILD)/tests/sim/sim) \
	$(BUILD)/tests/e2e/chaos $(BUILD)/tests/e2e/steady $(BUILD)/tests/e2e/caller $(BUILD)/tests/e2e/lose.bpf.o \
	$(BUILD)/ebpf/pass.bpf.o $(BUILD)/ebpf/redirect.bpf.o $(if $(cuda_kernels),$(BUILD)/tests/gpu/device_worker)
fuzzers := $(patsubst %,$(BUILD)/%,$(filter tests/fuzz/fuzz_%,$(call sources_of,tests/fuzz)))

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all demo check check-release check-debian bench check-gpu gpu-bundle lint format install deb clean help deps tests fuzz fuzzers wheel wheel-library
all: $(binaries) ## build winnowd, winnow and libwinnow.so
tests: all $(unit_tests) $(gpu_tests:%=$(BUILD)/%) $(device_tests:%=$(BUILD)/%) $(BUILD)/winnow-cuda-emulated.so $(fake_nccl) \
	$(BUILD)/emulated/bench_gpu $(BUILD)/emulated/bench_staging $(tools) ## build the tests, too

# Flags for one file only: no other file may use these instructions.
$(BUILD)/bitmap/bitmap_scalar.o: private extra := -O3
$(BUILD)/bitmap/bitmap_avx2.o: private extra := -O3 -mavx2 -mf16c
$(BUILD)/bitmap/bitmap_avx512.o: private extra := -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512

$(BUILD)/aggregator/net/dpdk/sum_any.o: private extra := -O3
$(BUILD)/aggregator/net/dpdk/sum_avx2.o: private extra := -O3 -mavx2

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(compile) -c $< -o $@

# DPDK's headers are not made for our warnings.
dpdk_extra = $(dpdk_flags) -Wno-pedantic -Wno-conversion -Wno-shadow -Wno-undef
$(BUILD)/aggregator/net/dpdk/%.o: private extra := $(dpdk_extra)
$(patsubst %,$(BUILD)/aggregator/net/dpdk/%.o,frame neighbours sum): private extra :=
$(BUILD)/tests/bench/dpdk_source.o $(BUILD)/tests/bench/dpdk_job.o $(BUILD)/tests/bench/dpdk_bytes.o: private extra := $(dpdk_extra)

$(BUILD)/winnow-dpdk.so: $(call object,$(dpdk))
	$(call say,LD,$@)$(link) -shared $^ $(dpdk_libs) -o $@

# Everything that nvcc makes runs on sm_80 and newer, by PTX on what it does not know; what it says of registers goes
# to kernels.txt. Before 12 it takes no g++ 12, and Debian's knows which one it takes.
cuda_archs = $(filter 80 90 100 120,$(patsubst sm_%,%,$(shell $(have_cuda) --list-gpu-code)))
nvcc_host = $(if $(NVCC_CCBIN),,$(if $(filter 11%,$(cuda_version)),,-ccbin g++))
nvcc = $(have_cuda) $(nvcc_host) -O3 -std=c++17 -Xptxas -v -I. -Xcompiler -fPIC$(comma)-fvisibility=hidden$(comma)-Wall$(comma)-Wextra \
	-gencode arch=compute_80$(comma)code=compute_80 $(foreach arch,$(cuda_archs),-gencode arch=compute_$(arch)$(comma)code=sm_$(arch))
$(BUILD)/%.cu.o: %.cu Makefile
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(nvcc) -MD -MP -MF $(@:.o=.d) -c $< -o $@ >$@.txt 2>&1 || { cat $@.txt >&2; rm -f $@.txt; exit 1; }

$(BUILD)/kernels/%.o: private extra := $(cuda_include)

$(BUILD)/winnow-cuda.so: $(cuda_kernels:%=$(BUILD)/%.cu.o) $(call object,$(kernels) $(cuda_others))
	$(call say,LD,$@)g++ -pthread -shared -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS) $^ \
		$(cuda_runtime) -ldl -lrt -o $@
	$(Q)cat $(cuda_kernels:%=$(BUILD)/%.cu.o.txt) >$(BUILD)/kernels.txt

# The emulation: CUDA's headers are its own, everything that uses them is built again with them.
emulated := $(patsubst %.cc,%,$(wildcard tests/gpu/emulated/*.cc))
emulated_flags = -Itests/gpu/emulated -DWINNOW_EMULATED_CUDA
emulated_cxx = g++ -std=c++17 -I. -I$(BUILD) $(emulated_flags) -MMD -MP -fPIC -ffp-contract=off -pthread \
	-Wall -Wextra -Wpedantic -Wshadow -Wno-unknown-pragmas $(werror) $(CFLAGS) $(sanitize) $(extra)
$(BUILD)/emulated/%.cu.o: %.cu Makefile
	@mkdir -p $(@D)
	$(call say,CXX,$@)$(emulated_cxx) -fvisibility=hidden -x c++ -c $< -o $@
$(BUILD)/emulated/%.o: %.cc Makefile
	@mkdir -p $(@D)
	$(call say,CXX,$@)$(emulated_cxx) -c $< -o $@
$(BUILD)/emulated/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(emulated_flags) $(compile) -c $< -o $@

# What takes fibers' turns must not be taken for threads that race.
fibers := $(BUILD)/emulated/tests/gpu/emulated/emulated_kernel.o $(BUILD)/emulated/tests/gpu/emulated/emulated_fiber.o
$(fibers): private sanitize := $(if $(SAN),$(if $(findstring thread,$(SAN)),-DEMULATED_TSAN,-fsanitize=$(SAN)))

emulated_cuda := $(BUILD)/tests/gpu/libemulated-cuda.so
emulated_link := g++ $(sanitize) -pthread -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS)
emulated_kernels := $(cuda_kernels:%=$(BUILD)/emulated/%.cu.o) $(kernels:%=$(BUILD)/emulated/%.o)
$(emulated_cuda): $(emulated:%=$(BUILD)/emulated/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(emulated_link) -shared -Wl,-soname,$(@F) $^ -o $@

$(BUILD)/winnow-cuda-emulated.so: $(emulated_kernels) $(call object,$(cuda_others)) $(emulated_cuda)
	$(call say,LD,$@)$(emulated_link) -shared -Wl,-rpath,'$$ORIGIN/tests/gpu' $^ -o $@

# A library that pretends to be NCCL, for tests: with WINNOW_NCCL=.
$(fake_nccl): $(BUILD)/emulated/tests/gpu/fake_nccl.o $(BUILD)/emulated/tests/gpu/fake_work.o $(emulated_cuda)
	$(call say,LD,$@)$(emulated_link) -shared -Wl,-rpath,'$$ORIGIN' $^ -o $@

# Tests of kernels and of the emulation have both inside, and cmocka.
$(BUILD)/tests/gpu/test_%: $(BUILD)/emulated/tests/gpu/test_%.o $(emulated_kernels) $(BUILD)/libcore.a $(emulated_cuda)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(emulated_link) -Wl,-rpath,'$$ORIGIN' $^ -lcmocka $(daemon_libs) $(cli_libs) -o $@

# A worker as users' programs are: with the library and CUDA's runtime, here the emulated one.
$(BUILD)/tests/gpu/device_%: $(BUILD)/emulated/tests/gpu/device_%.o $(BUILD)/libwinnow.so $(emulated_cuda)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(emulated_link) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../..' $(filter %.o,$^) -L$(BUILD) -lwinnow $(emulated_cuda) -lm -o $@

# For a GPU: the kernels' test, and benches, which nvcc, gcc, g++ and make are enough for.
gpu_programs := $(BUILD)/gpu/test_kernels $(BUILD)/gpu/bench_gpu $(BUILD)/gpu/bench_staging
$(BUILD)/gpu/test_kernels: $(BUILD)/cuda/tests/gpu/test_kernels.o
$(BUILD)/gpu/bench_gpu: $(BUILD)/cuda/tests/bench/bench_gpu.o
$(BUILD)/gpu/bench_staging: $(call object,tests/bench/bench_staging kernels/gpu client/staging client/staging_frames ebpf/geometry)
$(BUILD)/tests/bench/bench_staging.o: private extra := $(cuda_include)
$(BUILD)/cuda/%.o: %.cc Makefile
	@mkdir -p $(@D)
	$(call say,CXX,$@)g++ -std=c++17 -O2 -g -I. $(cuda_include) -MMD -MP -pthread -ffp-contract=off -Wall -Wextra $(werror) -c $< -o $@
$(gpu_programs): $(cuda_kernels:%=$(BUILD)/%.cu.o) $(call object,$(call sources_of,bitmap))
	@mkdir -p $(@D)
	$(call say,LD,$@)g++ -pthread $(filter %.o,$^) $(cuda_runtime) -ldl -lrt -o $@

# The benches on the emulation measure nothing, but run.
$(BUILD)/emulated/bench_%: $(BUILD)/emulated/tests/bench/bench_%.o $(emulated_kernels) $(BUILD)/libcore.a $(emulated_cuda)
	$(call say,LD,$@)$(emulated_link) -Wl,-rpath,'$$ORIGIN/../tests/gpu' $^ $(daemon_libs) $(cli_libs) -o $@

# What goes to a machine with a GPU, CUDA and PyTorch and without our libraries: each object finds beside itself what
# it needs, and what that needs (so RPATH, not RUNPATH).
gpu := $(BUILD)/gpu
gpu_link = $(link) -s -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN'
gpu_bundle := $(addprefix $(gpu)/,winnowd winnow libwinnow.so $(if $(have_cuda),winnow-cuda.so device_worker test_kernels bench_gpu bench_staging))
gpu_needs = pkg-config --exists libsodium libmicrohttpd libuv libcap libbpf libevent jansson inih && command -v $(CLANG) $(BPFTOOL) >/dev/null

$(gpu)/winnowd: $(call object,aggregator/winnowd $(daemon) $(xdp) $(core))
	@mkdir -p $(@D)
	$(call say,LD,$@)$(gpu_link) $^ $(daemon_libs) -o $@

$(gpu)/libwinnow.so: $(call object,$(library) $(core)) client/libwinnow.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(gpu_link) -shared -Wl,-soname,libwinnow.so.0 -Wl,--version-script=client/libwinnow.map \
		$(filter %.o,$^) $(core_libs) -o $@
	@ln -sf libwinnow.so $(gpu)/libwinnow.so.0

$(gpu)/winnow: $(call object,$(cli)) $(gpu)/libwinnow.so $(BUILD)/libcore.a
	$(call say,LD,$@)$(gpu_link) $(filter %.o,$^) $(gpu)/libwinnow.so $(BUILD)/libcore.a $(core_libs) $(cli_libs) -o $@

$(BUILD)/tests/gpu/device_%.o: private extra := $(cuda_include)
$(gpu)/device_%: $(BUILD)/tests/gpu/device_%.o $(gpu)/libwinnow.so
	$(call say,LD,$@)$(gpu_link) $^ $(cuda_runtime) -lm -ldl -lrt -o $@

$(gpu)/winnow-cuda.so: $(BUILD)/winnow-cuda.so
	@mkdir -p $(@D)
	$(call say,COPY,$@)strip -o $@ $<

gpu-bundle: $(gpu_bundle) ## build/gpu, to be brought to a machine with a GPU: tests/gpu/check.sh . is in it
	$(Q)tests/gpu/bundle.sh $(gpu)

gpu_here = if $(gpu_needs) && [ -n "$(have_cuda)" ]; then $(MAKE) --no-print-directory gpu-bundle; fi
check-gpu: ## on a machine with a GPU: tests and benches; PARTS="kernels staging" for some, see tests/gpu/check.sh
	$(Q)$(gpu_here)
	$(Q)tests/gpu/check.sh $(gpu) $(PARTS)

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
$(BUILD)/tests/bench/bench_xdp.o: $(BUILD)/tests/bench/bench_xdp.skel.h
$(BUILD)/tests/bench/nic.o: $(BUILD)/tests/bench/nic.skel.h
$(BUILD)/ebpf/xdp.o $(BUILD)/tests/bench/bench_xdp.o $(BUILD)/tests/bench/nic.o: private warnings := -Wall -Wextra $(werror)

$(BUILD)/tests/unit/test_dpdk: | $(if $(have_dpdk),$(BUILD)/winnow-dpdk.so)# which it opens
$(BUILD)/libcore.a: $(call object,$(core) $(xdp) $(daemon) $(library) $(frames) $(filter-out client/cli/main,$(cli)))
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

$(BUILD)/wheel/winnow-cuda.so: $(BUILD)/winnow-cuda.so
	@mkdir -p $(@D)
	$(call say,COPY,$@)strip -o $@ $<

wheel-library: $(BUILD)/wheel/libwinnow.so $(if $(have_cuda),$(BUILD)/wheel/winnow-cuda.so)

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
# It is built on all CPUs, unless the caller has said -j himself.
all_cpus = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
check: run := check
check-release: run := release
check: ## install what is missing, build, run the tests; TESTS="channel dpdk*" for some, SAN=... for all with sanitizers
check-release: ## the tests that take longer: images, packages, whole suites, more seeds, fuzzers
check check-release:
	$(Q)docker/install-packages.sh build dpdk check
	$(Q)$(MAKE) --no-print-directory $(all_cpus) tests
	$(Q)tests/run.sh $(BUILD) '$(SAN)' $(run) $(TESTS:%='%')

SUITE ?= trixie
check-debian: ## demo and check in a fresh Debian of another release (root, long); SUITE=bookworm
	$(Q)tests/debian.sh $(SUITE) $(BUILD)

bench: ## install what is missing, measure all of docs/BENCHMARKS.md (root, long); PARTS="bound loss"
	$(Q)docker/install-packages.sh build dpdk bench
	$(Q)$(MAKE) --no-print-directory all $(BUILD)/tests/bench/bench_bitmap \
		$(BUILD)/tests/bench/bench_xdp $(BUILD)/tests/bench/flood \
		$(BUILD)/tests/gpu/device_worker $(BUILD)/winnow-cuda-emulated.so $(fake_nccl) \
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
	$(Q)git ls-files '*.c' '*.h' '*.cu' '*.cc' | xargs clang-format -i

share := $(DESTDIR)$(PREFIX)/share
install: all $(BUILD)/ebpf/redirect.bpf.o ## PREFIX=/usr/local DESTDIR=
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include
	install -m 755 $(BUILD)/winnowd $(BUILD)/winnow $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/libwinnow.so $(DESTDIR)$(PREFIX)/lib/libwinnow.so.0
	ln -sf libwinnow.so.0 $(DESTDIR)$(PREFIX)/lib/libwinnow.so
	[ ! -e $(BUILD)/winnow-dpdk.so ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/winnow $(BUILD)/winnow-dpdk.so
	[ ! -e $(BUILD)/winnow-cuda.so ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/winnow $(BUILD)/winnow-cuda.so
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

# Other builds lie inside, and may be under way.
-include $(shell find $(BUILD) \( -name containers -o -path $(BUILD)/fuzz -o -path '$(BUILD)/san-*' \) -prune -o -name '*.d' -print 2>/dev/null)
