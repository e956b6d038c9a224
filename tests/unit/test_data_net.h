/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_data_net.h - a back end of net.h that is only memory
 *
 * A test puts datagrams in, makes it full, ill or troubled, and reads what was sent. Calls that break the
 * rules of net.h are counted.
 */
#ifndef TESTS_UNIT_TEST_DATA_NET_H
#define TESTS_UNIT_TEST_DATA_NET_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "aggregator/data.h"
#include "tests/unit/unit.h"

#define THREADS_MAX 3
#define INBOX_MAX 1024
#define OUTBOX_MAX 4096
#define OUR_IP 0x0a000001u

struct datagram {
	uint32_t bytes;
	uint8_t data[WIRE_PAYLOAD_MAX];
	struct net_addr from;
	struct net_ip local;
};

struct sent {
	uint32_t batch; /* datagrams of one call have one number */
	struct net_path to;
	uint32_t bytes;
	uint8_t kind;
	uint16_t worker;
	uint32_t frame;
	uint64_t number;
};

struct net {
	pthread_mutex_t lock;
	int readable;
	uint32_t in_count;
	struct datagram *in[INBOX_MAX], *lent[NET_BURST_MAX];
	uint32_t lent_count;
	uint32_t sent_count, batches, calls_wrong, taken_at_a_time;
	struct sent sent[OUTBOX_MAX];
	uint32_t full_calls; /* ready() says no so many times; UINT32_MAX: for ever */
	bool keeps;          /* send() takes one receiver, and then there is no room */
	uint32_t recv_calls, ready_calls, health_calls, not_ready_for;
	const char *ill;
	uint32_t trouble_count; /* with whom there is trouble whenever somebody asks */
	struct net_trouble troubles[4];
	struct net_stats stats;
	struct net_facts facts;
};

static struct net *nets[THREADS_MAX];
static uint32_t net_opens, net_open_limit, nets_closed;

static void net_free(struct net *net)
{
	for (uint32_t i = 0; i < net->in_count; i++)
		free(net->in[i]);
	for (uint32_t i = 0; i < net->lent_count; i++)
		free(net->lent[i]);
	close(net->readable);
	pthread_mutex_destroy(&net->lock);
	free(net);
}

static int fake_open(const struct net_config *config, struct net **out, struct why *why)
{
	struct net *net;

	if (net_opens == net_open_limit)
		return why_set(why, -EADDRINUSE, "no more nets");
	net = calloc(1, sizeof(*net));
	assert_non_null(net);
	pthread_mutex_init(&net->lock, NULL);
	net->readable = eventfd(0, EFD_NONBLOCK);
	net->facts = (struct net_facts){.fd = net->readable,
	                                .buffer_bytes = 4711,
	                                .payload_max = 1234,
	                                .address = {net_ipv4(OUR_IP), 5555}};
	net->taken_at_a_time = NET_BURST_MAX;
	nets[config->queue] = net;
	net_opens++;
	*out = net;
	return 0;
}

static uint32_t fake_recv(struct net *net, struct net_in in[], uint32_t max)
{
	uint32_t count;

	pthread_mutex_lock(&net->lock);
	net->recv_calls++;
	for (uint32_t i = 0; i < net->lent_count; i++)
		free(net->lent[i]);
	count = net->in_count < max ? net->in_count : max;
	for (uint32_t i = 0; i < count; i++) {
		net->lent[i] = net->in[i];
		in[i] = (struct net_in){.data = net->in[i]->data,
		                        .bytes = net->in[i]->bytes,
		                        .from = net->in[i]->from,
		                        .local = net->in[i]->local};
	}
	net->lent_count = count;
	net->in_count -= count;
	memmove(net->in, net->in + count, net->in_count * sizeof(net->in[0]));
	if (net->in_count == 0) {
		uint64_t value;

		(void)!read(net->readable, &value, sizeof(value));
	}
	net->stats.received += count;
	pthread_mutex_unlock(&net->lock);
	return count;
}

static void write_down(struct net *net, const struct net_path *to, const struct net_out *out)
{
	uint8_t data[WIRE_PAYLOAD_MAX];
	struct packet packet;
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < out->piece_count; i++) {
		memcpy(data + bytes, out->pieces[i].iov_base, out->pieces[i].iov_len);
		bytes += (uint32_t)out->pieces[i].iov_len;
	}
	if (bytes != out->bytes || net->sent_count == OUTBOX_MAX ||
	    packet_parse(data, bytes, true, &packet) != WIRE_DROP_NONE) {
		net->calls_wrong++;
		return;
	}
	net->sent[net->sent_count++] = (struct sent){
		net->batches, *to, bytes, packet.kind, packet.worker, packet.frame, packet.number};
}

/* What net.h asks of callers: how many, how many bytes, and not before ready(). */
static uint32_t fake_send(struct net *net, const struct net_path to[], uint32_t to_count,
                          const struct net_out out[], uint32_t count)
{
	uint32_t bytes = 0, served;

	pthread_mutex_lock(&net->lock);
	served = net->keeps ? 1 : to_count;
	for (uint32_t i = 0; i < count; i++)
		bytes += out[i].bytes;
	net->calls_wrong += count == 0 || count > NET_BURST_MAX || bytes > NET_BATCH_BYTES_MAX ||
	                    to_count == 0 || net->full_calls > 0;
	for (uint32_t r = 0; r < served; r++)
		for (uint32_t i = 0; i < count; i++)
			write_down(net, &to[r], &out[i]);
	net->batches++;
	net->stats.sent += served * count;
	if (net->keeps)
		net->full_calls = net->not_ready_for;
	pthread_mutex_unlock(&net->lock);
	return served;
}

static bool fake_ready(struct net *net)
{
	bool ready;

	pthread_mutex_lock(&net->lock);
	net->ready_calls++;
	net->full_calls -= net->full_calls > 0 && net->full_calls != UINT32_MAX;
	ready = net->full_calls == 0;
	pthread_mutex_unlock(&net->lock);
	return ready;
}

static uint32_t fake_troubles(struct net *net, struct net_trouble out[NET_TROUBLES_MAX])
{
	uint32_t count;

	pthread_mutex_lock(&net->lock);
	count = net->trouble_count;
	memcpy(out, net->troubles, count * sizeof(out[0]));
	pthread_mutex_unlock(&net->lock);
	return count;
}

static int fake_health(struct net *net, struct why *why)
{
	int err;

	pthread_mutex_lock(&net->lock);
	net->health_calls++;
	err = net->ill != NULL ? why_set(why, -ENODEV, "%s", net->ill) : 0;
	pthread_mutex_unlock(&net->lock);
	return err;
}

static void fake_stats(const struct net *net, struct net_stats *out)
{
	*out = net->stats;
}

static const struct net_facts *fake_facts(const struct net *net)
{
	return &net->facts;
}

static void fake_close(struct net *net)
{
	net_free(net);
	nets_closed++;
}

static const struct net_backend fake = {
	.name = "fake",
	.open = fake_open,
	.recv = fake_recv,
	.send = fake_send,
	.ready = fake_ready,
	.troubles = fake_troubles,
	.health = fake_health,
	.stats = fake_stats,
	.facts = fake_facts,
	.close = fake_close,
};

#endif /* TESTS_UNIT_TEST_DATA_NET_H */
