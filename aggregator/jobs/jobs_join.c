// SPDX-License-Identifier: BSD-3-Clause
/* jobs_join.c - admission, and a job's way from its first JOIN to START (PROTOCOL.md, section 5) */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/jobs/jobs_state.h"

#define WINDOW_START 64    /* frames of all senders together, which may meet in a small queue */
#define WINDOW_START_MIN 8 /* frames of each at least */

/* ---- admission ---- */

static struct job *job_named(struct jobs *jobs, const char *name)
{
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++) {
		struct job *job = &jobs->jobs[i];

		if (job->state != JOB_FREE && job->state != JOB_ENDING &&
		    strcmp(job->name, name) == 0)
			return job;
	}
	return NULL;
}

/* Refuses what no job would take. True: the peer is gone. 5.2: "JOINs on this connection are for this name, or are refused" */
static bool refused_at_sight(struct jobs *jobs, struct jobs_peer *peer,
                             const struct control_message *join)
{
	if (join->version != WIRE_VERSION)
		peer_refuse(jobs, peer, "version",
		            "you speak version %u of the protocol, this aggregator speaks %u",
		            join->version, WIRE_VERSION);
	else if (*peer->keyed_for != '\0' && !names_kin(join->job, peer->keyed_for))
		peer_refuse(jobs, peer, "key",
		            "your connection has the key of job '%s', but you join '%s'",
		            peer->keyed_for, join->job);
	else if (join->world == 0 && join->job[message_name_base(join->job)] != '\0')
		peer_refuse(jobs, peer, "world",
		            "'%s' is a membership: wait for the job's members under its name alone",
		            join->job);
	else if (join->world == 0 && join->payload >= WIRE_PAYLOAD_MIN)
		return false; /* it waits at the door */
	else if (join->world == 0 || join->world > jobs->config.workers_max)
		peer_refuse(jobs, peer, "world",
		            "a job may have 1 to %u workers here, you ask for %u (workers-max)",
		            jobs->config.workers_max, join->world);
	else if (join->rank >= join->world)
		peer_refuse(jobs, peer, "rank",
		            "rank %u is impossible with world %u: ranks are 0 to %u", join->rank,
		            join->world, join->world - 1);
	else if (join->payload < WIRE_PAYLOAD_MIN)
		peer_refuse(jobs, peer, "payload",
		            "your path carries %u bytes a datagram, the protocol needs %u",
		            join->payload, WIRE_PAYLOAD_MIN);
	else
		return false;
	return true;
}

/* 5.2: "An aggregator refuses (key) a worker that has another key than the first one of its job" */
static bool refused_by_job(struct jobs *jobs, struct jobs_peer *peer, const struct job *job,
                           const struct control_message *join)
{
	const struct jobs_peer *other = join->world == job->world ? job->members[join->rank] : NULL;
	const struct jobs_peer *opener = job->members[job->opener];

	if (!peer_has_key(peer, job))
		peer_refuse(jobs, peer, "key",
		            "job '%s' was opened with another key: the aggregator's keys have "
		            "changed meanwhile; start the job again",
		            job->name);
	else if (join->world != job->world)
		peer_refuse(jobs, peer, "world",
		            "job '%s' has world %u (opened by rank %u, %s), you say %u", job->name,
		            job->world, job->opener, opener != NULL ? opener->where : "gone",
		            join->world);
	else if (other != NULL)
		peer_refuse(
			jobs, peer, "rank",
			"rank %u of job '%s' is taken by %s (%s): each worker has a rank of its "
			"own, and each job a name",
			join->rank, job->name, other->where, other->worker.address);
	else if (job->state != JOB_FORMING || job->named)
		peer_refuse(jobs, peer, "running", "job '%s' has begun without you; use another %s",
		            job->name,
		            job->name[message_name_base(job->name)] == '/' ? "membership" : "name");
	else
		return false;
	return true;
}

/* What two levels cannot do. */
static bool refused_by_site(struct jobs *jobs, struct jobs_peer *peer,
                            const struct control_message *join)
{
	const struct jobs_peer *other = site_with_name(jobs, join);

	if (jobs->config.sited && *join->site != '\0')
		peer_refuse(
			jobs, peer, "site",
			"this aggregator is site '%s' of parent %s, and cannot be the parent of "
			"site '%s'",
			jobs->config.site, jobs->config.parent, join->site);
	else if (jobs->config.sited && join->world == 0)
		peer_refuse(jobs, peer, "site",
		            "this aggregator is site '%s' of parent %s: workers cannot come and go "
		            "here",
		            jobs->config.site, jobs->config.parent);
	else if (other != NULL)
		peer_refuse(
			jobs, peer, "site",
			"another aggregator (%s) has joined as site '%s': give each a --site of "
			"its own",
			other->worker.address, join->site);
	else
		return false;
	return true;
}

/* ---- from the last JOIN to START ---- */

/* A power of two. 5.1: "START's window is 4, or at most the least of these divided by twice the payload" */
static uint32_t window_for(const struct jobs *jobs, const struct job *job, uint32_t payload)
{
	uint64_t frames = jobs->config.window_bytes / payload;
	uint32_t window = 4;

	for (uint32_t rank = 0; rank < job->world; rank++) {
		/* The kernel charges about twice a datagram's bytes to the buffer. */
		uint64_t room = job->members[rank] != NULL
		                        ? job->members[rank]->asks.rcvbuf / (2 * payload)
		                        : frames;

		frames = room < frames ? room : frames;
	}
	while (window * 2 <= frames && window * 2 <= WIRE_WINDOW_MAX)
		window *= 2;
	return window;
}

/* Looks at the workers so far. 5.3: "its payload, the smallest that any worker has reported" */
static void least_payload(struct job *job)
{
	for (uint32_t rank = 0; rank < job->world; rank++)
		if (job->members[rank] != NULL &&
		    job->members[rank]->asks.payload < job->shape.payload)
			job->shape.payload = job->members[rank]->asks.payload;
}

/*
 * Only one of our interfaces, the one with this address, sends to a group. Workers on other
 * networks receive no PROBE from it and get copies.
 */
static struct net_ip busiest_address(const struct job *job)
{
	struct net_ip best = {.scope = 0};
	uint32_t best_count = 0;

	for (uint32_t rank = 0; rank < job->world; rank++) {
		const struct jobs_peer *peer = job->members[rank];
		uint32_t count = 0;

		for (uint32_t other = rank; peer != NULL && other < job->world; other++)
			count += job->members[other] != NULL &&
			         net_ip_same(&job->members[other]->local, &peer->local);
		if (count > best_count) {
			best = peer->local;
			best_count = count;
		}
	}
	return best;
}

/* The group is of the family in which we send. */
static void group_choose(const struct jobs *jobs, struct job *job)
{
	const struct net_ip *data = &jobs->config.data.ip, *from = &job->wire.group_from;
	uint16_t number;

	job->wire.group_from = busiest_address(job);
	job->wire.group = jobs->config.group_nets[!net_ip_is_v4(net_ip_none(data) ? from : data)];
	jobs->ports.random(jobs->ports.context, &number, sizeof(number));
	if (!net_ip_none(&job->wire.group))
		memcpy(job->wire.group.bytes + 14, &number, sizeof(number));
}

static void job_numbers(struct jobs *jobs, struct job *job)
{
	job->shape.payload = jobs->config.payload_max;
	least_payload(job);
	job->shape.window = window_for(jobs, job, job->shape.payload);
	if (!job->sited)
		jobs->ports.random(jobs->ports.context, &job->shape.first_frame,
		                   sizeof(job->shape.first_frame));
	jobs->ports.random(jobs->ports.context, &job->shape.group_token,
	                   sizeof(job->shape.group_token));
	jobs->ports.random(jobs->ports.context, job->wire.tokens,
	                   job->world * sizeof(*job->wire.tokens));
	jobs->ports.random(jobs->ports.context, &job->wire.secret, sizeof(job->wire.secret));
	group_choose(jobs, job);
}

/*
 * Reserves what the job needs with its present payload and window: first as the workers' interfaces
 * allow, and at START as their paths do. False: the job has failed.
 */
static bool job_reserve(struct jobs *jobs, struct job *job)
{
	size_t bytes = channel_memory(&job->shape) * jobs->config.threads, unused;

	jobs->totals.bytes -= job->bytes;
	job->bytes = 0;
	unused = jobs->config.bytes_max - jobs->totals.bytes;
	if (bytes == 0 || bytes > jobs->config.job_bytes_max) {
		job_fail(jobs, job, job->world, "memory",
		         "the job needs %zu bytes here, %zu are allowed (job-bytes-max)", bytes,
		         jobs->config.job_bytes_max);
	} else if (bytes > unused) {
		job_fail(jobs, job, job->world, "memory",
		         "the job needs %zu bytes, %zu of %zu are in use by other jobs (bytes-max)",
		         bytes, jobs->totals.bytes, jobs->config.bytes_max);
	} else if (room_is_kept(jobs, job->owner, ROOM_BYTES, bytes, unused)) {
		job_fail(jobs, job, job->world, "memory",
		         "the job needs %zu bytes, but some of the %zu free bytes are kept for "
		         "other keys (bytes-max)",
		         bytes, unused);
	} else {
		job->bytes = bytes;
		jobs->totals.bytes += bytes;
		return true;
	}
	return false;
}

/*
 * Tells the data plane about the job's channels on every thread. The kernel lends slots already
 * now, because it has to see which way KNOCKs come: as many as its largest datagrams would need.
 */
static bool job_attach(struct jobs *jobs, struct job *job)
{
	uint32_t payload =
		job->shape.payload < FAST_PAYLOAD_MAX ? job->shape.payload : FAST_PAYLOAD_MAX;

	job->fast.window = window_for(jobs, job, payload);
	for (uint32_t thread = 0; thread < jobs->config.threads; thread++) {
		struct channel_config config = job->shape;
		struct jobs_channel info = {
			.id = job_channel_id(jobs, job, thread),
			.worker_count = (uint16_t)job->world,
			.group_token = job->shape.group_token,
			.secret = job->wire.secret,
			.tokens = job->wire.tokens,
			.seals = job->wire.seals,
			.group = job->wire.group,
			.group_from = job->wire.group_from,
			.group_port = jobs->config.group_port,
		};

		const char *why;

		config.window = job->fast.window;
		why = job->parted ? "" : jobs->ports.share(jobs->ports.kernel, &info, &config);
		job->fast.slow = why != NULL ? why : job->fast.slow;
		if (jobs->ports.attach(jobs->ports.context, &info) != 0)
			return false;
		job->channels[thread] =
			(struct job_channel){.fast = config.fast, .fast_slots = config.fast_slots};
		job->channel_count++;
	}
	return true;
}

/* Writes "" if there is no address. */
static void address_text(const struct net_addr *address, char out[CONTROL_ADDRESS_BYTES])
{
	char text[NET_TEXT_BYTES];

	if (!net_ip_none(&address->ip))
		snprintf(out, CONTROL_ADDRESS_BYTES, "%.55s", net_format(address, text));
}

static void welcome_fill(const struct jobs *jobs, const struct job *job, uint32_t rank,
                         struct control_message *out)
{
	*out = (struct control_message){
		.kind = CONTROL_WELCOME,
		.channel_count = jobs->config.threads,
		.payload = job->shape.payload,
		.silence_ms = (uint32_t)(job->silence_us / 1000),
		.stall_ms = (uint32_t)(job->shape.stall_us / 1000),
		.window = job->shape.window,
		.op_slots = job->shape.op_slots,
		.segments_ahead = job->shape.segments_ahead,
		.first_frame = job->shape.first_frame,
	};
	address_text(&(struct net_addr){job->wire.group, jobs->config.group_port}, out->group);
	address_text(&jobs->config.data, out->data_address);
	for (uint32_t thread = 0; thread < out->channel_count; thread++)
		out->channels[thread] = job_channel_id(jobs, job, thread);
	if (job->wire.seals != NULL) {
		memcpy(out->seed, job->wire.seed, sizeof(out->seed));
	} else {
		out->token = job->wire.tokens[rank];
		out->group_token = job->shape.group_token;
	}
}

/* Each membership has fresh keys: a drawn seed for all, and one key from each connection. */
static bool job_seal(const struct jobs *jobs, struct job *job)
{
	struct seed_keys keys;
	bool sealed;

	if (job->wire.seals == NULL)
		return true;
	jobs->ports.random(jobs->ports.context, job->wire.seed, sizeof(job->wire.seed));
	sealed = seed_expand(job->wire.seed, &keys) == 0;
	job->wire.seals->group = keys.group;
	job->wire.seals->stretch = keys.stretch;
	explicit_bzero(&keys, sizeof(keys));
	for (uint32_t rank = 0; rank < job->world && sealed; rank++)
		sealed = job->members[rank] == NULL ||
		         jobs->ports.seal_key(job->members[rank], job->name,
		                              &job->wire.seals->workers[rank]) == 0;
	return sealed;
}

/* From now on the job's times are used, so silence is counted anew. */
static void job_tell_welcome(struct jobs *jobs, struct job *job, uint64_t now_us)
{
	struct control_message message;

	for (uint32_t rank = 0; rank < job->world; rank++) {
		struct jobs_peer *peer = job->members[rank];

		if (peer == NULL)
			continue;
		welcome_fill(jobs, job, rank, &message);
		peer->heard_us = peer->pinged_us = peer->does.same_us = now_us;
		peer_send(jobs, peer, &message);
	}
}

/* Called when the last worker has joined, or the parent says that it has. */
void job_formed(struct jobs *jobs, struct job *job, uint64_t now_us)
{
	job_speakers(job);
	job_numbers(jobs, job);
	if (!job_reserve(jobs, job))
		return;
	if (!job_seal(jobs, job) || !job_attach(jobs, job)) {
		job_fail(jobs, job, job->world, "memory", "the aggregator is out of memory");
		return;
	}
	job->state = JOB_PROBING;
	job->since_us = now_us;
	job_tell_welcome(jobs, job, now_us);
}

/* The payload is known now, so other jobs may have the slots that the kernel cannot use. */
static void fast_settle(struct jobs *jobs, struct job *job)
{
	bool fits = job->shape.payload <= FAST_PAYLOAD_MAX;

	job->fast.all = true;
	for (uint32_t i = 0; i < job->channel_count; i++) {
		struct job_channel *channel = &job->channels[i];

		if (channel->fast != NULL && fits) {
			if (job->shape.window > job->fast.window)
				job->shape.window = job->fast.window;
			continue;
		}
		job->fast.all = false;
		if (channel->fast != NULL)
			jobs->ports.unshare(jobs->ports.kernel, job_channel_id(jobs, job, i));
		channel->fast = NULL;
	}
	if (!job->fast.all && job->fast.slow == NULL)
		job->fast.slow = "datagrams of more than 3488 bytes: see --payload-max";
	if (!job->fast.all && *job->fast.slow != '\0')
		jobs_log(jobs, "info", "not_fast",
		         LOG_FIELDS(LOG_WORD("job", job->name), LOG_TEXT("why", job->fast.slow)),
		         NULL);
}

/* Opens the channels, one on every thread. */
static bool job_channels_open(struct jobs *jobs, struct job *job)
{
	struct channel_config config = job->shape;

	for (uint32_t i = 0; i < job->channel_count; i++) {
		struct job_channel *channel = &job->channels[i];

		config.id = job_channel_id(jobs, job, i);
		config.fast = channel->fast;
		config.fast_slots = channel->fast_slots;
		config.speakers = job->wire.speakers;
		config.sited = job->sited;
		if (channel_open(&config, &channel->channel) != 0)
			return false;
		jobs->ports.start(jobs->ports.data, config.id, channel->channel,
		                  job->wire.multicast);
	}
	return !job->sited || site_relays_open(jobs, job);
}

/* For each that sends here, on each channel: not for workers at other sites, nor for those that another speaks for. */
static uint32_t window_start(const struct job *job)
{
	uint32_t senders = 0, start;

	for (uint32_t rank = 0; rank < job->world; rank++)
		senders += job->wire.speakers[rank] == rank;
	start = WINDOW_START / (senders * job->channel_count);
	start = start > WINDOW_START_MIN ? start : WINDOW_START_MIN;
	return start < job->shape.window ? start : job->shape.window;
}

static void job_tell_start(struct jobs *jobs, struct job *job)
{
	struct control_message message = {
		.kind = CONTROL_START,
		.payload = job->shape.payload,
		.window = job->shape.window,
		.window_start = window_start(job),
		.fast = job->sited ? job->fast.above : job->fast.all,
	};

	for (uint32_t rank = 0; rank < job->world; rank++) {
		if (job->members[rank] == NULL)
			continue;
		message.multicast = job->wire.multicast[rank];
		peer_send(jobs, job->members[rank], &message);
	}
}

/* All are ready: the paths' payload is known, and with it how many frames may be in flight. */
void job_start(struct jobs *jobs, struct job *job)
{
	const uint32_t here = members_count(job, PEER_READY);
	uint32_t with_multicast = 0;
	char share[32];

	for (uint32_t rank = 0; rank < job->world; rank++)
		with_multicast += job->wire.multicast[rank];
	job->shape.to_group = with_multicast == here;
	if (!job->sited)
		job->shape.window = window_for(jobs, job, job->shape.payload);
	fast_settle(jobs, job);
	if (!job_reserve(jobs, job))
		return;
	if (!job_channels_open(jobs, job)) {
		job_fail(jobs, job, job->world, "memory", "the aggregator is out of memory");
		return;
	}
	job_tell_start(jobs, job);
	if (jobs->totals.draining || door_first(jobs, job) != NULL)
		door_tell(jobs, job);
	crowd_remove(&jobs->unstarted, job);
	job->state = JOB_RUNNING;
	job->since_us = jobs->now_us;
	jobs->totals.jobs_started++;
	snprintf(share, sizeof(share), "%u/%u", with_multicast, here);
	jobs_log(jobs, "info", "job_started",
	         LOG_FIELDS(LOG_WORD("job", job->name), LOG_NUMBER("world", job->world),
	                    LOG_NUMBER("payload", job->shape.payload),
	                    LOG_NUMBER("window", job->shape.window), LOG_WORD("multicast", share),
	                    LOG_WORD("fast", job->fast.all ? "yes" : "no"),
	                    LOG_NUMBER("bytes", job->bytes)),
	         NULL);
}

/* ---- messages ---- */

/*
 * All places are taken, or kept for others. The owner with the most jobs that do not run yet loses
 * the oldest of them, if it has more than its share of the places and the newcomer has fewer. So
 * nobody keeps others out with joins that lead to nothing. Returns the free place, or NULL.
 */
static struct job *job_crowd_out(struct jobs *jobs, uint64_t newcomer)
{
	const struct crowd_heaviest heaviest = crowd_heaviest(&jobs->unstarted);
	uint32_t has = crowd_count(&jobs->unstarted, newcomer);
	uint32_t share = jobs->config.jobs_max / (heaviest.owners + (has == 0));
	struct job *job = heaviest.oldest;

	if (heaviest.count <= share || heaviest.count <= has + 1)
		return NULL;
	job_fail(jobs, job, job->world, "jobs",
	         "the job made room for another owner's: %u jobs with your key, or from your "
	         "host, had not begun, and only %u jobs may be here (jobs-max)",
	         heaviest.count, jobs->config.jobs_max);
	return job;
}

bool job_begin(struct jobs *jobs, struct job *job, const struct jobs_peer *opener, const char *name,
               uint32_t world)
{
	const bool keyed = *opener->keyed_for != '\0';

	job->members = calloc(world, sizeof(struct jobs_peer *));
	job->seats = calloc(world, sizeof(*job->seats));
	job->wire.tokens = calloc(world, sizeof(*job->wire.tokens));
	job->wire.multicast = calloc(world, sizeof(*job->wire.multicast));
	job->wire.speakers = calloc(world, sizeof(*job->wire.speakers));
	job->sited = job->parted = jobs->config.sited;
	if (keyed)
		job->wire.seals = calloc(1, seals_bytes(world));
	job->world = world;
	if (job->members == NULL || job->seats == NULL || job->wire.tokens == NULL ||
	    job->wire.multicast == NULL || job->wire.speakers == NULL ||
	    (keyed && job->wire.seals == NULL)) {
		job_forget(job);
		return false;
	}
	job->owner = opener->owner;
	crowd_add(&jobs->unstarted, job->owner, job);
	job->state = JOB_FORMING;
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->since_us = jobs->now_us;
	job->shape = (struct channel_config){
		.worker_count = (uint16_t)world,
		.op_slots = jobs->config.op_slots,
		.segments_ahead = jobs->config.segments_ahead,
		.tokens = job->wire.tokens,
		.engine = jobs->config.engine,
	};
	return true;
}

struct job *job_opened(struct jobs *jobs, struct jobs_peer *peer)
{
	const uint64_t owner = peer->owner;
	struct job *job = NULL;
	uint32_t free_count = 0;
	bool kept;

	for (uint32_t i = jobs->config.jobs_max; i-- > 0;) {
		if (jobs->jobs[i].state != JOB_FREE)
			continue;
		job = &jobs->jobs[i];
		free_count++;
	}
	kept = free_count > 0 && room_is_kept(jobs, owner, ROOM_JOBS, 1, free_count);
	if (free_count == 0 || kept)
		job = job_crowd_out(jobs, owner);
	if (job != NULL)
		return job;
	if (kept)
		peer_refuse(jobs, peer, "jobs",
		            "%u of %u places for jobs are free, but kept for other keys (jobs-max)",
		            free_count, jobs->config.jobs_max);
	else
		peer_refuse(jobs, peer, "jobs", "%u jobs are here, the limit (jobs-max)",
		            jobs->config.jobs_max);
	return NULL;
}

/* 5.1: "WELCOME has the shortest that its workers ask for" */
void job_agree(struct job *job)
{
	job->silence_us = job->shape.stall_us = UINT64_MAX;
	for (uint32_t rank = 0; rank < job->world; rank++) {
		const struct jobs_peer *peer = job->members[rank];

		if (peer != NULL && peer->asks.silence_us < job->silence_us)
			job->silence_us = peer->asks.silence_us;
		if (peer != NULL && peer->asks.stall_us < job->shape.stall_us)
			job->shape.stall_us = peer->asks.stall_us;
	}
}

/* Takes a worker's JOIN to a membership. */
static void member_join(struct jobs *jobs, struct job *job, struct jobs_peer *peer,
                        const struct control_message *join, uint64_t now_us)
{
	if (peer->job == NULL)
		peer_enter(jobs, peer);
	peer_note(peer, join);
	peer->job = job;
	peer->rank = join->rank;
	peer->state = PEER_JOINED;
	job->seats[peer->rank].job[0] = '\0';
	job->members[peer->rank] = peer;
	job_agree(job);
	if (job->sited)
		site_join(jobs, peer, join);
	else if (members_count(job, PEER_JOINED) == job->world)
		job_formed(jobs, job, now_us);
}

/* MEMBERS.md 3: "while a membership next. of NAME is here, or members are at the door" */
static bool has_members(const struct jobs *jobs, const char *name)
{
	const struct jobs_peer *peer;

	TAILQ_FOREACH(peer, &jobs->doorsteps, doorstep)
	if (peer->stays && names_kin(peer->wanted, name))
		return true;
	for (uint32_t i = 0; i < jobs->config.jobs_max; i++)
		if (jobs->jobs[i].state != JOB_FREE && names_kin(jobs->jobs[i].name, name) &&
		    message_name_is_next(jobs->jobs[i].name))
			return true;
	return false;
}

/* MEMBERS.md 3: "JOIN after NEXT goes by the same connection, without another HELLO" */
static void named_join(struct jobs *jobs, struct jobs_peer *peer,
                       const struct control_message *join, uint64_t now_us)
{
	const struct job *job = peer->job;

	if (!job->named || peer->state != PEER_NAMED || job->state != JOB_FORMING ||
	    strcmp(join->job, job->name) != 0 || join->rank != peer->rank ||
	    join->world != job->world || join->payload < WIRE_PAYLOAD_MIN)
		jobs_garbage(jobs, peer, "join: it came out of turn, or is not to this membership");
	else
		member_join(jobs, peer->job, peer, join, now_us);
}

void join_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *join,
               uint64_t now_us)
{
	struct job *job;

	if (peer->job != NULL) {
		named_join(jobs, peer, join, now_us);
		return;
	}
	if (refused_at_sight(jobs, peer, join))
		return;
	if (refused_by_site(jobs, peer, join))
		return;
	job = join->world > 0 ? job_named(jobs, join->job) : NULL;
	if (job != NULL && refused_by_job(jobs, peer, job, join))
		return;
	if (join->world == 0) {
		door_take(jobs, peer, join, now_us);
		return;
	}
	/* MEMBERS.md 3: "refuse jobs but those named next. (draining)" */
	if (job == NULL && jobs->totals.draining && !message_name_is_next(join->job)) {
		peer_refuse(jobs, peer, "draining",
		            "this aggregator is shutting down; use another");
		return;
	}
	if (strchr(join->job, '/') == NULL && has_members(jobs, join->job)) {
		peer_refuse(jobs, peer, "running",
		            "job '%s' is here: newcomers wait until its members admit them",
		            join->job);
		return;
	}
	if (job == NULL) {
		job = job_opened(jobs, peer);
		if (job == NULL)
			return;
		if (!job_begin(jobs, job, peer, join->job, join->world)) {
			peer_refuse(jobs, peer, "memory", "the aggregator is out of memory");
			return;
		}
		job->opener = join->rank;
	}
	member_join(jobs, job, peer, join, now_us);
}

void ready_take(struct jobs *jobs, struct jobs_peer *peer, const struct control_message *message)
{
	struct job *job = peer->job;

	if (job->state != JOB_PROBING || peer->state != PEER_JOINED ||
	    message->payload < WIRE_PAYLOAD_MIN || message->payload > job->shape.payload) {
		jobs_garbage(jobs, peer,
		             "ready: it came out of turn, or its payload is impossible");
		return;
	}
	peer->state = PEER_READY;
	job->wire.multicast[peer->rank] = message->multicast && !net_ip_none(&job->wire.group);
	peer->asks.payload = message->payload;
	if (job->sited)
		jobs->ports.up_ready(jobs->ports.up, peer, message->payload);
	if (job->sited || members_count(job, PEER_READY) < job->world)
		return;
	least_payload(job);
	job_start(jobs, job);
}
