// SPDX-License-Identifier: BSD-3-Clause
/* test_comm_loop.c - the communicator's thread: datagrams in and out, sleeping, leaving */

#include "tests/unit/comm_world.h"

/* ---- datagrams ---- */

/* The address says whose a datagram is; who is not known is not heard; a group's are its own. */
static void test_whose(void **state)
{
	struct winnow_comm *comm = *state;
	static const struct {
		uint32_t index;
		uint8_t byte;
	} expected[] = {{1, 'g'}, {1, 'a'}, {2, 'b'}, {0, 'c'}, {1, 'e'}, {0, 'f'}};

	comm->peers[1].group = &w.group;
	world_put(&w.group, (struct net_addr){.ip = net_ipv4(1), .port = 2}, 'g');
	world_put(&w.shared, address[1], 'a');
	world_put(&w.shared, address[2], 'b');
	world_put(&w.shared, address[0], 'c');
	world_put(&w.shared, (struct net_addr){.ip = net_ipv4(0x0a000002), .port = 6666}, 'd');
	world_put(&w.shared, address[1], 'e');
	world_put(&w.shared, address[0], 'f');
	world_ring(w.group.facts.fd);
	world_ring(w.shared.facts.fd);
	world_start(comm);
	await(w.heard_count == 6);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(told(w.heard[i].index), expected[i].index);
		assert_int_equal(told(w.heard[i].byte), expected[i].byte);
	}
	/* And when it sleeps, what comes wakes it. */
	say(world_put(&w.shared, address[2], 'h'));
	world_ring(w.shared.facts.fd);
	await(w.heard_count == 7);
	say(world_put(&w.group, address[0], 'i'));
	world_ring(w.group.facts.fd);
	await(w.heard_count == 8);
	assert_int_equal(told(w.heard[7].index), 1);
}

/* A group is emptied first, but not without end; what one turn leaves of either is not forgotten. */
static void test_groups_first(void **state)
{
	struct winnow_comm *comm = *state;
	const uint32_t grouped = 40 * w.group.facts.burst;
	uint32_t at = 0;

	comm->peers[1].group = &w.group;
	for (uint32_t i = 0; i < grouped; i++)
		world_put(&w.group, address[1], 'g');
	for (uint32_t i = 0; i < NET_BURST_MAX + 1; i++)
		world_put(&w.shared, address[0], 's');
	world_ring(w.shared.facts.fd);
	world_start(comm);
	await(w.heard_count == grouped + NET_BURST_MAX + 1);
	while (w.heard[at].byte == 'g')
		at++;
	assert_int_equal(at, 32 * w.group.facts.burst);
}

/* Each aggregator in turn gets a batch, as large as one send() takes. */
static void batches(struct winnow_comm *comm, uint32_t payload, uint32_t most)
{
	comm->config.payload = payload;
	w.to_send[0] = 2 * most + 1;
	w.to_send[2] = 1;
	world_start(comm);
	await(w.batch_count == 4);
	assert_true(net_addr_same(&w.batches[0].to.to, &address[0]));
	assert_int_equal(w.batches[0].count, most);
	assert_int_equal(w.batches[0].bytes, most);
	assert_int_equal(w.batches[1].count, 1);
	assert_int_equal(w.batches[1].bytes, 3); /* the third's */
	assert_int_equal(w.batches[2].count, most);
	assert_int_equal(w.batches[3].count, 1);
	assert_int_equal(w.batches[3].bytes, 1);
}

static void test_batches_of_bytes(void **state)
{
	batches(*state, 8972, NET_BATCH_BYTES_MAX / 8972);
}

static void test_batches_of_datagrams(void **state)
{
	batches(*state, 1472, NET_BURST_MAX);
}

/* A full socket: nothing is asked of the session before there is room. */
static void test_not_ready(void **state)
{
	struct winnow_comm *comm = *state;

	w.shared.ready = false;
	w.to_send[1] = 5;
	world_start(comm);
	await(w.turns >= 3); /* an eventfd has always room: it looks again and again */
	assert_int_equal(told(w.to_send[1]), 5);
	say(w.shared.ready = true);
	await(w.batch_count == 1);
	assert_int_equal(w.batches[0].count, 5);
	assert_in_range(world_turns_at_rest(), 0, 20);
}

/* There is room again when the thread is about to sleep: it does not. */
static void test_ready_meanwhile(void **state)
{
	w.shared.refusals = 1;
	w.to_send[1] = 5;
	world_start(*state);
	await(w.batch_count == 1);
}

/* What may wait in this host follows the session, but not every small change of it. */
static void test_limit(void **state)
{
	struct winnow_comm *comm = *state;

	world_start(comm);
	await(w.turns >= 1);
	assert_int_equal(told(w.limit_count), 0);
	say(w.own_queue = 1000000);
	do
		world_wake(comm);
	while (told(w.limit_count) == 0);
	for (uint32_t bytes = 1000000; bytes <= 1240000; bytes += 80000) {
		say(w.own_queue = bytes);
		usleep(2000);
		world_wake(comm);
		await(!atomic_load(&comm->woken));
	}
	assert_int_equal(told(w.limit_count), 1);
	say(w.own_queue = 262144);
	do
		world_wake(comm);
	while (told(w.limit_count) == 1);
	assert_int_equal(told(w.limit_count), 2);
	assert_int_equal(w.limits[0], 1000000);
	assert_int_equal(w.limits[1], 262144);
}

static void test_groups_open(void **state)
{
	struct winnow_comm *comm = *state;

	comm->config.multicast = true;
	comm->peers[1].local = net_ipv4(0x0a0000fe);
	world_start(comm);
	await(w.turns > 0);
	assert_int_equal(told(w.opened), 0); /* not known yet */
	say(w.has_group = true);
	world_wake(comm);
	await(w.opened == 1);
	assert_int_equal(net_ip_number(&w.group_config.group), 0xef4d0101);
	assert_int_equal(w.group_config.local.port, 5600);
	assert_int_equal(net_ip_number(&w.group_config.device), 0x0a0000fe);
	assert_int_equal(w.group_config.payload_max, 1472);
	assert_int_equal(w.group_config.buffer_bytes, 65536);
	say(world_put(&w.group, address[0], 'x'));
	world_ring(w.group.facts.fd);
	await(w.heard_count == 1);
	assert_int_equal(told(w.opened), 1);
	assert_int_equal(told(w.no_multicast), 0);
}

static void test_no_multicast(void **state)
{
	struct winnow_comm *comm = *state;

	w.has_group = true;
	world_start(comm);
	await(w.no_multicast == 1);
	world_wake(comm);
	await(!atomic_load(&comm->woken));
	assert_int_equal(told(w.no_multicast), 1);
	assert_int_equal(told(w.opened), 0);
}

/* ---- sleeping ---- */

/* It sleeps until something comes, or its session is due; a line that waits for room wakes it when there is some. */
static void test_sleeps(void **state)
{
	struct winnow_comm *comm = *state;
	uint64_t from_us = clock_us();

	w.deadline_us = from_us + 60000;
	world_start(comm);
	await(w.deadline_us == UINT64_MAX);
	assert_true(clock_us() >= from_us + 60000);
	assert_in_range(world_turns_at_rest(), 0, 20);
	world_wake(comm);
	await(!atomic_load(&comm->woken));
	assert_in_range(world_turns_at_rest(), 0, 20);
	/* A socket has room, so with a line to write it does not sleep. */
	say(w.line = 1);
	world_wake(comm);
	await(w.turns > 1000);
	say(w.line = -1);
	assert_in_range(world_turns_at_rest(), 0, 20);
	/* The far end speaks. */
	assert_int_equal(write(far_ends[2], "x", 1), 1);
	await(w.turns > 2000);
}

/* ---- leaving ---- */

static void test_leaves_busy(void **state)
{
	w.busy = true;
	world_start(*state);
	world_stop(*state);
	world_ends(*state);
	assert_string_equal(w.aborted, "it was destroyed with operations under way");
	assert_int_equal(w.left, 0);
}

/* To another membership: this one is over, and so is what was submitted too late for it. */
static void test_moves(void **state)
{
	struct winnow_comm *comm = *state;

	w.busy = true;
	world_start(comm);
	comm->moves = true;
	world_stop(comm);
	world_ends(comm);
	assert_int_equal(w.moved, 1);
	assert_int_equal(w.left, 0);
	assert_string_equal(w.aborted, "");
}

/* It becomes quiet by what it receives, and nothing else wakes it then. */
static void test_leaves_heard(void **state)
{
	struct winnow_comm *comm = *state;
	uint64_t from_us;

	w.quiet = false;
	w.hears_quiet = true;
	world_start(comm);
	world_stop(comm);
	await(!atomic_load(&comm->woken));
	assert_in_range(world_turns_at_rest(), 0, 20);
	assert_int_equal(told(w.left), 0);
	from_us = clock_us();
	say(world_put(&w.shared, address[0], 'q'));
	world_ring(w.shared.facts.fd);
	world_ends(comm);
	assert_int_equal(w.left, 1);
	assert_true(clock_us() < from_us + COMM_LEAVE_US / 2);
}

/* Others may still need what it has to send again. */
static void test_leaves_quiet(void **state)
{
	struct winnow_comm *comm = *state;

	w.quiet = false;
	world_start(comm);
	world_stop(comm);
	await(!atomic_load(&comm->woken));
	usleep(50000);
	assert_int_equal(told(w.left), 0);
	say(w.quiet = true);
	world_ring(comm->wake_fd);
	world_ends(comm);
	assert_int_equal(w.left, 1);
	assert_string_equal(w.aborted, "");
	assert_true(w.lines >= PEERS);
}

static void test_leaves_unheard(void **state)
{
	uint64_t from_us = clock_us();

	w.quiet = false;
	world_start(*state);
	world_stop(*state);
	world_ends(*state);
	assert_int_equal(w.left, 1);
	assert_true(clock_us() >= from_us + COMM_LEAVE_US);
}

static void test_gives_up(void **state)
{
	struct winnow_comm *comm = *state;

	w.state = comm->state = SESSION_JOINING;
	world_start(comm);
	world_stop(comm);
	world_ends(comm);
	assert_string_equal(w.aborted, "it gave up");
}

/* Its last words go out, if they can. */
static void test_last_line(void **state)
{
	struct winnow_comm *comm = *state;
	uint64_t from_us = clock_us();
	char line[] = "{}\n";

	comm->peers[0].pending = line;
	world_start(comm);
	world_stop(comm);
	world_ends(comm);
	assert_int_equal(w.left, 1);
	assert_true(clock_us() >= from_us + COMM_FLUSH_US);
	comm->peers[0].pending = NULL;
}

#define test(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_whose),
		test(test_groups_first),
		test(test_batches_of_bytes),
		test(test_batches_of_datagrams),
		test(test_not_ready),
		test(test_ready_meanwhile),
		test(test_limit),
		test(test_groups_open),
		test(test_no_multicast),
		test(test_sleeps),
		test(test_leaves_busy),
		test(test_moves),
		test(test_leaves_heard),
		test(test_leaves_quiet),
		test(test_leaves_unheard),
		test(test_gives_up),
		test(test_last_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
