// SPDX-License-Identifier: BSD-3-Clause
/* test_knock.c - which datagrams pass, and does multicast: the link's KNOCKs and their answers */

#include "tests/unit/test_link.h"
#include "tests/unit/unit.h"

/* Ten rounds of each size, 20 ms apart, then the next smaller; and again from the top, but half as often, to every 160 ms. */
TEST(sizes)
{
	static const uint32_t sizes[] = {8972, 3470, 1472, 1452, 1432, 1372, 1232, 584};
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);
	struct link_config config = basic();
	struct link *link;
	uint32_t channels;

	config.silence_us = config.join_us = UINT32_MAX; /* only knocking is due */
	link = probing(config);
	for (size_t i = 0; i < 5 * count + 1; i++) {
		const uint32_t size = sizes[i % count];
		const uint64_t wait_us = 20000u << (i / count < 3 ? i / count : 3);

		for (int round = 0; round < 10; round++) {
			assert_int_equal(knocks(link, size, &channels), 2);
			assert_int_equal(knocks(link, size, &channels), 0);
			assert_true(link_deadline(link) == now_us + wait_us);
			now_us += wait_us - 1;
			assert_int_equal(knocks(link, size, &channels), 0);
			now_us++;
		}
	}
	link_close(link);
}

/* An answer of the wrong size, kind, rank, token or channel is none. */
TEST(wrong_answers)
{
	struct link_config config = basic();
	struct packet packet = {
		.kind = WIRE_KNOCKED, .channel = 5, .worker = 1, .token = GROUP_TOKEN + 1};
	struct link *link;
	uint32_t channels;

	config.multicast = false;
	link = probing(config);
	answer(link, WIRE_KNOCKED, 9, 8972);
	link_packet(link, &packet, 8972, now_us);
	packet.token = GROUP_TOKEN;
	packet.worker = 2;
	link_packet(link, &packet, 8972, now_us);
	answer(link, WIRE_KNOCKED, 5, 3470);
	answer(link, WIRE_KNOCKED, 6, 8972);
	answer(link, WIRE_STATUS_BACK, 5, 8972);
	answer(link, WIRE_PROBE, 5, 8972);
	assert_int_equal(link_look(link)->state, LINK_PROBING);
	assert_int_equal(knocks(link, 8972, &channels), 1); /* who has answered is left alone */
	assert_int_equal(channels, 1);
	answer(link, WIRE_KNOCKED, 5, 8972);
	assert_int_equal(link_look(link)->state, LINK_PROBED);
	link_ready(link, 8972);
	assert_false(heard(link, CONTROL_READY).multicast);
	link_close(link);
}

/* The number that the KNOCK to send next carries. */
static uint64_t number_of_next(struct link *link)
{
	struct packet_out out = {.scratch = scratch};
	uint64_t number;

	assert_true(link_pull(link, now_us, &out));
	memcpy(&number, out.head + offsetof(struct wire_header, number), sizeof(number));
	return number;
}

/* Asked to show that it hears the aggregator, a worker does so at once, but not for ever: once in a round. */
TEST(asked)
{
	struct link_config config = basic();
	struct link *link;
	uint32_t channels;

	config.multicast = false;
	link = probing(config);
	assert_int_equal(knocks(link, 8972, &channels), 2);
	answer_with(link, 9, 32, 0x99);
	assert_true(link_deadline(link) <= now_us);
	assert_true(number_of_next(link) == 0x99);
	assert_int_equal(knocks(link, 8972, &channels), 0);
	answer_with(link, 9, 32, 0x98); /* another one: it holds, and waits for the next round */
	answer_with(link, 5, 32, 0x55);
	assert_true(number_of_next(link) == 0x55);
	assert_int_equal(knocks(link, 8972, &channels), 0);
	assert_true(link_deadline(link) > now_us);
	now_us = link_deadline(link);
	assert_true(number_of_next(link) == 0x55);
	assert_true(number_of_next(link) == 0x98);
	assert_int_equal(knocks(link, 8972, &channels), 0);
	answer(link, WIRE_KNOCKED, 5, 8972);
	assert_int_equal(link_look(link)->state, LINK_PROBING);
	answer_with(link, 9, 8972, 0x98); /* however long it is */
	assert_int_equal(link_look(link)->state, LINK_PROBING);
	assert_true(number_of_next(link) == 0x98);
	answer(link, WIRE_KNOCKED, 9, 8972);
	assert_int_equal(link_look(link)->state, LINK_PROBED);
	assert_int_equal(knocks(link, 8972, &channels), 0);
	link_close(link);
}

/* Without a PROBE: 100 ms more of knocking, on one channel, then without multicast. */
TEST(no_probe)
{
	struct link *link = probing(basic());
	uint64_t from_us = now_us;
	uint32_t channels;

	assert_int_equal(knocks(link, 8972, &channels), 2);
	answer(link, WIRE_KNOCKED, 5, 8972);
	answer(link, WIRE_KNOCKED, 9, 8972);
	assert_int_equal(link_look(link)->state, LINK_PROBING);
	while (link_look(link)->state == LINK_PROBING && now_us < from_us + 1000000) {
		now_us = link_deadline(link) > now_us ? link_deadline(link) : now_us;
		assert_int_equal(knocks(link, 8972, &channels), now_us < from_us + 100000);
		assert_true(channels == 1 || now_us >= from_us + 100000);
	}
	assert_int_equal(link_look(link)->state, LINK_PROBED);
	assert_true(now_us == from_us + 100000);
	link_ready(link, 8972);
	assert_false(heard(link, CONTROL_READY).multicast);
	link_close(link);
	link = probing(basic());
	link_no_multicast(link);
	answer(link, WIRE_KNOCKED, 5, 8972);
	answer(link, WIRE_KNOCKED, 9, 8972);
	assert_int_equal(link_look(link)->state, LINK_PROBED);
	link_close(link);
}
