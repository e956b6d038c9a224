// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs_site.c - the control plane of a site: what no world of the simulation reaches */

#include <errno.h>

#include "tests/unit/test_jobs.h"

static struct bench *site_open(void)
{
	struct jobs_config config = config_usual();

	config.sited = true;
	return bench_open(&config);
}

#define SITE_TEST(name) TEST_ON(name, struct bench *, b, site_open(), bench_close(b))

static void welcome_from_above(struct bench *b, uint32_t i)
{
	const struct control_message welcome = {.kind = CONTROL_WELCOME,
	                                        .channel_count = b->config.threads,
	                                        .payload = PAYLOAD,
	                                        .silence_ms = 4000,
	                                        .stall_ms = 60000,
	                                        .window = 32,
	                                        .op_slots = 2,
	                                        .segments_ahead = 2,
	                                        .first_frame = 7};

	jobs_up_welcome(b->jobs, b->workers[i].peer, &welcome, b->now_us);
	jobs_check(b->jobs);
}

/* The parent has another worker of this rank, and says so after the others' WELCOME: they do not wait for it. */
SITE_TEST(refused_last)
{
	for (uint32_t rank = 0; rank < 3; rank++)
		join(b, rank, "train", rank, 4);
	welcome_from_above(b, 0);
	welcome_from_above(b, 2);
	expect_silence(b, 0);
	b->upward_count--; /* its link has ended */
	jobs_up_failed(b->jobs, b->workers[1].peer, 4, "rank", "rank 1 of job 'train' is taken");
	expect_end(b, 1, "rank", 0);
	expect_line(b, 0, CONTROL_WELCOME);
	expect_line(b, 2, CONTROL_WELCOME);
	assert_int_equal(totals_of(b).jobs, 1);
}

/* The site has no memory for a link, or no key any more: the worker is told. */
SITE_TEST(no_link)
{
	const struct {
		int err;
		const char *code;
	} cases[] = {{-ENOMEM, "memory"}, {-ENOENT, "key"}, {-EAGAIN, "key"}};

	for (uint32_t i = 0; i < 3; i++) {
		b->up_err = cases[i].err;
		join(b, i, "train", 0, 2);
		expect_end(b, i, cases[i].code, 0);
		assert_int_equal(totals_of(b).jobs, 0);
	}
	assert_int_equal(b->upward_count, 0);
}

/* At the parent those share the first windows who send: one worker of each site. */
BENCH_TEST(few_send)
{
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct control_message message = join_of("train", rank, 4);

		snprintf(message.site, sizeof(message.site), "rack%u", rank / 2);
		message.via = 1 + rank / 2;
		join_by(b, rank, &message);
	}
	for (uint32_t rank = 0; rank < 4; rank++) {
		expect_line(b, rank, CONTROL_WELCOME);
		say_kind(b, rank, CONTROL_READY);
	}
	for (uint32_t rank = 0; rank < 4; rank++)
		assert_int_equal(expect_line(b, rank, CONTROL_START)->window_start, 16);
}
