// SPDX-License-Identifier: BSD-3-Clause
/* test_data_knocks.c - data threads and KNOCKs: who is answered, whose address is noted, who hears a PROBE */

#include "tests/unit/test_data.h"
#include "tests/unit/unit.h"

/* To whom a KNOCK is answered, from where, and what else hears of it. */
WORLD_TEST(knocks)
{
	const struct channel_config config = channel_usual(ID);
	struct datagram *list[5];
	struct data_stats stats;
	struct data_look look;

	attach(w, &config);
	list[0] = knock_of(ID, 1, 1472);
	list[0]->data[8]++; /* a wrong token, */
	list[1] = knock_of(ID + 1, 1, 1472);
	list[2] = knock_of(ID, 1, 1472);
	list[2]->data[0]++; /* a stranger, */
	list[3] =
		push_of(ID, 1, FIRST_FRAME, BLOCK_ELEMS); /* too early: no answer to any of them */
	list[4] = knock_of(ID, 3, 1472);
	deliver(nets[0], list, 5);
	await(nets[0], nets[0]->sent_count == 2);
	assert_int_equal(nets[0]->sent[0].kind, WIRE_KNOCKED);
	assert_int_equal(nets[0]->sent[0].bytes, 1472);
	assert_int_equal(nets[0]->sent[0].worker, 3);
	assert_int_equal(net_ip_number(&nets[0]->sent[0].to.to.ip), WORKER_IP(3));
	assert_int_equal(nets[0]->sent[0].to.to.port, WORKER_PORT(3));
	assert_int_equal(net_ip_number(&nets[0]->sent[0].to.local), LOCAL_IP(3));
	assert_int_equal(nets[0]->sent[1].kind, WIRE_PROBE);
	assert_int_equal(nets[0]->sent[1].bytes, 1472);
	assert_int_equal(net_ip_number(&nets[0]->sent[1].to.to.ip), GROUP_IP);
	assert_int_equal(nets[0]->sent[1].to.to.port, GROUP_PORT);
	assert_int_equal(net_ip_number(&nets[0]->sent[1].to.local), LOCAL_IP(2));
	data_look(w->data, NULL, 0, &stats);
	assert_int_equal(stats.drops[WIRE_DROP_CHANNEL], 2);
	assert_int_equal(stats.drops[WIRE_DROP_MAGIC], 1);
	assert_int_equal(stats.drops[WIRE_DROP_SEAL], 1);
	assert_false(channel_looked(w, ID, &look));
}

static struct datagram *knock_with(uint64_t number, uint16_t ip_rank)
{
	struct datagram *d = knock_of(ID, 1, 1472);

	memcpy(d->data + offsetof(struct wire_header, number), &number, sizeof(number));
	d->from.ip = net_ipv4(WORKER_IP(ip_rank));
	return d;
}

/* An address is noted once a KNOCK from it carries what was answered to it; until then it gets 32 bytes, and no PROBE. */
WORLD_TEST(knock_proofs)
{
	const struct channel_config config = channel_usual(ID);
	struct net *net = nets[0];
	struct datagram *from_there;
	struct data_stats stats;
	uint64_t proof;

	attach(w, &config);
	deliver_one(net, knock_with(0, 1));
	await(net, net->sent_count == 1);
	assert_int_equal(net->sent[0].bytes, WIRE_HEADER_BYTES);
	proof = net->sent[0].number;
	assert_true(proof == proof_at(ID, 1, 1));
	deliver(net, (struct datagram *[]){knock_with(proof, 2), knock_with(proof ^ 1, 1)}, 2);
	await(net, net->sent_count == 3);
	assert_int_equal(net_ip_number(&net->sent[1].to.to.ip), WORKER_IP(2));
	assert_int_equal(net->sent[1].bytes + net->sent[2].bytes, 2 * WIRE_HEADER_BYTES);
	assert_true(net->sent[1].number != proof && net->sent[2].number == proof);
	/* To another address of ours it proves nothing: answers would come from there. */
	from_there = knock_with(proof, 1);
	from_there->local = net_ipv4(LOCAL_IP(3));
	deliver_one(net, from_there);
	await(net, net->sent_count == 4);
	assert_int_equal(net->sent[3].bytes, WIRE_HEADER_BYTES);
	deliver_one(net, knock_with(proof, 1));
	await(net, net->sent_count == 6);
	assert_int_equal(net->sent[4].bytes, 1472);
	assert_int_equal(net->sent[4].number, 0);
	assert_int_equal(net->sent[5].kind, WIRE_PROBE);
	/* At home, any number will do; but not from home to another address of ours, once the job runs. */
	start(w, &config, none);
	forget_sent(net);
	from_there = knock_with(0, 1);
	from_there->local = net_ipv4(LOCAL_IP(3));
	deliver(net, (struct datagram *[]){from_there, knock_with(0, 1)}, 2);
	await(net, net->sent_count == 1);
	assert_int_equal(net_ip_number(&net->sent[0].to.local), LOCAL_IP(1));
	assert_int_equal(net->sent[0].bytes, 1472);
	data_look(w->data, NULL, 0, &stats);
	assert_int_equal(stats.drops[WIRE_DROP_ADDRESS], 1);
}

/* Once a job without a key runs its addresses are what they are. */
WORLD_TEST(stays)
{
	const struct channel_config config = channel_usual(ID);
	struct net *net = nets[0];
	struct data_stats stats;

	attach(w, &config);
	deliver_one(net, knock_with(proof_at(ID, 1, 1), 1));
	await(net, net->sent_count == 2);
	start(w, &config, none);
	forget_sent(net);
	deliver(net, (struct datagram *[]){knock_with(proof_at(ID, 1, 2), 2), knock_with(0, 2)}, 2);
	do
		data_look(w->data, NULL, 0, &stats);
	while (stats.drops[WIRE_DROP_ADDRESS] < 2);
	assert_int_equal(net->sent_count, 0);
}

/* A KNOCK larger than any datagram of a job has no answer, from whomever it is; the largest has one. */
WORLD_TEST(large_knocks)
{
	const struct channel_config config = channel_usual(ID);
	const uint32_t most = w->config.net.payload_max;
	struct datagram *list[3];
	struct data_stats stats;

	attach(w, &config);
	list[0] = knock_of(ID, 1, most + 1);
	list[1] = knock_of(ID, 1, WIRE_PAYLOAD_MAX);
	list[2] = knock_of(ID, 1, most);
	deliver(nets[0], list, 3);
	await(nets[0], nets[0]->sent_count >= 2);
	assert_int_equal(nets[0]->sent_count, 2); /* KNOCKED and PROBE */
	assert_int_equal(nets[0]->sent[0].bytes, most);
	data_look(w->data, NULL, 0, &stats);
	assert_int_equal(stats.drops[WIRE_DROP_LENGTH], 2);
}

/* However many knock, the group hears one PROBE of a size every 5 ms; each worker has its answers. */
WORLD_TEST(probes)
{
	static const uint32_t sizes[] = {8972, 1472, 1372};
	const struct channel_config config = channel_usual(ID);
	struct datagram *list[240];
	uint64_t from_ms;
	uint32_t probes = 0;

	attach(w, &config);
	/* One burst has one time. */
	for (uint32_t i = 0; i < 240; i++)
		list[i] = knock_of(ID, (uint16_t)(i % WORKERS), sizes[i / 7 % 3]);
	deliver(nets[0], list, 240);
	await(nets[0], nets[0]->sent_count >= 240 + 3);
	for (uint16_t rank = 0; rank < WORKERS; rank++)
		assert_int_equal(count_sent(nets[0], WIRE_KNOCKED, WORKER_IP(rank)), 60);
	assert_int_equal(count_sent(nets[0], WIRE_PROBE, GROUP_IP), 3);
	assert_int_equal(nets[0]->sent_count, 240 + 3);
	/* And again, as long as somebody knocks. */
	forget_sent(nets[0]);
	from_ms = clock_ms();
	for (uint16_t i = 0; probes < 10; i++) {
		deliver_one(nets[0], knock_of(ID, i % WORKERS, 1472));
		await(nets[0], nets[0]->in_count == 0);
		usleep(1000); /* the list of what was sent has an end */
		pthread_mutex_lock(&nets[0]->lock);
		probes = count_sent(nets[0], WIRE_PROBE, GROUP_IP);
		pthread_mutex_unlock(&nets[0]->lock);
		assert_true(clock_ms() < from_ms + LIMIT_MS);
	}
	assert_in_range(probes, 10, (clock_ms() - from_ms) / 5 + 1);
}
