# The GPU code (winnow-cuda.so), the same on an emulated CUDA, and the bundle for a machine with a GPU.

# Kernels and their callers are a separate object, which needs CUDA to build. The same sources on an emulated
# CUDA, for tests, are always built. NVIDIA's toolkit has its own folder; Debian's (11.8) is in /usr.
cuda_home ?= $(or $(CUDA_HOME),$(if $(wildcard /usr/local/cuda/bin/nvcc),/usr/local/cuda,/usr))
# For 64-bit Arm the toolkit needs that processor's headers and runtime as well: NVIDIA's package cuda-cross-sbsa.
cuda_target := $(cuda_home)$(if $(CROSS),/targets/sbsa-linux)
nvcc_path := $(if $(SAN),,$(if $(wildcard $(cuda_target)/include/cuda_runtime.h),$(shell command -v $(cuda_home)/bin/nvcc)))
cuda_version := $(if $(nvcc_path),$(shell $(nvcc_path) --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | awk '{ print $$1 * 1000 + $$2 * 10 }'))
have_cuda := $(if $(nvcc_path),$(shell [ 0$(cuda_version) -ge 11080 ] && echo $(nvcc_path)))
ifneq ($(nvcc_path),$(have_cuda))
$(if $(MAKELEVEL:0=),,$(info $(nvcc_path) is older than CUDA 11.8: built without winnow-cuda.so))
endif
cuda_include := $(if $(filter-out /usr,$(cuda_target)),-isystem $(cuda_target)/include)
cuda_runtime = $(firstword $(wildcard $(addprefix $(cuda_target)/,lib64/libcudart_static.a lib/libcudart_static.a lib/*/libcudart_static.a)) -lcudart_static)
cuda_cxx := $(if $(CROSS),$(CROSS)-g++ --sysroot=$(root),g++)
kernels := $(call sources_of,kernels)
cuda_kernels := $(patsubst %.cu,%,$(wildcard kernels/*.cu))
cuda_others := bitmap/dtype

# nvcc's output runs on sm_80 and newer, through PTX on GPUs newer than nvcc; its register report goes to kernels.txt.
# Before CUDA 12 nvcc does not accept g++ 12, and Debian's package chooses a compiler itself.
cuda_archs = $(filter 80 90 100 120,$(patsubst sm_%,%,$(shell $(have_cuda) --list-gpu-code)))
nvcc_host = $(if $(CROSS),-ccbin $(CROSS)-g++ -Xcompiler --sysroot=$(root) $(cuda_include),$(if $(NVCC_CCBIN)$(filter 11%,$(cuda_version)),,-ccbin g++))
nvcc = $(have_cuda) $(nvcc_host) -O3 -std=c++17 -Xptxas -v -I. -Xcompiler -fPIC$(comma)-fvisibility=hidden$(comma)-Wall$(comma)-Wextra \
	-gencode arch=compute_80$(comma)code=compute_80 $(foreach arch,$(cuda_archs),-gencode arch=compute_$(arch)$(comma)code=sm_$(arch))
$(BUILD)/%.cu.o: %.cu Makefile kernels/kernels.mk
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(nvcc) -MD -MP -MF $(@:.o=.d) -c $< -o $@ >$@.txt 2>&1 || { cat $@.txt >&2; rm -f $@.txt; exit 1; }

$(BUILD)/kernels/%.o: private extra := $(cuda_include)

$(BUILD)/winnow-cuda.so: $(cuda_kernels:%=$(BUILD)/%.cu.o) $(call object,$(kernels) $(cuda_others))
	$(call say,LD,$@)$(cuda_cxx) -pthread -shared -Wl,--as-needed -Wl,-z,relro,-z,now $(LDFLAGS) $^ \
		$(cuda_runtime) -ldl -lrt -o $@
	$(Q)cat $(cuda_kernels:%=$(BUILD)/%.cu.o.txt) >$(BUILD)/kernels.txt

# For a GPU: the kernels' test and benches. They need only nvcc, gcc, g++ and make.
gpu_programs := $(BUILD)/gpu/test_kernels $(BUILD)/gpu/bench_gpu $(BUILD)/gpu/bench_staging
$(BUILD)/gpu/test_kernels: $(BUILD)/cuda/tests/gpu/test_kernels.o
$(BUILD)/gpu/bench_gpu: $(BUILD)/cuda/tests/bench/bench_gpu.o
$(BUILD)/gpu/bench_staging: $(call object,tests/bench/bench_staging kernels/gpu kernels/nccl client/gpu/staging ebpf/geometry ebpf/packet)
$(BUILD)/tests/bench/bench_staging.o: private extra := $(cuda_include)
$(BUILD)/cuda/%.o: %.cc Makefile kernels/kernels.mk
	@mkdir -p $(@D)
	$(call say,CXX,$@)g++ -std=c++17 -O2 -g -I. $(cuda_include) -MMD -MP -pthread -ffp-contract=off -Wall -Wextra $(werror) -c $< -o $@
$(gpu_programs): $(cuda_kernels:%=$(BUILD)/%.cu.o) $(call object,$(bitmap))
	@mkdir -p $(@D)
	$(call say,LD,$@)g++ -pthread $(filter %.o,$^) $(cuda_runtime) -ldl -lrt -o $@

# The bundle is for a machine that has a GPU, CUDA and PyTorch but not our libraries: what a wheel has, and test programs.
gpu := $(BUILD)/gpu
gpu_bundle := $(addprefix $(gpu)/,winnowd winnow libwinnow.so $(if $(have_cuda),winnow-cuda.so device_worker test_kernels bench_gpu bench_staging))
gpu_needs = pkg-config --exists openssl libmicrohttpd libuv libcap libbpf jansson && command -v $(CLANG) $(BPFTOOL) >/dev/null

$(gpu)/%: $(BUILD)/wheel/%
	@mkdir -p $(@D)
	$(call say,COPY,$@)cp $< $@

$(BUILD)/tests/gpu/device_%.o: private extra := $(cuda_include)
$(gpu)/device_%: $(BUILD)/tests/gpu/device_%.o $(BUILD)/wheel/libwinnow.so
	@mkdir -p $(@D)
	$(call say,LD,$@)$(wheel_link) $^ $(cuda_runtime) -lm -ldl -lrt -o $@

.PHONY: gpu-bundle check-gpu
gpu-bundle: $(gpu_bundle) ## build/gpu, to copy to a machine with a GPU and run there: tests/gpu/check.sh .
	$(Q)tests/gpu/bundle.sh $(gpu)

gpu_here = if $(gpu_needs) && [ -n "$(have_cuda)" ]; then $(MAKE) --no-print-directory gpu-bundle; fi
check-gpu: ## on a machine with a GPU: tests and benches; PARTS="kernels staging" for some, see tests/gpu/check.sh
	$(Q)$(gpu_here)
	$(Q)tests/gpu/check.sh $(gpu) $(PARTS)
