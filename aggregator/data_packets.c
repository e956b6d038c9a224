// SPDX-License-Identifier: BSD-3-Clause
/* data_packets.c - a data thread's turn: a burst of datagrams to channels, and their answers out */

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>

#include "aggregator/data_state.h"
#include "ebpf/seal.h"

#define PROBE_US 5000    /* 5.3: "unless one of that size was sent within the last 5 ms" */
#define SEND_WAIT_MS 100 /* how long to wait for a full network before packets are given up */

/* ---- channels of a thread ---- */

struct outlet **outlet_place(struct data_thread *t, uint16_t id)
{
	for (uint32_t i = 0; i < t->outlet_count; i++)
		if (t->outlets[i]->info.id == id)
			return &t->outlets[i];
	return NULL;
}

struct outlet *outlet_named(struct data_thread *t, uint16_t id)
{
	struct outlet **place;

	if (t->last != NULL && t->last->info.id == id)
		return t->last;
	place = outlet_place(t, id);
	if (place != NULL)
		t->last = *place;
	return place != NULL ? *place : NULL;
}

/* ---- seals ---- */

/* 2.4: "What the aggregator sends is sealed with the job's group key". Channels only know tokens. */
static void outlet_seal(const struct outlet *outlet, struct packet_out *packet)
{
	const struct seals *seals = outlet->info.seals;

	if (seals != NULL)
		seal_write(packet, &seals->stretch, &seals->group,
		           outlet->channel != NULL ? channel_edge(outlet->channel) : 0);
}

/* Only the worker that has the token can make a right seal. */
static void outlet_unseal(const struct outlet *outlet, const struct net_in *in,
                          struct packet *packet)
{
	const struct seals *seals = outlet->info.seals;
	uint64_t edge = outlet->channel != NULL ? channel_edge(outlet->channel) : 0;

	if (seals == NULL || packet->worker >= outlet->info.worker_count)
		return;
	seal_check(packet, in->data, in->bytes, outlet->info.tokens[packet->worker],
	           &seals->stretch, &seals->workers[packet->worker], edge);
}

/* ---- sending ---- */

/*
 * Waits for room, and returns false if there is none. A thread whose network is stuck waits once
 * and then no more, because it has orders to take, and other jobs.
 */
static bool wait_ready(struct data_thread *t)
{
	const struct net_backend *net = t->data->config.backend;
	struct pollfd fd = {.fd = net->facts(t->net)->fd, .events = POLLOUT};
	uint64_t give_up_us = clock_us() + SEND_WAIT_MS * 1000;
	bool writable = false;

	while (!net->ready(t->net)) {
		t->stuck = t->stuck || clock_us() >= give_up_us;
		if (t->stuck)
			return false;
		if (writable) /* the socket has room, but not its device's queue */
			data_nap();
		writable = poll(&fd, 1, fd.fd < 0 ? 0 : 5) > 0;
	}
	t->stuck = false;
	return true;
}

/* Sends out[0 .. count) to each of t->burst.to[0 .. to_count). */
static void send_all(struct data_thread *t, uint32_t to_count, uint32_t count)
{
	const struct net_backend *net = t->data->config.backend;
	uint32_t served = 0;

	while (served < to_count) {
		if (!wait_ready(t)) {
			t->stats.unsent += (uint64_t)count * (to_count - served);
			return;
		}
		served += net->send(t->net, t->burst.to + served, to_count - served, t->burst.out,
		                    count);
	}
}

void send_to(struct data_thread *t, const struct net_path *path, uint32_t count)
{
	t->burst.to[0] = *path;
	send_all(t, path->to.port != 0, count);
}

static struct net_path group_of(const struct outlet *outlet)
{
	return (struct net_path){
		.to = {.ip = outlet->info.group, .port = outlet->info.group_port},
		.local = outlet->info.group_from,
		.mark = mark_of(outlet->info.id, WIRE_EVERYONE),
	};
}

static uint64_t batch_bytes(const struct data_thread *t, uint32_t count)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++)
		bytes += t->burst.out[i].bytes;
	return bytes;
}

/* 8.2: "The one with the blocks goes to the receiver's address alone". The head is left for the others. */
static void send_receiver(struct data_thread *t, const struct outlet *outlet, uint16_t receiver,
                          uint32_t count)
{
	send_to(t, &outlet->workers[receiver].path, count);
	for (uint32_t i = 0; i < count; i++) {
		struct packet_out *head = &t->burst.packets[i];

		head->piece_count = 1;
		head->bytes = (uint32_t)head->pieces[0].iov_len;
		outlet_seal(outlet, head); /* a seal also covers the contents */
		t->burst.out[i] = (struct net_out){head->pieces, 1, head->bytes};
	}
}

/*
 * Sends packets [0, count) of the batch, which all have the same receivers. 2.1: "once to a
 * multicast group, and once to each worker that the group does not reach".
 */
static void send_batch(struct data_thread *t, const struct outlet *outlet, uint32_t count)
{
	uint16_t dest = t->burst.packets[0].dest, receiver = t->burst.packets[0].receiver;
	uint32_t to_count = 0, more;

	if (dest != WIRE_EVERYONE) {
		send_to(t, &outlet->workers[dest].path, count);
		return;
	}
	if (receiver != WIRE_EVERYONE)
		send_receiver(t, outlet, receiver, count);
	if (outlet->some_multicast)
		t->burst.to[to_count++] = group_of(outlet);
	for (uint32_t rank = 0; rank < outlet->info.worker_count && !outlet->all_multicast; rank++)
		if (!outlet->workers[rank].multicast && !outlet->workers[rank].mute &&
		    rank != receiver && outlet->workers[rank].path.to.port != 0)
			t->burst.to[to_count++] = outlet->workers[rank].path;
	/* The channel has counted each packet once, whole. */
	more = receiver != WIRE_EVERYONE || to_count == 0 ? to_count : to_count - 1;
	if (more > 0)
		channel_sent_more(outlet->channel, (uint64_t)more * count,
		                  more * batch_bytes(t, count));
	send_all(t, to_count, count);
}

/* Sends everything that a channel has to send, in batches for the same receiver. */
static void channel_drain(struct data_thread *t, struct outlet *outlet, uint64_t now_us)
{
	uint32_t count = 0, bytes = 0;

	outlet->dirty = false;
	while (channel_pull(outlet->channel, now_us, &t->burst.packets[count])) {
		struct packet_out *packet = &t->burst.packets[count];

		outlet_seal(outlet, packet);
		if (count > 0 && (packet->dest != t->burst.packets[0].dest ||
		                  packet->receiver != t->burst.packets[0].receiver ||
		                  bytes + packet->bytes > NET_BATCH_BYTES_MAX)) {
			send_batch(t, outlet, count);
			t->burst.packets[0] = *packet;
			t->burst.packets[0].pieces[0].iov_base = t->burst.packets[0].head;
			packet = &t->burst.packets[0];
			count = bytes = 0;
		}
		t->burst.out[count] = (struct net_out){.pieces = packet->pieces,
		                                       .piece_count = packet->piece_count,
		                                       .bytes = packet->bytes};
		bytes += packet->bytes;
		if (++count == NET_BURST_MAX) {
			send_batch(t, outlet, count);
			count = bytes = 0;
		}
	}
	if (count > 0)
		send_batch(t, outlet, count);
}

/* ---- strays: datagrams for one thread that another's net receives ---- */

/*
 * A kernel that merges datagrams of one sender (GRO) steers all of them by the first one. Those of
 * other channels are copied into the box of the channel's thread. If the box is full they are
 * dropped, and repaired like any loss.
 */
static bool box_put(struct stray_box *box, const struct net_in *in)
{
	struct net_in *copy = &box->in[box->count];

	if (box->count == NET_BURST_MAX || in->bytes > STRAYS_BYTES - box->bytes)
		return false;
	*copy = *in;
	copy->data = box->memory + box->bytes;
	memcpy(box->memory + box->bytes, in->data, in->bytes);
	box->bytes += in->bytes;
	box->count++;
	return true;
}

/* Any thread may call it. Returns false if the box is full. */
static bool strays_put(struct data_thread *owner, const struct net_in *in)
{
	struct data_strays *strays = &owner->strays;
	bool first, done;

	pthread_mutex_lock(&strays->lock);
	first = strays->boxes[strays->filling].count == 0;
	done = box_put(&strays->boxes[strays->filling], in);
	atomic_store(&strays->waiting, true);
	pthread_mutex_unlock(&strays->lock);
	if (first)
		data_wake(owner);
	return done;
}

/* Takes the datagrams since the last call, lent until the next one. Returns how many. */
static uint32_t strays_take(struct data_strays *strays, const struct net_in **in)
{
	struct stray_box *full = &strays->boxes[strays->filling];

	if (!atomic_load(&strays->waiting))
		return 0;
	pthread_mutex_lock(&strays->lock);
	strays->filling ^= 1;
	strays->boxes[strays->filling].count = strays->boxes[strays->filling].bytes = 0;
	atomic_store(&strays->waiting, false);
	pthread_mutex_unlock(&strays->lock);
	*in = full->in;
	return full->count;
}

/* ---- receiving ---- */

/* Tells the kernel the worker's address, so that it accepts the worker's datagrams. */
void outlet_address_tell(struct outlet *outlet, uint32_t rank)
{
	const struct net_addr *address = &outlet->workers[rank].path.to;
	struct fast_home home = {.four = htonl(net_ip_number(&address->ip)),
	                         .port = htons(address->port)};

	if (!net_ip_is_v4(&address->ip))
		memcpy(home.six, address->ip.bytes, sizeof(home.six));
	if (outlet->channel != NULL)
		channel_address(outlet->channel, rank, &home);
}

/* Checks that the packet carries the token, or the seal, of the worker that it names. */
static enum wire_drop token_check(const struct outlet *outlet, const struct packet *packet)
{
	if (packet->worker >= outlet->info.worker_count)
		return WIRE_DROP_WORKER;
	return packet->token == outlet->info.tokens[packet->worker] ? WIRE_DROP_NONE
	                                                            : WIRE_DROP_SEAL;
}

/*
 * Every worker knocks, and every PROBE reaches all of them. A PROBE for each KNOCK would make their
 * number squared.
 */
static bool probe_due(struct outlet *outlet, uint32_t bytes, uint64_t now_us)
{
	uint32_t at = 0; /* the PROBE of this size, or the oldest */

	for (uint32_t i = 0; i < DATA_PROBE_SIZES && outlet->probes[at].bytes != bytes; i++)
		if (outlet->probes[i].bytes == bytes ||
		    outlet->probes[i].sent_us < outlet->probes[at].sent_us)
			at = i;
	if (now_us - outlet->probes[at].sent_us < PROBE_US)
		return false;
	outlet->probes[at].bytes = bytes;
	outlet->probes[at].sent_us = now_us;
	return true;
}

/* Sends a KNOCKED or a PROBE, with zeros after its head. */
static void knocked_send(struct data_thread *t, const struct outlet *outlet,
                         const struct net_path *path, struct wire_header head, uint32_t body_bytes)
{
	struct packet_out *answer = &t->burst.packets[0];

	head.channel = outlet->info.id;
	head.seal = outlet->info.group_token;
	packet_begin(answer, &head);
	packet_point(answer, t->burst.knock, body_bytes);
	outlet_seal(outlet, answer);
	t->burst.out[0] = (struct net_out){answer->pieces, answer->piece_count, answer->bytes};
	send_to(t, path, 1);
}

/*
 * 5.3: "Without the proof the aggregator answers with a KNOCKED of 32 bytes, whose number is the
 * proof". 5.3: "With the proof, the aggregator notes the source as this worker's address on the
 * channel", and probes the group.
 */
static void knock_answer(struct data_thread *t, struct outlet *outlet, const struct net_in *in,
                         const struct knock_arrival *knock, bool asked, uint64_t now_us)
{
	const struct net_path group = group_of(outlet);
	struct net_path path = group;
	uint16_t rank = knock->packet->worker;
	uint32_t body_bytes = knock->packet->body_bytes;
	struct wire_header head = {.kind = WIRE_KNOCKED, .worker = rank};

	path.to = in->from;
	path.local = in->local;
	path.mark = mark_of(outlet->info.id, rank);
	if (asked) {
		head.number = knock->proof;
		knocked_send(t, outlet, &path, head, 0);
		return;
	}
	outlet->workers[rank].path = path;
	outlet_address_tell(outlet, rank);
	knocked_send(t, outlet, &path, head, body_bytes);
	/* 11.5: "After START a KNOCK draws no PROBE" */
	if (net_ip_none(&group.to.ip) || outlet->channel != NULL ||
	    !probe_due(outlet, in->bytes, now_us))
		return;
	head.kind = WIRE_PROBE;
	head.worker = WIRE_EVERYONE;
	knocked_send(t, outlet, &group, head, body_bytes);
}

/* 5.3: "After START datagrams in a worker's name from an address that is not noted are dropped (bad_address)" */
static bool at_home(const struct outlet *outlet, const struct packet *packet,
                    const struct net_in *in)
{
	return net_addr_same(&outlet->workers[packet->worker].path.to, &in->from);
}

static uint64_t proof_of(const struct outlet *outlet, const struct packet *packet,
                         const struct net_in *in)
{
	uint64_t path[KNOCK_PATH_WORDS] = {
		[4] = (uint64_t)in->from.ip.scope << 32 | in->from.port,
		[5] = (uint64_t)packet->channel << 32 | packet->worker,
	};

	memcpy(path, in->from.ip.bytes, sizeof(in->from.ip.bytes));
	memcpy(path + 2, in->local.bytes, sizeof(in->local.bytes));
	return knock_proof(&outlet->info.secret, path);
}

static enum wire_drop knock_take(struct data_thread *t, struct outlet *outlet,
                                 const struct packet *packet, const struct net_in *in,
                                 uint64_t now_us)
{
	uint32_t payload = outlet->channel != NULL ? channel_payload(outlet->channel) : in->bytes;
	enum wire_drop drop = token_check(outlet, packet);
	struct knock_arrival knock = {
		.packet = packet,
		.whole = in->bytes >= payload,
		.started = outlet->channel != NULL,
		.sealed = outlet->info.seals != NULL,
	};
	struct outlet_worker *worker;
	enum knock_verdict verdict;

	if (drop != WIRE_DROP_NONE)
		return drop;
	if (in->bytes > t->data->config.net.payload_max)
		return WIRE_DROP_LENGTH; /* an answer of that size is impossible */
	worker = &outlet->workers[packet->worker];
	knock.home = at_home(outlet, packet, in) && net_ip_same(&worker->path.local, &in->local);
	knock.proof = proof_of(outlet, packet, in);
	verdict = knock_judge(&worker->knocker, &knock);
	if (verdict == KNOCK_STRANGE)
		return WIRE_DROP_ADDRESS;
	knock_note(&worker->knocker, &knock, verdict, now_us);
	knock_answer(t, outlet, in, &knock, verdict == KNOCK_ASKED, now_us);
	return WIRE_DROP_NONE;
}

/* The kernel may have merged it with a datagram for our net. */
bool hand_over(const struct data_thread *t, uint16_t id, const struct net_in *in)
{
	struct data_thread *owner;

	/* Each job also has a channel here. Without any, the other threads may not exist yet. */
	if (t->outlet_count == 0)
		return false;
	owner = data_owner(t->data, id);
	return owner != t && strays_put(owner, in);
}

void outlet_dirty(struct data_thread *t, struct outlet *outlet)
{
	if (outlet->dirty)
		return;
	outlet->dirty = true;
	t->dirty[t->dirty_count++] = outlet;
}

static void datagram_take(struct data_thread *t, const struct net_in *in, uint64_t now_us)
{
	struct packet packet;
	struct outlet *outlet = NULL;
	enum wire_drop drop;

	if (t->data->config.parent != NULL && above_take(t, in, now_us))
		return;
	drop = packet_parse(in->data, in->bytes, false, &packet);
	if (drop == WIRE_DROP_NONE)
		outlet = outlet_named(t, packet.channel);
	if (drop == WIRE_DROP_NONE && outlet == NULL && hand_over(t, packet.channel, in))
		return;
	/* 5.3: "Before START only KNOCKs and the answers to them are accepted" */
	if (drop == WIRE_DROP_NONE &&
	    (outlet == NULL || (outlet->channel == NULL && packet.kind != WIRE_KNOCK)))
		drop = WIRE_DROP_CHANNEL;
	if (drop == WIRE_DROP_NONE)
		outlet_unseal(outlet, in, &packet);
	if (drop == WIRE_DROP_NONE && packet.kind == WIRE_KNOCK)
		drop = knock_take(t, outlet, &packet, in, now_us);
	else if (drop == WIRE_DROP_NONE && token_check(outlet, &packet) == WIRE_DROP_NONE &&
	         !at_home(outlet, &packet, in))
		drop = WIRE_DROP_ADDRESS;
	if (drop != WIRE_DROP_NONE) {
		t->stats.drops[drop]++;
		return;
	}
	if (packet.kind == WIRE_KNOCK)
		return;
	packet.came_us = in->came_us;
	packet.marked = in->marked;
	channel_receive(outlet->channel, &packet, now_us);
	outlet_dirty(t, outlet);
}

/*
 * Small packets go first: a PLAN, which ends an eager operation or a barrier, does not wait for
 * other jobs' RESULTs, however many the burst has completed.
 */
static void drain_all(struct data_thread *t, uint64_t now_us)
{
	for (uint32_t i = 0; i < t->dirty_count; i++)
		above_work(t->dirty[i], now_us);
	for (uint32_t i = 0; i < t->dirty_count; i++)
		if (!channel_sums_wait(t->dirty[i]->channel))
			channel_drain(t, t->dirty[i], now_us);
	for (uint32_t i = 0; i < t->dirty_count; i++)
		if (t->dirty[i]->dirty)
			channel_drain(t, t->dirty[i], now_us);
	for (uint32_t i = 0; i < t->dirty_count; i++)
		above_drain(t, t->dirty[i], now_us);
	t->dirty_count = 0;
}

/* Handles one burst and its answers. Returns the number of datagrams. */
uint32_t data_turn(struct data_thread *t)
{
	const struct net_in *strays;
	uint32_t count = t->data->config.backend->recv(t->net, t->burst.in, NET_BURST_MAX);
	uint32_t stray_count = strays_take(&t->strays, &strays);
	uint64_t now_us = count + stray_count + t->relay_count > 0 ? clock_us() : 0;

	for (uint32_t i = 0; i < count; i++)
		datagram_take(t, &t->burst.in[i], now_us);
	for (uint32_t i = 0; i < stray_count; i++)
		datagram_take(t, &strays[i], now_us);
	above_due(t, now_us);
	drain_all(t, now_us);
	return count + stray_count;
}
