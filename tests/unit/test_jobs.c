// SPDX-License-Identifier: BSD-3-Clause
/* test_jobs.c - who may join, and a job's way to START */

#include "ebpf/seal.h"
#include "tests/unit/test_jobs.h"

/* ---- the way to START ---- */

BENCH_TEST(way)
{
	struct control_message m = join_of("way", 1, 2), ready = {.kind = CONTROL_READY};
	const struct control_message *welcome[2], *start;
	struct jobs_view view;

	connect_worker(b, 1);
	m.payload = 1400;
	m.rcvbuf = 2 * 1400 * 20; /* holds 20 datagrams: a window of 16 */
	say(b, 1, &m);
	expect_silence(b, 1); /* one is missing */
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_int_equal(view.state, JOB_FORMING);
	assert_int_equal(totals_of(b).bytes, 0);
	join(b, 0, "way", 0, 2);
	for (uint32_t i = 0; i < 2; i++) {
		welcome[i] = expect_line(b, i, CONTROL_WELCOME);
		assert_int_equal(welcome[i]->channel_count, 2);
		assert_int_equal(welcome[i]->payload, 1400);
		assert_int_equal(welcome[i]->window, 16);
		assert_int_equal(welcome[i]->op_slots, 2);
		assert_int_equal(welcome[i]->segments_ahead, 2);
		assert_string_equal(welcome[i]->group, "");
		assert_string_equal(welcome[i]->data_address, "");
	}
	assert_true(welcome[0]->token != welcome[1]->token);
	assert_true(welcome[0]->group_token == welcome[1]->group_token);
	assert_int_equal(welcome[0]->first_frame, welcome[1]->first_frame);
	assert_int_equal(b->attached_count, 2);
	assert_true(b->attached[0].group_token == welcome[0]->group_token);
	assert_true(totals_of(b).bytes > 0);
	ready.payload = 1400;
	ready.multicast = true; /* there is none */
	say(b, 0, &ready);
	expect_silence(b, 0);
	ready.payload = 1252;
	say(b, 1, &ready);
	for (uint32_t i = 0; i < 2; i++) {
		start = expect_line(b, i, CONTROL_START);
		assert_int_equal(start->payload, 1252);
		assert_int_equal(start->window, 16);
		assert_in_range(start->window_start, 1, 16);
		assert_false(start->multicast);
	}
	assert_int_equal(b->started, 2);
	assert_int_equal(b->start_window, 16);
	assert_true(jobs_view(b->jobs, 0, &view));
	assert_int_equal(view.state, JOB_RUNNING);
	assert_string_equal(view.name, "way");
	assert_true(view.world == 2 && view.joined == 2 && view.payload == 1252 && !view.multicast);
	assert_int_equal(view.bytes, totals_of(b).bytes);
	assert_false(jobs_view(b->jobs, 1, &view));
	assert_int_equal(totals_of(b).jobs_started, 1);
}

/* By worker, as far as the PROBEs came. */
TEST(multicast)
{
	struct jobs_config config = config_usual();
	struct control_message ready = {.kind = CONTROL_READY, .payload = PAYLOAD};
	struct bench *b;

	config.group_nets[0] = net_ipv4(0xefc00000);
	config.group_port = 4711;
	config.data = (struct net_addr){net_ipv4(0x0a000001), 4712};
	b = bench_open(&config);
	for (uint32_t rank = 0; rank < 2; rank++)
		join(b, rank, "group", rank, 2);
	for (uint32_t rank = 0; rank < 2; rank++) {
		const struct control_message *m = expect_line(b, rank, CONTROL_WELCOME);

		char group[NET_TEXT_BYTES];

		net_format(&(struct net_addr){b->attached[0].group, 4711}, group);
		assert_string_equal(m->group, group);
		assert_memory_equal(m->group, "239.192.", 8);
		assert_string_equal(m->data_address, "10.0.0.1:4712");
	}
	for (uint32_t rank = 0; rank < 2; rank++) {
		ready.multicast = rank == 1;
		say(b, rank, &ready);
	}
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_int_equal(expect_line(b, rank, CONTROL_START)->multicast, rank == 1);
		assert_int_equal(b->start_multicast[rank], rank == 1);
	}
	bench_close(b);
}

/* The group is sent to by way of the address that most workers use, whoever opened the job. */
TEST(group_address)
{
	struct jobs_config config = config_usual();
	struct bench *b;

	config.group_nets[0] = net_ipv4(0xefc00000);
	config.group_port = 4711;
	b = bench_open(&config);
	for (uint32_t rank = 0; rank < 3; rank++)
		join(b, rank, "each", rank, 3);
	assert_int_equal(net_ip_number(&b->attached[0].group_from), 0x7f000001);
	b->address_count = 2; /* workers 3 and 5 use the second, 4 the first */
	join(b, 4, "two", 0, 3);
	join(b, 3, "two", 1, 3);
	join(b, 5, "two", 2, 3);
	assert_int_equal(b->attached_count, 4);
	assert_int_equal(net_ip_number(&b->attached[2].group_from), 0x7f000002);
	assert_int_equal(net_ip_number(&b->attached[3].group_from), 0x7f000002);
	bench_close(b);
}

/* The group is of the family in which most workers have connected, or in which datagrams go. */
TEST(group_family)
{
	struct jobs_config config = config_usual();
	const struct control_message *welcome;
	struct bench *b;

	config.group_nets[0] = net_ipv4(0xefc00000);
	config.group_nets[1] = (struct net_ip){.bytes = {0xff, 0x15, [13] = 7}};
	config.group_port = 4711;
	b = bench_open(&config);
	b->address_count = 1;
	join(b, 0, "four", 0, 1);
	assert_memory_equal(expect_line(b, 0, CONTROL_WELCOME)->group, "239.192.", 8);
	b->six_from = 2;
	join(b, 2, "six", 0, 3);
	join(b, 3, "six", 1, 3);
	join(b, 1, "six", 2, 3);
	welcome = expect_line(b, 2, CONTROL_WELCOME);
	assert_memory_equal(welcome->group, "[ff15::7:", 9);
	assert_non_null(strstr(welcome->group, "]:4711"));
	assert_int_equal(b->attached[2].group_from.bytes[15], 1);
	bench_close(b);
	config.data = (struct net_addr){net_ipv4(0x0a000001), 4712};
	b = bench_open(&config);
	join(b, 0, "data", 0, 1);
	assert_memory_equal(expect_line(b, 0, CONTROL_WELCOME)->group, "239.192.", 8);
	bench_close(b);
}

/* Jobs and threads share out the channel numbers; the low byte is the thread's (section 2.3). */
TEST(channel_numbers)
{
	const uint32_t threads[] = {1, 2, 3, 5, 64};

	for (size_t t = 0; t < 5; t++) {
		struct jobs_config config = config_usual();
		struct bench *b;

		config.threads = threads[t];
		config.jobs_max =
			JOBS_MAX < CHANNELS_MAX / threads[t] ? JOBS_MAX : CHANNELS_MAX / threads[t];
		config.peers_max = config.jobs_max;
		config.window_bytes = 0;
		config.op_slots = config.segments_ahead = 1;
		config.bytes_max = SIZE_MAX;
		b = bench_open(&config);
		for (uint32_t i = 0; i < config.jobs_max; i++) {
			char name[32];

			snprintf(name, sizeof(name), "job%u", i);
			join(b, 0, name, 0,
			     1); /* port_attach() sees to it that none is used twice */
			expect_line(b, 0, CONTROL_WELCOME);
		}
		b->workers[0].many = true;
		for (uint32_t i = 0; i < b->attached_count; i++)
			assert_int_equal((b->attached[i].id & 255) % threads[t], i % threads[t]);
		bench_close(b);
	}
}

/* ---- who may not ---- */

/* Worker 0 waits for a peer; what worker 1 asks is refused, and changes nothing for worker 0. */
static void check_refused(const struct control_message *message, const char *code)
{
	struct bench *b = usual_open();

	join(b, 0, "job", 0, 2);
	connect_worker(b, 1);
	say(b, 1, message);
	expect_end(b, 1, code, 0);
	assert_int_equal(totals_of(b).joins_refused, 1);
	assert_int_equal(totals_of(b).peers, 1);
	assert_int_equal(totals_of(b).jobs, 1);
	expect_silence(b, 0);
	say(b, 1, message); /* its words no longer count */
	assert_int_equal(totals_of(b).joins_refused, 1);
	join(b, 1, "job", 1, 2);
	expect_line(b, 0, CONTROL_WELCOME);
	bench_close(b);
}

TEST(refused)
{
	struct control_message m;

#define REFUSED(field, value, code)                                                                \
	(m = join_of("job", 1, 2), m.field = (value), check_refused(&m, code))
	REFUSED(version, 0, "version");
	REFUSED(version, WIRE_VERSION - 1, "version");
	REFUSED(version, WIRE_VERSION + 1, "version");
	REFUSED(world, 5, "world");
	REFUSED(world, UINT32_MAX, "world");
	REFUSED(rank, 2, "rank");
	REFUSED(rank, UINT32_MAX, "rank");
	REFUSED(payload, 583, "payload");
	REFUSED(payload, 0, "payload");
	m = join_of("new", 0, 5);
	check_refused(&m, "world");
	REFUSED(rank, 0, "rank");   /* taken */
	REFUSED(world, 3, "world"); /* the job's is 2 */
	REFUSED(world, 4, "world");
	REFUSED(kind, CONTROL_LEAVE, "protocol");
#undef REFUSED
}

/* The text names who has the rank, and who has opened the job. */
TEST(refused_texts)
{
	struct bench *b = usual_open();

	join(b, 0, "job", 0, 2);
	join(b, 1, "job", 0, 2);
	assert_non_null(strstr(expect_end(b, 1, "rank", 0)->text, "host0"));
	join(b, 1, "job", 1, 3);
	assert_non_null(strstr(expect_end(b, 1, "world", 0)->text, "host0"));
	/* Who has opened it may be gone. */
	join(b, 1, "job", 1, 2);
	expect_line(b, 0, CONTROL_WELCOME);
	expect_line(b, 1, CONTROL_WELCOME);
	bench_close(b);
	b = usual_open();
	join(b, 0, "job", 0, 3);
	join(b, 1, "job", 1, 3);
	jobs_gone(b->jobs, b->workers[0].peer, "reset");
	join(b, 2, "job", 1, 2);
	assert_non_null(strstr(expect_end(b, 2, "world", 0)->text, "gone"));
	bench_close(b);
}

BENCH_TEST(running)
{
	job_running(b, 0, "job", 2);
	join(b, 2, "job", 0, 2);
	expect_end(b, 2, "rank", 0);
	say_kind(b, 0, CONTROL_LEAVE);
	join(b, 2, "job", 0, 2);
	expect_end(b, 2, "running", 0);
	expect_line(b, 1, CONTROL_LEFT);
	expect_silence(b, 1);
}

BENCH_TEST(limits)
{
	join(b, 0, "a", 0, 4);
	join(b, 1, "b", 0, 4);
	join(b, 2, "c", 0, 4);
	join(b, 3, "d", 0, 4);
	expect_end(b, 3, "jobs", 0);
	join(b, 3, "a", 1, 4);
	join(b, 4, "a", 2, 4);
	join(b, 5, "c", 3, 4);
	assert_false(connect_from(b, 6, 1));
	expect_end(b, 6, "connections", 0);
	assert_int_equal(totals_of(b).joins_refused, 2);
	assert_int_equal(totals_of(b).peers, 6);
	jobs_gone(b->jobs, b->workers[1].peer, "reset"); /* with its only worker job b is gone */
	join(b, 6, "d", 0, 4);
	expect_silence(b, 6);
}

BENCH_TEST(drain)
{
	job_running(b, 0, "going", 2);
	join(b, 2, "forming", 0, 2);
	jobs_drain(b->jobs);
	assert_true(totals_of(b).draining);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(expect_line(b, i, CONTROL_PING)->drains);
	join(b, 3, "new", 0, 1);
	expect_end(b, 3, "draining", 0);
	/* What has begun may go on, a job that waits for its last worker too. */
	join(b, 3, "forming", 1, 2);
	expect_line(b, 2, CONTROL_WELCOME);
	expect_line(b, 3, CONTROL_WELCOME);
	expect_silence(b, 0);
	say_kind(b, 0, CONTROL_LEAVE);
	say_kind(b, 1, CONTROL_LEAVE);
	assert_int_equal(totals_of(b).jobs_finished, 1);
}

/* ---- keys ---- */

/* Whoever has the key of a name may join this job, in any membership, and no other. */
TEST(keys)
{
	static const struct {
		const char *asked;
		bool good;
	} cases[] = {{"secret", true}, {"secret/7", true}, {"other", false}, {"secre", false}};
	struct jobs_config config = config_usual();

	config.keys = 2;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_message message = join_of(cases[i].asked, 0, 1);
		struct bench *b = bench_open(&config);

		connect_secured(b, 0, "secret", 7);
		assert_int_equal(jobs_peer_owner(b->workers[0].peer), 7);
		say(b, 0, &message);
		if (!cases[i].good)
			expect_end(b, 0, "key", 0);
		else
			expect_line(b, 0, CONTROL_WELCOME);
		assert_int_equal(totals_of(b).jobs, cases[i].good);
		bench_close(b);
	}
}

/* What seals are made of is fresh for each membership: WELCOME's seed, and what each connection has for its name. */
TEST(seals)
{
	struct jobs_config config = config_usual();
	const struct control_message *welcome;
	uint8_t seeds[2][SECRET_BYTES];
	struct seed_keys keys;
	struct bench *b;

	config.keys = 1;
	b = bench_open(&config);
	for (uint32_t i = 0; i < 2; i++) {
		const struct control_message message = join_of(i == 0 ? "a/1" : "a/22", 0, 1);
		const struct seals *seals;

		connect_secured(b, i, "a", 7);
		say(b, i, &message);
		welcome = expect_line(b, i, CONTROL_WELCOME);
		memcpy(seeds[i], welcome->seed, SECRET_BYTES);
		assert_true(welcome->token == 0 && welcome->group_token == 0);
		seals = b->attached[b->attached_count - 1].seals;
		assert_int_equal(seed_expand(seeds[i], &keys), 0);
		assert_memory_equal(&seals->stretch, &keys.stretch, sizeof(keys.stretch));
		assert_memory_equal(&seals->group, &keys.group, sizeof(keys.group));
		assert_true(seals->workers[0].words[0] == (uintptr_t)&b->workers[i]);
		assert_true(seals->workers[0].words[1] == strlen(message.job));
	}
	assert_memory_not_equal(seeds[0], seeds[1], SECRET_BYTES);
	bench_close(b);
}

/* A copy has what is there: each job with its own workers, whatever happens to them afterwards. */
BENCH_TEST(copy)
{
	struct jobs_copy *copy;

	copy = jobs_copy(b->jobs);
	assert_true(copy->job_count == 0 && !copy->failed && copy->totals.peers == 0);
	free(copy);
	job_running(b, 0, "two", 2);
	join(b, 2, "one-of-three", 1, 3);
	copy = jobs_copy(b->jobs);
	assert_int_equal(copy->job_count, 2);
	say_kind(b, 0, CONTROL_ABORT);
	jobs_end(b->jobs, "all");
	assert_int_equal(copy->totals.jobs, 2);
	assert_int_equal(copy->totals.peers, 3);
	assert_string_equal(copy->jobs[0].view.name, "two");
	assert_int_equal(copy->jobs[0].view.state, JOB_RUNNING);
	assert_int_equal(copy->jobs[0].view.channel_count, 2);
	assert_int_not_equal(copy->jobs[0].view.channel_ids[0], copy->jobs[0].view.channel_ids[1]);
	assert_string_equal(copy->jobs[0].workers[1].host, "host1");
	assert_string_equal(copy->jobs[0].workers[1].state, "ready");
	assert_string_equal(copy->jobs[1].view.name, "one-of-three");
	assert_string_equal(copy->jobs[1].workers[0].state, "missing");
	assert_string_equal(copy->jobs[1].workers[1].host, "host1");
	assert_string_equal(copy->jobs[1].workers[2].state, "missing");
	free(copy);
	copy = jobs_copy(b->jobs);
	assert_true(copy->job_count == 0 && copy->failed);
	free(copy);
}

/* Nobody is impatient with one whose key is being made, until some time after, but with one that shakes no hands. */
TEST(key_awaited)
{
	struct jobs_config config = config_usual();
	struct bench *b;

	config.keys = 1;
	b = bench_open(&config);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(connect_from(b, i, 0x0a000001 + i));
	jobs_awaits_key(b->workers[0].peer, b->now_us + 1);
	b->now_us += b->config.hello_us;
	jobs_tick(b->jobs, b->now_us);
	expect_silence(b, 0);
	expect_end(b, 1, "timeout", 0);
	jobs_tick(b->jobs, ++b->now_us);
	expect_end(b, 0, "timeout", 0);
	/* One that has shaken none is told why, and counted; a member is not ended so. */
	assert_true(connect_from(b, 2, 0x0a000001));
	jobs_refuse(b->jobs, b->workers[2].peer, "key", "it has no key at all");
	expect_end(b, 2, "key", 0);
	assert_int_equal(totals_of(b).joins_refused, 3);
	bench_close(b);
}

/* A worker without a key says something at once, before it joins. */
BENCH_TEST(first_ping)
{
	struct control_message message = join_of("job", 0, 1);

	connect_worker(b, 0);
	say_kind(b, 0, CONTROL_PING);
	expect_silence(b, 0);
	say(b, 0, &message);
	expect_line(b, 0, CONTROL_WELCOME);
}

/* Nobody has to say a thousand lines at once, or a hundred a second. */
BENCH_TEST(says_too_much)
{
	uint32_t said = 0;

	job_probing(b, 0, "job", 2);
	for (uint32_t i = 1; i < 1000; i++) /* beside its JOIN */
		say_kind(b, 0, CONTROL_PING);
	expect_silence(b, 0);
	for (uint32_t i = 0; i < 2000; i++) { /* 40 a second is a worker's right */
		b->now_us += 25000;
		say_kind(b, 1, CONTROL_PING);
	}
	expect_silence(b, 1);
	b->now_us += 1000000;
	while (!b->workers[0].closed && ++said < 5000)
		say_kind(b, 0, CONTROL_PING);
	assert_in_range(said, 1001, 1001); /* the first that is too much */
	assert_non_null(strstr(expect_end(b, 1, "lost", 0)->text, "more lines than"));
}
