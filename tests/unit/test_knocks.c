// SPDX-License-Identifier: BSD-3-Clause
/* test_knocks.c - which KNOCK may move a worker's address, and what is known of those that came */

#include "aggregator/jobs/knocks.h"
#include "tests/unit/unit.h"

#define PROOF 0x700

static enum knock_verdict judge(const struct knocker *knocker, uint32_t count, uint64_t number,
                                bool home, bool started)
{
	const struct packet packet = {.kind = WIRE_KNOCK, .frame = count, .number = number};

	return knock_judge(knocker, &(struct knock_arrival){.packet = &packet,
	                                                    .home = home,
	                                                    .started = started,
	                                                    .proof = PROOF});
}

static void note(struct knocker *knocker, uint32_t count, uint64_t number, bool whole,
                 uint64_t now_us)
{
	const struct packet packet = {.kind = WIRE_KNOCK, .frame = count, .number = number};

	knock_note(knocker,
	           &(struct knock_arrival){.packet = &packet, .whole = whole, .proof = PROOF},
	           KNOCK_HOME, now_us);
}

/* Before the start: who shows that he hears us there. */
TEST(joins)
{
	struct knocker knocker = {0};

	assert_int_equal(judge(&knocker, UINT32_MAX, 0, false, false), KNOCK_ASKED);
	assert_int_equal(judge(&knocker, UINT32_MAX, PROOF + 1, false, false), KNOCK_ASKED);
	assert_int_equal(judge(&knocker, UINT32_MAX, PROOF, false, false), KNOCK_HOME);
	note(&knocker, UINT32_MAX, PROOF, false, 900);
	assert_int_equal(judge(&knocker, UINT32_MAX, PROOF, false, false),
	                 KNOCK_STRANGE); /* again */
	assert_int_equal(judge(&knocker, UINT32_MAX, 0, false, false), KNOCK_STRANGE);
	assert_int_equal(judge(&knocker, UINT32_MAX, 0, true, false), KNOCK_HOME);
	assert_int_equal(judge(&knocker, 0, PROOF, false, false), KNOCK_HOME); /* counts wrap */
	assert_int_equal(judge(&knocker, 0, 0, false, false), KNOCK_ASKED);
	note(&knocker, 0, PROOF, false, 900);
	note(&knocker, UINT32_MAX, PROOF, false, 900); /* an old one, from where it came */
	assert_int_equal(knocker.count, 0);
	assert_int_equal(judge(&knocker, UINT32_MAX, PROOF, false, false), KNOCK_STRANGE);
}

/* Once the job has started it also takes a seal. */
TEST(moves)
{
	struct knocker knocker = {.any_us = 900};
	const struct packet packet = {.kind = WIRE_KNOCK, .frame = 1, .number = PROOF};
	struct knock_arrival knock = {.packet = &packet, .started = true, .proof = PROOF};

	assert_int_equal(knock_judge(&knocker, &knock), KNOCK_STRANGE);
	knock.sealed = true;
	assert_int_equal(knock_judge(&knocker, &knock), KNOCK_HOME);
	knock.proof++;
	assert_int_equal(knock_judge(&knocker, &knock), KNOCK_ASKED);
	knock.home = true;
	knock.sealed = false;
	assert_int_equal(knock_judge(&knocker, &knock), KNOCK_HOME);
}

/* Where it is not sure that the worker hears us, it may be heard: only it has the seal. Without one anybody may knock. */
TEST(asked)
{
	const struct packet packet = {.kind = WIRE_KNOCK, .frame = 7};
	struct knock_arrival knock = {.packet = &packet, .whole = true, .proof = PROOF};
	struct knocker knocker = {0};

	knock_note(&knocker, &knock, KNOCK_ASKED, 1000);
	assert_true(knocker.any_us == 0 && knocker.count == 0);
	knock.sealed = true;
	knock_note(&knocker, &knock, KNOCK_ASKED, 1000);
	assert_true(knocker.any_us == 1000 && knocker.whole_us == 1000 && knocker.count == 7);
}

/* Another address, another secret: another proof; never 0. */
TEST(proofs)
{
	const struct seal_key secret = {{1, 2}}, other = {{1, 3}};
	uint64_t path[KNOCK_PATH_WORDS] = {0}, first = knock_proof(&secret, path);

	assert_true(first != 0 && first == knock_proof(&secret, path));
	assert_true(first != knock_proof(&other, path));
	for (uint32_t i = 0; i < KNOCK_PATH_WORDS; i++) {
		path[i] = 1;
		assert_true(first != knock_proof(&secret, path));
		path[i] = 0;
	}
}

TEST(ages)
{
	struct knocker knocker = {0};
	struct jobs_heard heard;

	knock_ages(&knocker, 5000, &heard);
	assert_true(heard.any_us == UINT64_MAX && heard.whole_us == UINT64_MAX);
	note(&knocker, 7, 0, true, 5000);
	note(&knocker, 8, 0, false, 5200);
	knock_ages(&knocker, 6000, &heard);
	assert_int_equal(heard.any_us, 800);
	assert_int_equal(heard.whole_us, 1000);
	/* Somebody has recorded these, and sends them again: the worker's own may be lost all the same. */
	note(&knocker, 7, 0, true, 5900);
	note(&knocker, 8, 0, true, 5900);
	knock_ages(&knocker, 6000, &heard);
	assert_int_equal(heard.any_us, 800);
	assert_int_equal(heard.whole_us, 1000);
}
