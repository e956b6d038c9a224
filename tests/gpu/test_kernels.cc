/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_kernels.cc - scan, rank, pack and unpack of the GPU against plain loops
 *
 * Random tensors of every type, length, block and alignment; outputs are poisoned before and looked
 * at to the last byte after, inputs must stay. Runs on the emulated CUDA (`make check`), where lanes
 * take turns in random order, and on a GPU (`make check-gpu`) with tensors beyond 2^32 bytes.
 *
 *   test_kernels [rounds [bytes of the large tensors, 0 for none]]
 */

#include "kernels/bitmap_cuda.h"
#include "tests/gpu/kernel_arena.h"
#include "tests/gpu/kernel_large.h"

#include <cmath>

#ifdef __SANITIZE_THREAD__
#define ROUNDS 80
#define LARGE_BYTES 100000
#elif defined(WINNOW_EMULATED_CUDA)
#define ROUNDS 400
#define LARGE_BYTES 1000000
#else
#define ROUNDS 4000
#define LARGE_BYTES UINT64_C(5000000000)
#endif

static cudaStream_t stream;
static const struct bitmap_cuda *const kernels = &bitmap_cuda_kernels;

static void finish()
{
	cuda_ok(cudaStreamSynchronize(stream));
}

static bool plain_nonzero(uint64_t value, enum dtype dtype)
{
	if (dtype_is_float(dtype))
		value &= (UINT64_C(1) << (8 * dtype_bytes(dtype) - 1)) - 1;
	return value != 0;
}

static std::vector<uint64_t> plain_scan(const struct sample *sample, uint64_t *largest)
{
	std::vector<uint64_t> bits((sample->block_count + 63) / 64, 0);
	const uint64_t sign = UINT64_C(1) << (8 * sample->elem_bytes - 1);

	*largest = 0;
	for (uint64_t i = 0; i < sample->tensor.count; i++) {
		const uint64_t block = i / sample->tensor.block_elems;
		const uint64_t value =
			fetch_value(&sample->host[i * sample->elem_bytes], sample->elem_bytes);

		if (plain_nonzero(value, sample->tensor.dtype))
			bits[block / 64] |= UINT64_C(1) << block % 64;
		if ((value & ~sign) > *largest)
			*largest = value & ~sign;
	}
	return bits;
}

/* What the CPU makes of the same tensor. */
static void check_range(const struct sample *sample, const std::vector<uint64_t> *want,
                        uint64_t largest)
{
	const struct bitmap_range range = bitmap_range_of(largest, sample->tensor.dtype);
	std::vector<uint64_t> bits(want->size());
	struct bitmap_tensor tensor = sample->tensor;
	struct bitmap_range engine;

	tensor.data = sample->host.data();
	bitmap_best()->scan_range(&tensor, bits.data(), &engine);
	require(bits == *want, "bitmap/ finds other bits");
	require(range.nonfinite == engine.nonfinite &&
	                (range.nonfinite || range.exponent == engine.exponent),
	        "bitmap/ finds exponent %d, not %d", engine.exponent, range.exponent);
}

static void check_scan(const struct sample *sample)
{
	const bool ranged = dtype_is_float(sample->tensor.dtype) && random_below(3) != 0;
	struct arena bits = arena_make((sample->block_count + 63) / 64 * 8, 8, false);
	struct arena magnitude = arena_make(8, 8, false);
	uint64_t largest;
	const std::vector<uint64_t> want = plain_scan(sample, &largest);

	cuda_ok(kernels->scan(&sample->tensor, reinterpret_cast<uint64_t *>(arena_at(&bits)),
	                      ranged ? reinterpret_cast<uint64_t *>(arena_at(&magnitude)) : nullptr,
	                      stream));
	finish();
	arena_check(&bits, want.data(), ranged ? "scan with magnitude" : "scan");
	if (ranged)
		check_range(sample, &want, largest);
	if (!ranged)
		largest = UINT64_C(0xa5a5a5a5a5a5a5a5);
	arena_check(&magnitude, &largest, "magnitude");
	arena_free(&bits);
	arena_free(&magnitude);
}

/* Bits at random, also past the last one. */
static std::vector<uint64_t> random_bitmap(uint64_t count)
{
	std::vector<uint64_t> bits((count + 63) / 64);
	const uint64_t kind = random_below(7);

	for (uint64_t &word : bits) {
		const uint64_t random = random_bits();

		word = kind == 0   ? random
		       : kind == 1 ? random & random_bits() & random_bits() & random_bits()
		       : kind == 2 ? random | random_bits() | random_bits()
		       : kind == 3 ? UINT64_MAX
		       : kind == 4 ? (random_below(9) == 0 ? random : 0)
		       : kind == 5 ? (random_below(30) == 0 ? UINT64_C(1) << random % 64 : 0)
		                   : 0;
	}
	return bits;
}

static bool is_set(const std::vector<uint64_t> &bits, uint64_t bit)
{
	return bits[bit / 64] >> bit % 64 & 1;
}

/* Bits and their ranks on the device. */
struct ranked {
	struct arena bits, ranks, scratch;
	std::vector<uint64_t> host;
	uint64_t bit_count;
	uint32_t set_count;
};

static const uint64_t *bits_of(const struct ranked *ranked)
{
	return reinterpret_cast<const uint64_t *>(arena_at(&ranked->bits));
}

static const uint32_t *ranks_of(const struct ranked *ranked)
{
	return reinterpret_cast<const uint32_t *>(arena_at(&ranked->ranks));
}

static struct ranked ranked_make(const std::vector<uint64_t> &host, uint64_t bit_count)
{
	const uint64_t words = (bit_count + 63) / 64;
	const uint64_t scratch_bytes = bitmap_cuda_rank_scratch(words);
	struct ranked ranked = {};
	std::vector<uint32_t> want(words + 1, 0);

	ranked.host = host;
	ranked.bit_count = bit_count;
	for (uint64_t i = 0; i < bit_count; i++) {
		if (i % 64 == 0)
			want[i / 64] = ranked.set_count;
		ranked.set_count += is_set(host, i);
	}
	want[words] = ranked.set_count;
	ranked.bits = arena_make(words * 8, 8, false);
	ranked.ranks = arena_make((words + 1) * 4, 4, false);
	ranked.scratch = arena_make(scratch_bytes, 4, false);
	arena_fill(&ranked.bits, host.data());
	cuda_ok(kernels->rank(bits_of(&ranked), bit_count,
	                      const_cast<uint32_t *>(ranks_of(&ranked)), arena_at(&ranked.scratch),
	                      stream));
	finish();
	arena_check(&ranked.ranks, want.data(), "rank");
	arena_check(&ranked.bits, host.data(), "the bits");
	return ranked;
}

static void ranked_free(struct ranked *ranked)
{
	arena_free(&ranked->bits);
	arena_free(&ranked->ranks);
	arena_free(&ranked->scratch);
}

static float value_of(const unsigned char *at)
{
	float value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* A shift that bitmap.h allows for these floats; where there are NaNs and infinities, none is. */
static bool random_shift(const bytes_t &floats, int *shift)
{
	int exponent = -200, low;

	for (size_t at = 0; at < floats.size(); at += 4) {
		const float value = value_of(&floats[at]);
		int own;

		if (!std::isfinite(value))
			return false;
		std::frexp(value, &own);
		if (value != 0 && own > exponent)
			exponent = own;
	}
	low = 30 - exponent < 200 ? 30 - exponent : 200;
	*shift = low - static_cast<int>(random_below(3) == 0 ? random_below(60) : 0);
	return *shift >= -200;
}

/* What stands for four bytes of the tensor when it is packed; in doubles, which hold it exactly. */
static void plain_encode(unsigned char *at, int shift)
{
	const double scaled = std::ldexp(static_cast<double>(value_of(at)), shift);
	const int32_t fixed = static_cast<int32_t>(std::nearbyint(scaled));

	memcpy(at, &fixed, sizeof(fixed));
}

/* The reverse; dividing is done on the float. */
static void plain_decode(unsigned char *at, int shift, uint32_t divisor)
{
	volatile float value;
	float result;
	int32_t fixed;

	memcpy(&fixed, at, sizeof(fixed));
	value = static_cast<float>(
		std::ldexp(static_cast<double>(static_cast<float>(fixed)), -shift));
	value = value / static_cast<float>(divisor);
	result = value;
	memcpy(at, &result, sizeof(result));
}

static bytes_t plain_pack(const struct sample *sample, const struct ranked *ranked)
{
	bytes_t packed;

	for (uint64_t block = 0; block < sample->block_count; block++) {
		if (!is_set(ranked->host, block))
			continue;
		for (uint64_t i = 0; i < sample->block_bytes; i++) {
			const uint64_t at = block * sample->block_bytes + i;

			packed.push_back(at < sample->host.size() ? sample->host[at] : 0);
		}
	}
	return packed;
}

static void check_pack(const struct sample *sample)
{
	struct ranked ranked = ranked_make(random_bitmap(sample->block_count), sample->block_count);
	struct bitmap_cuda_form form = {};
	bytes_t want = plain_pack(sample, &ranked), engine;
	struct arena packed = arena_make(want.size(), sample->elem_bytes, random_below(2) == 0);

	form.fixed = sample->tensor.dtype == DTYPE_F32 && random_below(3) != 0 &&
	             random_shift(sample->host, &form.shift);
	form.ctas_max = random_below(3);
	engine = want;
	for (size_t at = 0; at < want.size() && form.fixed; at += 4)
		plain_encode(&want[at], form.shift);
	if (form.fixed)
		bitmap_best()->fixed_encode(engine.data(), engine.data(), engine.size() / 4,
		                            form.shift);
	require(engine == want, "bitmap/ encodes otherwise");
	cuda_ok(kernels->pack(&sample->tensor, bits_of(&ranked), ranks_of(&ranked), &form,
	                      arena_at(&packed), stream));
	finish();
	arena_check(&packed, want.data(), form.fixed ? "pack to fixed32" : "pack");
	arena_free(&packed);
	ranked_free(&ranked);
}

/* Section 4.2 of the protocol, by search: which block of group `group` is the shard's? */
static uint64_t plain_deal(const struct bitmap_cuda_deal *deal, uint64_t group)
{
	const uint64_t mixed = group * UINT64_C(0x9e3779b97f4a7c15) >> 33 & UINT32_MAX;

	for (uint64_t place = 0; place < deal->shard_count; place++)
		if ((place + mixed % deal->shard_count) % deal->shard_count == deal->shard)
			return group * deal->shard_count + place;
	return UINT64_MAX;
}

/* Some shard's blocks, from one of them on; sometimes more than there are. */
static struct bitmap_cuda_deal random_deal(uint64_t block_count)
{
	struct bitmap_cuda_deal deal = {0, 1, 0, block_count};
	uint64_t groups;

	if (random_below(3) == 0)
		return deal;
	deal.shard_count = static_cast<uint32_t>(1 + random_below(9));
	deal.shard = static_cast<uint32_t>(random_below(deal.shard_count));
	groups = (block_count + deal.shard_count - 1) / deal.shard_count;
	deal.first_index = random_below(2) == 0 ? 0 : random_below(groups + 1);
	deal.index_count = groups - deal.first_index;
	if (random_below(3) == 0)
		deal.index_count = random_below(deal.index_count + 70);
	return deal;
}

/* `data` is the tensor before, and after. */
static void plain_unpack(const struct sample *shape, const struct bitmap_cuda_deal *deal,
                         const struct ranked *ranked, const bytes_t &packed, bool clear,
                         bytes_t *data)
{
	uint64_t rank = 0;

	for (uint64_t i = 0; i < deal->index_count; i++) {
		const uint64_t block = plain_deal(deal, deal->first_index + i);
		const bool set = is_set(ranked->host, i);

		for (uint64_t at = 0; at < shape->block_bytes; at++) {
			const uint64_t to = block * shape->block_bytes + at;

			if (block < shape->block_count && to < data->size() && (set || clear))
				(*data)[to] = set ? packed[rank * shape->block_bytes + at] : 0;
		}
		rank += set;
	}
}

static void check_unpack(struct sample *sample)
{
	const struct bitmap_cuda_deal deal = random_deal(sample->block_count);
	struct ranked ranked = ranked_make(random_bitmap(deal.index_count), deal.index_count);
	const bool clear = random_below(2) == 0;
	struct bitmap_cuda_form form = {};
	bytes_t packed(ranked.set_count * sample->block_bytes), decoded, engine;
	struct arena src = arena_make(packed.size(), sample->elem_bytes, random_below(2) == 0);
	struct bitmap_tensor shape = sample->tensor;

	for (unsigned char &byte : packed)
		byte = static_cast<unsigned char>(random_bits() >> 32);
	arena_fill(&src, packed.data());
	decoded = packed;
	form.fixed = sample->tensor.dtype == DTYPE_F32 && random_below(3) != 0;
	form.shift = static_cast<int>(random_below(401)) - 200;
	form.divisor = static_cast<uint32_t>(random_below(2) == 0 ? 1 : 1 + random_below(300));
	form.ctas_max = random_below(3);
	for (size_t at = 0; at < decoded.size() && form.fixed; at += 4)
		plain_decode(&decoded[at], form.shift, form.divisor);
	engine = packed;
	if (form.fixed)
		bitmap_best()->fixed_decode(engine.data(), engine.data(), engine.size() / 4,
		                            form.shift, form.divisor);
	require(engine == decoded, "bitmap/ decodes otherwise");
	plain_unpack(sample, &deal, &ranked, decoded, clear, &sample->host);
	shape.data = nullptr;
	cuda_ok(kernels->unpack(&shape, &deal, bits_of(&ranked), ranks_of(&ranked), arena_at(&src),
	                        &form, clear, arena_at(&sample->device), stream));
	finish();
	arena_check(&sample->device, sample->host.data(), clear ? "unpack and clear" : "unpack");
	arena_check(&src, packed.data(), "the packed blocks");
	arena_free(&src);
	ranked_free(&ranked);
}

/* Many words: several tiles, whose counts are added up. */
static void check_rank(uint64_t bit_count)
{
	struct ranked ranked;

	snprintf(arena_case, sizeof(arena_case), "rank of %llu bits",
	         static_cast<unsigned long long>(bit_count));
	ranked = ranked_make(random_bitmap(bit_count), bit_count);
	ranked_free(&ranked);
}

/* Arguments that the header rules out are refused, and nothing is launched. */
static void check_refused()
{
	struct arena data = arena_make(4096, 8, false);
	const bytes_t poison(4096, POISON);
	uint64_t *bits = reinterpret_cast<uint64_t *>(arena_at(&data));
	uint32_t *ranks = reinterpret_cast<uint32_t *>(arena_at(&data));
	const struct bitmap_tensor good = {arena_at(&data), 100, 10, DTYPE_F32};
	const struct bitmap_tensor half = {arena_at(&data), 100, 10, DTYPE_F16};
	const struct bitmap_tensor bad[] = {
		{arena_at(&data), 100, 0, DTYPE_F32},
		{arena_at(&data), 100, 65537, DTYPE_F32},
		{arena_at(&data) + 2, 100, 10, DTYPE_F32},
		{nullptr, 100, 10, DTYPE_F32},
		{arena_at(&data), (UINT64_C(1) << 48) + 1, 10, DTYPE_F32},
		{arena_at(&data), 100, 10, static_cast<enum dtype>(7)},
	};
	const struct bitmap_cuda_form plain = {false, 0, 1, 0};
	const struct bitmap_cuda_form wrong[] = {
		{true, 201, 1, 0}, {true, -201, 1, 0}, {true, 0, 0, 0}};
	const struct bitmap_cuda_deal deal = {0, 1, 0, 10};
	const struct bitmap_cuda_deal astray[] = {
		{1, 1, 0, 10}, {0, 0, 0, 10}, {0, 1, 0, UINT64_C(1) << 32}};
	const int refused = cudaErrorInvalidValue;

	snprintf(arena_case, sizeof(arena_case), "refused");
	for (const struct bitmap_tensor &tensor : bad) {
		require(kernels->scan(&tensor, bits, nullptr, stream) == refused, "scan");
		require(kernels->pack(&tensor, bits, ranks, &plain, bits, stream) == refused,
		        "pack");
		require(kernels->unpack(&tensor, &deal, bits, ranks, bits, &plain, true,
		                        const_cast<void *>(tensor.data), stream) == refused,
		        "unpack");
	}
	const struct bitmap_tensor whole = {arena_at(&data), 100, 10, DTYPE_I32};
	require(kernels->scan(&whole, bits, bits, stream) == refused, "integers have no magnitude");
	require(kernels->rank(bits, UINT64_C(1) << 32, ranks, ranks, stream) == refused, "rank");
	for (const struct bitmap_cuda_form &form : wrong) {
		require(form.divisor == 0 ||
		                kernels->pack(&good, bits, ranks, &form, bits, stream) == refused,
		        "pack's form");
		require(kernels->unpack(&good, &deal, bits, ranks, bits, &form, true, bits,
		                        stream) == refused,
		        "unpack's form");
		require(kernels->pack(&half, bits, ranks, &form, bits, stream) == refused,
		        "fixed32 of halves");
	}
	for (const struct bitmap_cuda_deal &other : astray)
		require(kernels->unpack(&good, &other, bits, ranks, bits, &plain, true, bits,
		                        stream) == refused,
		        "deal");
	require(kernels->pack(&good, bits, ranks, &plain, arena_at(&data) + 2, stream) == refused,
	        "packed blocks between elements");
	finish();
	arena_check(&data, poison.data(), "what was refused");
	arena_free(&data);
}

/* No elements: rank has one number to write, and nobody else anything. */
static void check_nothing()
{
	const struct bitmap_tensor nothing = {nullptr, 0, 256, DTYPE_F32};
	const struct bitmap_cuda_form plain = {false, 0, 1, 0};
	const struct bitmap_cuda_deal deal = {0, 1, 0, 0};
	struct arena magnitude = arena_make(8, 8, false);
	const uint64_t zero = 0;

	snprintf(arena_case, sizeof(arena_case), "nothing");
	cuda_ok(kernels->scan(&nothing, nullptr, reinterpret_cast<uint64_t *>(arena_at(&magnitude)),
	                      stream));
	cuda_ok(kernels->pack(&nothing, nullptr, nullptr, &plain, nullptr, stream));
	cuda_ok(kernels->unpack(&nothing, &deal, nullptr, nullptr, nullptr, &plain, true, nullptr,
	                        stream));
	finish();
	arena_check(&magnitude, &zero, "magnitude of nothing");
	arena_free(&magnitude);
	check_rank(0);
}

static void check_round(unsigned round)
{
	struct sample sample = sample_make(round % 50 == 49 ? 1500000 : 20000);

	check_scan(&sample);
	check_pack(&sample);
	check_unpack(&sample);
	sample_free(&sample);
}

/* More than 2^32 bytes where the GPU has them three times; 0: none. */
static void check_large(uint64_t bytes)
{
	size_t free_bytes = 0, total = 0;

	if (bytes == 0)
		return;
	cuda_ok(cudaMemGetInfo(&free_bytes, &total));
	if (free_bytes < 4 * bytes) {
		printf("not tested: tensors of %llu bytes, for want of memory\n",
		       static_cast<unsigned long long>(bytes));
		return;
	}
	large_check(stream, DTYPE_F32, 256, bytes);
	large_check(stream, DTYPE_BF16, 33, bytes);
	large_check(stream, DTYPE_F64, 4096, bytes);
}

int main(int argc, char **argv)
{
	const unsigned long rounds = argc > 1 ? strtoul(argv[1], nullptr, 0) : ROUNDS;
	const uint64_t large = argc > 2 ? strtoull(argv[2], nullptr, 0) : LARGE_BYTES;

	random_seed();
	cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	check_refused();
	check_nothing();
	for (uint64_t words : {1, 63, 64, 4095, 4096, 4097, 8192, 20000})
		check_rank(words * 64 - random_below(64));
	for (unsigned round = 0; round < rounds; round++)
		check_round(round);
	check_large(large);
	cuda_ok(cudaStreamDestroy(stream));
	printf("%lu tensors\n", rounds);
	return 0;
}
