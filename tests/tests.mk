# The tests: their programs, the emulated GPU they use, make check and its like.

units := $(notdir $(filter tests/unit/test_%,$(call sources_of,tests/unit)))
gpu_tests := $(patsubst %.cc,%,$(wildcard tests/gpu/test_*.cc)) $(filter tests/gpu/test_%,$(call sources_of,tests/gpu))
unit_tests := $(units:%=$(BUILD)/tests/unit/%)
tools := $(BUILD)/tests/sim/sim \
	$(BUILD)/tests/e2e/chaos $(BUILD)/tests/e2e/caller $(BUILD)/tests/e2e/members $(BUILD)/tests/e2e/pairs $(BUILD)/tests/e2e/sweep $(BUILD)/tests/e2e/secure $(BUILD)/tests/e2e/lose.bpf.o $(BUILD)/tests/e2e/mark.bpf.o \
	$(BUILD)/tests/e2e/pass.bpf.o $(BUILD)/ebpf/redirect.bpf.o $(BUILD)/tests/gpu/device_worker
benches := $(patsubst %,$(BUILD)/tests/bench/%,bench_bitmap bench_floor bench_seal bench_xdp line nic mpi_bench $(if $(have_dpdk),dpdk_source))
fuzzers := $(patsubst %,$(BUILD)/%,$(filter tests/fuzz/fuzz_%,$(call sources_of,tests/fuzz)))

.PHONY: tests check check-unit check-release check-debian check-programs mutants coverage bench fuzz fuzzers lint
tests: all $(unit_tests) $(gpu_tests:%=$(BUILD)/%) $(BUILD)/winnow-cuda-emulated.so $(tools) ## build the tests, too

# What they test is in libcore.a, optimized; the tests themselves compile in a tenth of the time without, with sanitizers too.
# What stands in for other files takes what it does not look at.
$(units:%=$(BUILD)/tests/unit/%.o) $(BUILD)/tests/unit/unit.o: private extra := -O0 -Wno-unused-parameter
# These compute for longer than it takes to compile them.
$(patsubst %,$(BUILD)/tests/unit/test_%.o,bitmap_sparse coded): private extra := -O1 -Wno-unused-parameter
$(BUILD)/tests/unit/test_dpdk $(BUILD)/tests/unit/test_dpdk_neighbours: | $(if $(have_dpdk),$(BUILD)/winnow-dpdk.so)# which it opens
$(filter $(BUILD)/tests/unit/test_xdp%,$(unit_tests)): $(BUILD)/tests/unit/xdp_world.o
$(BUILD)/tests/unit/test_simnet: $(BUILD)/tests/sim/simnet.o
$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/tests/unit/unit.o $(BUILD)/libcheck.a $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $(filter %.o,$^) $(BUILD)/libcheck.a $(BUILD)/libcore.a -lcmocka $(daemon_libs) $(cli_libs) -o $@

# What always holds of the machines: tests ask after every event.
$(BUILD)/libcheck.a: $(call object,$(call sources_of,tests/check))
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/tests/sim/sim: $(call object,$(call sources_of,tests/sim)) $(BUILD)/libcheck.a $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $^ $(core_libs) -o $@

$(BUILD)/tests/e2e/members: $(call object,tests/e2e/members_worker tests/e2e/members_daemons)
$(BUILD)/tests/e2e/%: $(BUILD)/tests/e2e/%.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $(filter %.o,$^) $(BUILD)/libcore.a $(daemon_libs) -o $@

# What users link with is all it needs: test_sanitized.sh builds this for it once more.
$(BUILD)/tests/e2e/pairs: $(BUILD)/tests/e2e/pairs.o $(call object,$(library) $(core))
	$(call say,LD,$@)$(link) $^ $(core_libs) -o $@

$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $< $(BUILD)/libcore.a $(daemon_libs) -o $@

$(BUILD)/tests/bench/dpdk_source: $(call object,tests/bench/dpdk_source tests/bench/dpdk_job) $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $^ $(dpdk_libs) $(daemon_libs) -o $@
$(BUILD)/tests/bench/dpdk_source.o $(BUILD)/tests/bench/dpdk_job.o: private extra := $(dpdk_extra)

# Open MPI's headers are not made for our warnings; mpicc would take a compiler of its own.
mpi_flags = $(shell pkg-config --cflags ompi-c)
$(BUILD)/tests/bench/mpi_bench.o: private extra = $(patsubst -I%,-isystem %,$(mpi_flags))
$(BUILD)/tests/bench/mpi_bench: $(BUILD)/tests/bench/mpi_bench.o $(BUILD)/libcore.a
	$(call say,LD,$@)$(link) $^ $(shell pkg-config --libs ompi-c) $(core_libs) -o $@

$(BUILD)/tests/bench/bench_xdp.o: $(BUILD)/tests/bench/bench_xdp.skel.h
$(BUILD)/tests/bench/nic.o: $(BUILD)/tests/bench/nic.skel.h
$(BUILD)/tests/bench/bench_xdp.o $(BUILD)/tests/bench/nic.o: private warnings := -Wall -Wextra $(werror)

# What parses bytes, and what that needs: half of libcore.a, which takes long to compile for fuzzers.
$(BUILD)/libparse.a: $(call object,$(core) $(frames) $(call sources_in,aggregator/channel $(addprefix client/,worker trace cli/status)) \
	$(addprefix client/cli/,cli table tune/trace_read))
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $^

# libFuzzer's main() is in clang's runtime: tests/fuzz/run.sh builds this goal with clang, in build/fuzz.
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/libcheck.a $(BUILD)/libparse.a
	$(call say,LD,$@)$(link) -fsanitize=fuzzer $^ $(daemon_libs) $(cli_libs) -o $@

$(BUILD)/tests/fuzz/seeds: $(BUILD)/tests/fuzz/seeds.o $(BUILD)/libparse.a
	$(call say,LD,$@)$(link) $^ $(core_libs) -o $@

fuzzers: $(fuzzers) $(BUILD)/tests/fuzz/seeds

# A sanitizer build checks what finds memory and thread errors; the plain build checks everything.
check: run := check
check-release: run := release
check-release: also := $(if $(SAN),,$(benches))# or nobody would see that they do not compile
check: ## install what is missing, build, run the tests; TESTS="channel dpdk*" for some, SAN=... for all with sanitizers
check-release: ## the tests that take longer: images, packages, whole suites, more seeds, fuzzers, sanitizers, Debian 13
check-unit: ## the unit tests alone
	$(Q)docker/install-packages.sh build dpdk unit
	$(Q)$(MAKE) --no-print-directory $(all_cpus) $(unit_tests)
	$(Q)tests/run.sh $(BUILD) '$(SAN)' unit $(TESTS:%='%')
check check-release:
	$(Q)docker/install-packages.sh build dpdk check
	$(Q)$(MAKE) --no-print-directory $(all_cpus) tests $(also)
	$(Q)tests/run.sh $(BUILD) '$(SAN)' $(run) $(TESTS:%='%')

# What the simulation and the unit tests need.
check-programs: $(unit_tests) $(BUILD)/tests/sim/sim

N ?= 20
SEED ?= 1
FILES ?= $(addsuffix .c,$(filter aggregator/channel/% aggregator/jobs/% bitmap/% client/comm/% client/worker/%,$(core) $(daemon) $(library)))
mutants: ## put N=20 faults, drawn by SEED=1, into a copy of FILES="client/worker/*.c", and say which no test sees (a minute each)
	$(Q)tests/mutants.py $(N) $(SEED) $(wildcard $(FILES))

# A build of its own, whose programs count what they execute.
COVERED ?= bad_joins bench deaths doctor drain garbage log members metrics mismatch run status strangers tune waiting
coverage: ## which lines of C simulation, unit tests and these end-to-end tests execute: COVERED="bench deaths"
	$(Q)docker/install-packages.sh build dpdk check
	$(Q)$(MAKE) --no-print-directory $(all_cpus) BUILD=$(BUILD)/cov CFLAGS='-O1 -g --coverage' LDFLAGS=--coverage tests
	$(Q)tests/coverage.py $(BUILD)/cov $(COVERED)

SUITE ?= trixie
check-debian: ## demo and check in a fresh Debian of another release (root, long); SUITE=bookworm
	$(Q)tests/debian.sh $(SUITE) $(BUILD)

bench: ## install what is missing, measure all of docs/BENCHMARKS.md (root, long); PARTS="bound loss"
	$(Q)docker/install-packages.sh build dpdk bench
	$(Q)$(MAKE) --no-print-directory $(all_cpus) all $(benches) $(BUILD)/tests/gpu/device_worker $(BUILD)/winnow-cuda-emulated.so \
		$(BUILD)/tests/e2e/pass.bpf.o $(BUILD)/ebpf/redirect.bpf.o $(BUILD)/tests/e2e/mark.bpf.o
	$(Q)tests/bench/bench.sh $(BUILD) $(PARTS)

SECONDS ?= 60
fuzz: ## let each fuzzer of tests/fuzz run for SECONDS=60; FUZZERS="packet exchange" for some
	$(Q)docker/install-packages.sh build dpdk check
	$(Q)tests/fuzz/run.sh $(SECONDS) build/fuzz $(FUZZERS)

lint: ## clang-format, clang-tidy, cppcheck, shellcheck, folder rules
	$(Q)docker/install-packages.sh build dpdk lint
	$(Q)$(MAKE) --no-print-directory $(BUILD)/ebpf/winnow.skel.h $(BUILD)/tests/bench/bench_xdp.skel.h \
		$(BUILD)/tests/bench/nic.skel.h
	$(Q)tests/lint.sh

# The emulation: headers of CUDA and NCCL are its own, everything that uses them is built again with them.
emulated := $(patsubst %.cc,%,$(wildcard tests/gpu/emulated/*.cc))
emulated_flags = -Itests/gpu/emulated -DWINNOW_EMULATED_CUDA
emulated_cxx = g++ -std=c++17 -I. -I$(BUILD) $(emulated_flags) -MMD -MP -fPIC -ffp-contract=off -pthread \
	-Wall -Wextra -Wpedantic -Wshadow -Wno-unknown-pragmas $(werror) $(CFLAGS) $(sanitize) $(extra)
$(BUILD)/emulated/%.cu.o: %.cu Makefile tests/tests.mk
	@mkdir -p $(@D)
	$(call say,CXX,$@)$(emulated_cxx) -fvisibility=hidden -x c++ -c $< -o $@
$(BUILD)/emulated/%.o: %.cc Makefile tests/tests.mk
	@mkdir -p $(@D)
	$(call say,CXX,$@)$(emulated_cxx) -c $< -o $@
$(BUILD)/emulated/%.o: %.c Makefile tests/tests.mk
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(emulated_flags) $(compile) -c $< -o $@

# Sanitizers do not know fibers: the kernels, what runs them and their test are built without.
$(emulated:%=$(BUILD)/emulated/%.o) $(cuda_kernels:%=$(BUILD)/emulated/%.cu.o) $(BUILD)/emulated/tests/gpu/test_kernels.o: private sanitize :=

emulated_cuda := $(BUILD)/tests/gpu/libemulated-cuda.so
emulated_link := g++ $(sanitize) -pthread -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS)
emulated_kernels := $(cuda_kernels:%=$(BUILD)/emulated/%.cu.o) $(kernels:%=$(BUILD)/emulated/%.o)
$(emulated_cuda): $(emulated:%=$(BUILD)/emulated/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(emulated_link) -shared -Wl,-soname,$(@F) $^ -o $@

$(BUILD)/winnow-cuda-emulated.so: $(emulated_kernels) $(call object,$(cuda_others)) $(emulated_cuda)
	$(call say,LD,$@)$(emulated_link) -shared -Wl,-rpath,'$$ORIGIN/tests/gpu' $^ -o $@

# Tests of kernels and of the emulation have both inside, and cmocka.
$(BUILD)/tests/gpu/test_%: $(BUILD)/emulated/tests/gpu/test_%.o $(emulated_kernels) $(BUILD)/libcore.a $(emulated_cuda)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(emulated_link) -Wl,-rpath,'$$ORIGIN' $^ -lcmocka $(daemon_libs) $(cli_libs) -o $@

# A worker as users' programs are: with the library and CUDA's runtime, here the emulated one.
$(BUILD)/tests/gpu/device_%: $(BUILD)/emulated/tests/gpu/device_%.o $(BUILD)/libwinnow.so $(emulated_cuda)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(emulated_link) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../..' $(filter %.o,$^) -L$(BUILD) -lwinnow $(emulated_cuda) -lm -o $@
