// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_memory.c - what memory jobs may have, and what of it is theirs */

#include "tests/unit/test_jobs_members.h"

/* ---- memory that is short: a sanitizer has its own calloc() ---- */

static uint32_t callocs_left = UINT32_MAX; /* that succeed */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FAILS_ALLOCATIONS 1
void *__libc_calloc(size_t count, size_t bytes);

void *calloc(size_t count, size_t bytes)
{
	if (callocs_left == 0)
		return NULL;
	callocs_left -= callocs_left != UINT32_MAX;
	return __libc_calloc(count, bytes);
}
#else
#define FAILS_ALLOCATIONS 0
#endif

/* The first worker of a job is told the reason, which is no other job's. */
TEST(no_memory)
{
	if (!FAILS_ALLOCATIONS)
		skip();
	for (uint32_t left = 0; left < 3; left++) {
		struct bench *b = usual_open();
		const struct control_message message = join_of("job", 0, 2), *m;

		connect_worker(b, 0);
		callocs_left = left;
		say(b, 0, &message);
		callocs_left = UINT32_MAX;
		m = expect_end(b, 0, "memory", 0);
		assert_string_equal(m->text, "the aggregator is out of memory");
		join(b, 1, "job", 0, 2);
		expect_silence(b, 1);
		bench_close(b);
	}
}

/* Nor does a job continue: its members are let go, and a newcomer still waits at the door. */
TEST(no_memory_to_continue)
{
	if (!FAILS_ALLOCATIONS)
		skip();
	for (uint32_t left = 0; left < 6; left++) {
		struct control_message more = stay_of("job", 0, 2);
		struct bench *b = usual_open();

		more.admit = 1;
		job_running(b, 0, "job", 2);
		knock(b, 2, "job", 0);
		expect_line(b, 0, CONTROL_PING);
		expect_line(b, 1, CONTROL_PING);
		say(b, 0, &more);
		more.rank = 1;
		callocs_left = left;
		say(b, 1, &more);
		callocs_left = UINT32_MAX;
		expect_end(b, 0, "memory", left == 0 ? 2 : 0);
		expect_end(b, 1, "memory", left == 0 ? 2 : 0);
		assert_int_equal(totals_of(b).jobs, 0);
		assert_false(b->workers[2].closed);
		job_running(b, 3, "job/2", 2);
		assert_int_equal(expect_line(b, 3, CONTROL_PING)->waiting, 1);
		bench_close(b);
	}
}

TEST(job_memory)
{
	struct jobs_config config = config_usual();
	struct bench *b = bench_open(&config);
	size_t bytes;

	job_probing(b, 0, "first", 2);
	bytes = totals_of(b).bytes;
	bench_close(b);

	config.job_bytes_max = bytes - 1;
	b = bench_open(&config);
	join(b, 0, "first", 0, 2);
	join(b, 1, "first", 1, 2);
	expect_end(b, 0, "memory", 2);
	expect_end(b, 1, "memory", 2);
	assert_int_equal(totals_of(b).bytes, 0);
	assert_int_equal(totals_of(b).jobs_failed, 1);
	bench_close(b);

	config.job_bytes_max = bytes;
	config.bytes_max = 2 * bytes - 1;
	b = bench_open(&config);
	job_running(b, 0, "first", 2);
	join(b, 2, "second", 0, 2);
	join(b, 3, "second", 1, 2);
	expect_end(b, 2, "memory", 2);
	expect_end(b, 3, "memory", 2);
	expect_silence(b, 0);
	assert_int_equal(totals_of(b).bytes, bytes);
	/* There is room again when the first has ended. */
	say_kind(b, 0, CONTROL_LEAVE);
	say_kind(b, 1, CONTROL_LEAVE);
	assert_int_equal(totals_of(b).bytes, 0);
	job_running(b, 2, "second", 2);
	bench_close(b);
}

/* The largest datagram of a job is the smallest of the largest, the aggregator's among them. */
TEST(payload)
{
	static const uint32_t payloads[][4] = {
		/* the aggregator's, the workers', the job's */
		{1472, 8972, 3470, 1472},
		{8972, 3470, 8972, 3470},
		{8972, 8972, 1372, 1372},
	};

	for (uint32_t i = 0; i < 3; i++) {
		struct jobs_config config = config_usual();
		struct control_message m;
		struct bench *b;

		config.payload_max = payloads[i][0];
		b = bench_open(&config);
		for (uint32_t rank = 0; rank < 2; rank++) {
			m = join_of("job", rank, 2);
			m.payload = payloads[i][1 + rank];
			join_by(b, rank, &m);
		}
		for (uint32_t rank = 0; rank < 2; rank++)
			assert_int_equal(expect_line(b, rank, CONTROL_WELCOME)->payload,
			                 payloads[i][3]);
		bench_close(b);
	}
}

/* What the job turns out to need at START may be more than there is: it ends, and nothing stays. */
TEST(start_memory)
{
	struct jobs_config config = config_usual();
	struct control_message m = join_of("job", 0, 2);
	struct bench *b;
	size_t bytes;

	for (uint32_t round = 0; round < 2; round++) {
		config.payload_max = 8972;
		config.window_bytes = 1 << 20;
		b = bench_open(&config);
		for (uint32_t rank = 0; rank < 2; rank++) {
			m.rank = rank;
			m.payload = 8972;
			m.rcvbuf = 32 << 20;
			join_by(b, rank, &m);
		}
		for (uint32_t rank = 0; rank < 2; rank++)
			expect_line(b, rank, CONTROL_WELCOME);
		bytes = totals_of(b).bytes;
		for (uint32_t rank = 0; rank < 2; rank++)
			say_kind(b, rank, CONTROL_READY);
		for (uint32_t rank = 0; rank < 2 && round == 0; rank++)
			expect_line(b, rank, CONTROL_START);
		for (uint32_t rank = 0; rank < 2 && round == 1; rank++)
			expect_end(b, rank, "memory", 2);
		assert_true(round == 1 || totals_of(b).bytes > bytes);
		config.job_bytes_max = totals_of(b).bytes - 1;
		assert_int_equal(totals_of(b).jobs, round == 0);
		bench_close(b);
	}
}

/* A job of one worker, whose interface carries `joins` and whose path `ready` bytes; `slots`: the kernel lends some. */
static struct control_message run_alone(struct bench *b, uint32_t joins, uint32_t ready, bool slots)
{
	struct control_message m = join_of("job", 0, 1);

	m.payload = joins;
	m.rcvbuf = 32 << 20;
	if (slots)
		b->slots = calloc(b->config.window_bytes / FAST_PAYLOAD_MAX, sizeof(*b->slots));
	join_by(b, 0, &m);
	expect_line(b, 0, CONTROL_WELCOME);
	assert_int_equal(b->lent >= 0, slots);
	m = (struct control_message){.kind = CONTROL_READY, .payload = ready};
	say(b, 0, &m);
	return *expect_line(b, 0, CONTROL_START);
}

/*
 * The window is that of the payload which the paths carry, not of the one that the interfaces have: one
 * worker at MTU 9000 whose aggregator has 1500 is to have as many bytes under way as any other.
 */
TEST(window_of_path)
{
	static const struct {
		uint32_t payload, window;
	} paths[] = {{8972, 128}, {3470, 512}, {1472, 1024}, {WIRE_PAYLOAD_MIN, 2048}};
	size_t bytes[4];

	for (uint32_t i = 0; i < 4; i++) {
		struct jobs_config config = config_usual();
		struct jobs_view view;
		struct bench *b;

		config.payload_max = 8972;
		config.window_bytes = 2 << 20;
		config.rcvbuf_bytes = 32 << 20;
		b = bench_open(&config);
		assert_int_equal(run_alone(b, 8972, paths[i].payload, false).window,
		                 paths[i].window);
		assert_int_equal(b->start_window, paths[i].window);
		assert_true(jobs_view(b->jobs, 0, &view) && view.window == paths[i].window);
		bytes[i] = totals_of(b).bytes;
		assert_int_equal(view.bytes, bytes[i]);
		bench_close(b);
	}
	assert_true(bytes[0] != bytes[2]);
}

/*
 * Slots of the kernel were lent when the job formed. A job whose datagrams they hold keeps them, and has no more frames
 * under way than there are; another gives them back at START.
 */
TEST(slots)
{
	static const struct {
		uint32_t joins, ready, window;
		bool fast;
	} cases[] = {{FAST_PAYLOAD_MAX, WIRE_PAYLOAD_MIN, 8, true}, /* 64 without */
	             {8972, FAST_PAYLOAD_MAX, 8, true},
	             {8972, FAST_PAYLOAD_MAX + 1, 8, false}};

	for (uint32_t i = 0; i < 3; i++) {
		struct jobs_config config = config_usual();
		struct control_message start;
		struct jobs_view view;
		struct bench *b;

		config.threads = 1;
		config.payload_max = 8972;
		b = bench_open(&config);
		start = run_alone(b, cases[i].joins, cases[i].ready, true);
		assert_int_equal(start.window, cases[i].window);
		assert_int_equal(start.fast, cases[i].fast);
		assert_int_equal(b->lent >= 0, cases[i].fast);
		assert_true(jobs_view(b->jobs, 0, &view) && view.fast == cases[i].fast);
		bench_close(b);
	}
}

/* The data plane has no room for the first, or the second, of two channels. */
TEST(attach_fails)
{
	for (uint32_t good = 0; good < 2; good++) {
		struct bench *b = usual_open();

		b->attach_left = good;
		join(b, 0, "job", 0, 2);
		join(b, 1, "job", 1, 2);
		expect_end(b, 0, "memory", 2);
		expect_end(b, 1, "memory", 2);
		assert_int_equal(b->attached_count, 0);
		assert_int_equal(totals_of(b).bytes, 0);
		b->attach_left = 2;
		job_running(b, 0, "job", 2);
		bench_close(b);
	}
}

TEST(config)
{
	struct jobs *const untouched = (void *)&untouched;
	struct jobs *jobs = untouched;
	struct jobs_ports ports = {0};
	struct jobs_config c;

#define IMPOSSIBLE(field, value)                                                                   \
	(c = config_usual(), c.field = (value),                                                    \
	 assert_int_equal(jobs_open(&c, &ports, &jobs), -EINVAL),                                  \
	 assert_ptr_equal(jobs, untouched))
	IMPOSSIBLE(jobs_max, 0);
	IMPOSSIBLE(jobs_max, JOBS_MAX + 1);
	IMPOSSIBLE(threads, 0);
	IMPOSSIBLE(threads, JOBS_THREADS_MAX + 1);
	IMPOSSIBLE(peers_max, 0);
	IMPOSSIBLE(workers_max, 0);
	IMPOSSIBLE(workers_max, WIRE_WORKERS_MAX + 1);
#undef IMPOSSIBLE
	jobs_close(NULL);
}
