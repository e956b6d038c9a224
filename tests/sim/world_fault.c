// SPDX-License-Identifier: BSD-3-Clause
/* world_fault.c - what happens to a job from outside, and what its workers may be told then */

#include <stdio.h>
#include <string.h>

#include "tests/flatten.h"
#include "tests/sim/world_impl.h"

#define NARROW_BYTES 600 /* what still passes */
#define FORGED_COUNT 64
#define LOSSY_PPM 300000
#define BREAKER_US                                                                                 \
	15000000 /* heavy loss of ten intervals of a second ends a job, and few datagrams make them longer */

/* What a fault may bring its job's workers, beside success. */
static const struct rule {
	const char *name;
	bool of_worker; /* it happens to one; else to an aggregator */
	int status, other_status;
	bool waits_for_stall; /* nobody can know before the stall time has passed */
	const char *text;     /* what the error says, beside who it was */
} rules[FAULT_KINDS] = {
	[FAULT_CRASH] = {"crash", true, WINNOW_ERR_MEMBERS, 0, false, ""},
	/* Where the stall time is the shorter one its absence from an operation may be noticed first. */
	[FAULT_FREEZE] = {"freeze", true, WINNOW_ERR_MEMBERS, WINNOW_ERR_TIMEOUT, false,
                          "is lost: silent for"},
	[FAULT_AGGREGATOR] = {"aggregator", false, WINNOW_ERR_LOST, 0, false, ""},
	[FAULT_ABORT] = {"abort", true, WINNOW_ERR_ABORTED, 0, false, ""},
	[FAULT_ABSENT] = {"absent", true, WINNOW_ERR_TIMEOUT, 0, true, ""},
	[FAULT_MISMATCH] = {"mismatch", true, WINNOW_ERR_MISMATCH, 0, false,
                            "workers do not agree on the operation: "},
	/* Its absence from the last operation may be noticed first. */
	[FAULT_LEAVE] = {"leave", true, WINNOW_ERR_MEMBERS, WINNOW_ERR_TIMEOUT, false, ""},
	[FAULT_MUTE] = {"mute", true, WINNOW_ERR_MEMBERS, 0, false,
                        "sends datagrams that do not arrive"},
	[FAULT_DEAF] = {"deaf", true, WINNOW_ERR_MEMBERS, 0, false,
                        "arrive, but ours do not reach it"},
	[FAULT_NARROW_OUT] = {"narrow out", true, WINNOW_ERR_MEMBERS, 0, false,
                              "no longer pass, 584 do: the path's MTU has shrunk"},
	[FAULT_NARROW_IN] = {"narrow in", true, WINNOW_ERR_MEMBERS, 0, false,
                             "no longer pass, 584 do: the path's MTU has shrunk"},
	[FAULT_AGGREGATOR_DEAF] = {"aggregator deaf", false, WINNOW_ERR_MEMBERS, 0, false,
                                   "sends datagrams that do not arrive"},
	[FAULT_AGGREGATOR_NARROW] = {"aggregator narrow", false, WINNOW_ERR_MEMBERS, 0, false,
                                     "no longer pass, 584 do: the path's MTU has shrunk"},
	/* Nobody notices. */
	[FAULT_MOVE] = {"move", true, 0, 0, false, ""},
	[FAULT_FORGED] = {"forged", true, 0, 0, false, ""},
	[FAULT_FLOOD] = {"flood", true, 0, 0, false, ""},
	[FAULT_PAUSE] = {"pause", true, 0, 0, false, ""},
	[FAULT_GPU] = {"gpu", true, WINNOW_ERR_GPU, WINNOW_ERR_ABORTED, false,
                       "aborted the job: its GPU has failed"},
	[FAULT_LOSSY_OUT] = {"lossy out", true, WINNOW_ERR_ABORTED, 0, false,
                             "to aggregator agg0 were lost for 1"},
	[FAULT_LOSSY_IN] = {"lossy in", true, WINNOW_ERR_ABORTED, 0, false,
                            "from aggregator agg0 were lost for 1"},
};

const char *fault_name(enum fault_kind kind)
{
	return rules[kind].name;
}

struct sim_fault *fault_of(struct world *world, const struct sim_worker *w, enum fault_kind kind)
{
	struct sim_job *job = &world->jobs[w->job];

	for (uint32_t i = 0; i < job->spec->fault_count; i++)
		if (job->spec->faults[i].kind == kind && job->spec->faults[i].who == w->rank)
			return &job->faults[i];
	return NULL;
}

/* ---- striking ---- */

void faults_arm(struct world *world, uint32_t index)
{
	struct sim_job *job = &world->jobs[index];
	uint64_t now_us = simnet_now(world->net);

	if (job->started)
		return;
	job->started = true;
	for (uint32_t i = 0; i < job->spec->fault_count; i++) {
		const struct fault_spec *fault = &job->spec->faults[i];
		uint32_t timer = TIMER_FAULT + 2 * (index * WORLD_FAULTS_MAX + i);

		simnet_timer(world->net, world->nobody, timer, now_us + fault->after_us);
		if (fault->for_us > 0)
			simnet_timer(world->net, world->nobody, timer + 1,
			             now_us + fault->after_us + fault->for_us);
	}
}

/* The way that the fault is about; NULL: it is about none. */
static struct simnet_path *way_of(struct world *world, const struct fault_spec *fault,
                                  uint32_t node)
{
	switch (fault->kind) {
	case FAULT_MUTE:
	case FAULT_NARROW_OUT:
	case FAULT_LOSSY_OUT:
		return simnet_out(world->net, node);
	case FAULT_DEAF:
	case FAULT_NARROW_IN:
	case FAULT_LOSSY_IN:
		return simnet_in(world->net, node);
	case FAULT_AGGREGATOR_DEAF:
		return simnet_in(world->net, fault->who);
	case FAULT_AGGREGATOR_NARROW:
		return simnet_out(world->net, fault->who);
	default:
		return NULL;
	}
}

static bool is_narrow(enum fault_kind kind)
{
	return kind == FAULT_NARROW_OUT || kind == FAULT_NARROW_IN ||
	       kind == FAULT_AGGREGATOR_NARROW;
}

static bool is_lossy(enum fault_kind kind)
{
	return kind == FAULT_LOSSY_OUT || kind == FAULT_LOSSY_IN;
}

/* Another fault that has changed the same of this way. */
static const struct sim_fault *other_of(struct world *world, const struct sim_fault *fault,
                                        const struct simnet_path *way)
{
	for (uint32_t j = 0; j < world->spec->job_count; j++)
		for (uint32_t i = 0; i < world->jobs[j].spec->fault_count; i++) {
			const struct sim_fault *other = &world->jobs[j].faults[i];
			uint32_t who = other->spec->who;

			if (other != fault && other->lasts &&
			    is_narrow(other->spec->kind) == is_narrow(fault->spec->kind) &&
			    is_lossy(other->spec->kind) == is_lossy(fault->spec->kind) &&
			    way_of(world, other->spec,
			           rules[other->spec->kind].of_worker
			                   ? world->jobs[j].workers[who].node
			                   : who) == way)
				return other;
		}
	return NULL;
}

static void way_change(struct world *world, struct sim_fault *fault, uint32_t node, bool begins)
{
	struct simnet_path *way = way_of(world, fault->spec, node);
	const struct sim_fault *other;

	fault->lasts = begins;
	if (way == NULL)
		return;
	other = other_of(world, fault, way);
	if (begins)
		fault->before = other != NULL ? other->before : *way;
	else if (other != NULL)
		return; /* which will put it right */
	if (is_narrow(fault->spec->kind))
		way->mtu = begins ? NARROW_BYTES : fault->before.mtu;
	else if (is_lossy(fault->spec->kind))
		way->loss_ppm = begins ? LOSSY_PPM : fault->before.loss_ppm;
	else
		way->cut = begins;
}

static void worker_dies(struct sim_worker *w, bool resets)
{
	w->dead = true;
	for (uint32_t i = 0; resets && i < links_of(w); i++)
		if (w->connections[i] != 0)
			simnet_gone(w->world->net, w->connections[i], w->node, aggregator_of(w, i));
}

/*
 * One datagram of somebody who has read the worker's token, from another address than the worker's; or
 * where there is a key, of somebody who knows all that is not secret, from the worker's own.
 */
static void forge(struct world *world, const struct sim_port *port, uint32_t aggregator,
                  const struct sim_worker *w)
{
	static const uint8_t kinds[] = {WIRE_ANNOUNCE, WIRE_PUSH, WIRE_STATUS, WIRE_KNOCK};
	uint8_t data[WIRE_PAYLOAD_MIN] = {0};
	struct packet_out out;
	struct wire_header head = {
		.kind = kinds[simnet_between(world->net, 0, sizeof(kinds) - 1)],
		.channel = port->info.id,
		.worker = (uint16_t)w->rank,
		.seal = port->info.tokens[w->rank],
		.frame = port->base + (uint32_t)simnet_between(world->net, 0, 20),
		.edge = port->base + (uint32_t)simnet_between(world->net, 0, 20),
		.sequence = (uint16_t)simnet_between(world->net, 0, 2),
		.pushed = port->base + (uint32_t)simnet_between(world->net, 0, 20),
	};

	packet_begin(&out, &head);
	memset(data, (int)simnet_between(world->net, 0, 255), sizeof(data));
	packet_point(&out, data, (uint32_t)simnet_between(world->net, 0, 64) * 8);
	packet_flatten(&out, world->flat);
	simnet_send(world->net, world->keyed ? w->node : world->nobody, &aggregator, 1, world->flat,
	            out.bytes);
}

/* One that seems to come from the worker, and asks for all that is there. */
static void flood(struct world *world, const struct sim_port *port, uint32_t aggregator,
                  const struct sim_worker *w)
{
	struct packet_out out;
	struct wire_header head = {
		.kind = WIRE_STATUS,
		.channel = port->info.id,
		.worker = (uint16_t)w->rank,
		.seal = port->info.tokens[w->rank],
		.frame = port->base,
		.edge = port->base,
		.sequence = port->sequence,
		.pushed = port->base + WIRE_STATUS_WORDS_MAX * 64,
	};
	struct status status = {
		.asks = true, .first = port->base, .word_count = WIRE_STATUS_WORDS_MAX};

	memset(status.words, 0xff, sizeof(status.words));
	packet_begin(&out, &head);
	packet_put_status(&out, &status);
	if (port->info.seals != NULL)
		seal_write(&out, &port->info.seals->stretch, &port->info.seals->workers[w->rank],
		           port->channel != NULL ? channel_edge(port->channel) : 0);
	packet_flatten(&out, world->flat);
	simnet_send(world->net, w->node, &aggregator, 1, world->flat, out.bytes);
}

typedef void forge_fn(struct world *, const struct sim_port *, uint32_t, const struct sim_worker *);

static void forge_many(struct world *world, const struct sim_worker *w, forge_fn *one)
{
	for (uint32_t i = 0; i < world->spec->aggregator_count; i++)
		for (uint32_t p = 0; p < PORTS_MAX; p++) {
			const struct sim_port *port = world->aggregators[i].ports[p];

			for (uint32_t k = 0; k < FORGED_COUNT && port != NULL && port->base_known;
			     k++)
				if (port->node[w->rank] == w->node)
					one(world, port, i, w);
		}
}

static void fault_begins(struct world *world, struct sim_fault *fault, struct sim_worker *w)
{
	enum fault_kind kind = fault->spec->kind;

	if (kind != FAULT_LEAVE && kind != FAULT_ABSENT) /* these know themselves */
		fault->struck_us = simnet_now(world->net);
	switch (kind) {
	case FAULT_CRASH:
	case FAULT_FREEZE:
		worker_dies(w, kind == FAULT_CRASH);
		break;
	case FAULT_AGGREGATOR:
		aggregator_kill(&world->aggregators[fault->spec->who], true);
		break;
	case FAULT_MOVE:
		if (world->keyed) /* else it would end the job, after its time */
			simnet_move(world->net, w->node);
		break;
	case FAULT_PAUSE:
		/* A shorter one within a longer one: or lines that came in it would overtake others. */
		if (w->thread.busy_until_us < simnet_now(world->net) + fault->spec->for_us)
			w->thread.busy_until_us = simnet_now(world->net) + fault->spec->for_us;
		break;
	case FAULT_GPU:
		w->gpu_dead = true;
		break;
	case FAULT_FORGED:
		forge_many(world, w, forge);
		break;
	case FAULT_FLOOD:
		forge_many(world, w, flood);
		break;
	case FAULT_ABORT:
		session_abort(w->session, "as the test asks");
		worker_run(w);
		break;
	default:
		way_change(world, fault, w->node, true);
	}
}

void fault_strike(struct world *world, uint32_t timer)
{
	uint32_t number = (timer - TIMER_FAULT) / 2;
	struct sim_job *job = &world->jobs[number / WORLD_FAULTS_MAX];
	struct sim_fault *fault = &job->faults[number % WORLD_FAULTS_MAX];
	struct sim_worker *w = &job->workers[fault->spec->who]; /* not of an aggregator's */

	if (!rules[fault->spec->kind].of_worker)
		w = job->workers;
	else if (w->dead || w->left)
		return;
	if ((timer - TIMER_FAULT) % 2 == 0 || fault->spec->kind == FAULT_FORGED ||
	    fault->spec->kind == FAULT_FLOOD)
		fault_begins(world, fault, w);
	else
		way_change(world, fault, w->node, false);
}

/* ---- judging ---- */

/* So much is lost that an announcement may take seconds. */
static bool is_heavy(const struct world *world)
{
	for (uint32_t i = 0; i < world->spec->aggregator_count; i++)
		if (world->spec->aggregators[i].in.loss_ppm >= 150000)
			return true;
	return false;
}

/*
 * A worker lives, and does not call its job's last operation: the aggregator's line says that, of it
 * alone. Where no aggregator notices, or it has heard of the operation late, the other workers' says how
 * long they have waited.
 */
static bool absence_told(const struct sim_worker *w, uint32_t who)
{
	const struct sim_job *job = &w->world->jobs[w->job];
	unsigned long long tag = job->spec->ops[job->spec->op_count - 1].tag;
	double stall_s = (double)job->stall_us / 1e6, silence_s = (double)job->silence_us / 1e6;
	const char *error = session_error(w->session), *told;
	double waited_s = 0;
	char want[160];
	int used = 0;

	snprintf(want, sizeof(want),
	         "no operation has made progress for %.1f s, and no aggregator gives a reason",
	         (double)(job->stall_us / 1000 + job->silence_us / 1000) / 1e3);
	told = strstr(error, want);
	if (w->world->spec->aggregators[0].overlooks_stalls || (told != NULL && is_heavy(w->world)))
		return told != NULL && (told[strlen(want)] == '\0' || told[strlen(want)] == ';');
	snprintf(want, sizeof(want), "rank %u (host%u", who, job->workers[who].node);
	told = strstr(error, want);
	told = told != NULL ? strchr(told, ')') : NULL; /* its site may be named, too */
	snprintf(want, sizeof(want), ") has not called operation %#llx for ", tag);
	if (told == NULL || strncmp(told, want, strlen(want)) != 0)
		return false;
	told += strlen(want);
	sscanf(told, "%lf s: it is alive, in no operation%n", &waited_s, &used);
	if (used == 0 && is_heavy(w->world)) { /* one may take as long as the stall time */
		sscanf(told, "%lf s: it is alive, in operation %*x (%*u under way%n", &waited_s,
		       &used);
		used = used > 0 ? (int)strlen(told) : 0;
	}
	return used > 0 && told[used] == '\0' && waited_s > stall_s - 0.1 &&
	       waited_s < stall_s + silence_s;
}

/* "33 % of the datagrams of rank 1 to aggregator agg0 were lost for 10 s", at this worker or at that one. */
static bool loss_told(const char *error, uint32_t who, const char *text)
{
	char name[64];
	const char *told;

	snprintf(name, sizeof(name), " %% of the datagrams of rank %u ", who);
	told = strstr(error, name);
	return told != NULL && strncmp(told + strlen(name), text, strlen(text)) == 0;
}

/* Does the error name this rank? "rank 12" does not name rank 1. */
static bool rank_told(const char *error, uint32_t who)
{
	char name[32];
	int length = snprintf(name, sizeof(name), "rank %u", who);

	for (const char *at = error; (at = strstr(at, name)) != NULL; at += length)
		if (strspn(at + length, "0123456789") == 0)
			return true;
	return false;
}

/* Does the error say what this fault was, and whose? */
static bool blamed(const struct sim_fault *fault, const struct sim_worker *w, uint32_t op)
{
	const struct sim_job *job = &w->world->jobs[w->job];
	const struct rule *rule = &rules[fault->spec->kind];
	const char *error = session_error(w->session);
	uint32_t who = fault->spec->who;
	char name[32];

	if (fault->spec->kind == FAULT_MISMATCH)
		return strstr(error, rule->text) != NULL && rank_told(error, who);
	if (fault->spec->kind == FAULT_ABORT && w->rank == who)
		return strstr(error, "aborted here") != NULL;
	if (fault->spec->kind == FAULT_GPU && w->rank == who)
		return strcmp(error, "its GPU has failed") == 0;
	if (fault->spec->kind == FAULT_ABSENT)
		return absence_told(w, who);
	if (is_lossy(fault->spec->kind))
		return loss_told(error, who, rule->text);
	/* Nobody knows the host of one that has left any more. */
	snprintf(name, sizeof(name),
	         fault->spec->kind == FAULT_LEAVE ? "rank %u "
	         : rule->of_worker                ? "rank %u ("
	                                          : "agg%u",
	         who);
	if (fault->spec->kind == FAULT_FREEZE && w->ops[op].task.status == WINNOW_ERR_TIMEOUT)
		return job->stall_us <= job->silence_us && strstr(error, name) != NULL &&
		       (strstr(error, " has not called ") != NULL ||
		        strstr(error, " for data of rank ") != NULL);
	return strstr(error, name) != NULL && strstr(error, rule->text) != NULL;
}

/* Does the job depend on this aggregator, or is it a site of which it has no worker? */
static bool is_used(const struct sim_job *job, uint32_t aggregator)
{
	for (uint32_t rank = 0; rank < job->spec->world; rank++)
		if (job->sites[rank] == aggregator)
			return true;
	return aggregator == 0 || job->workers->world->spec->site_count == 0;
}

/*
 * Where there are sites, an aggregator's end is its own to its workers. Of a site others know its workers alone, and the
 * workers of a site hear of the parent by the site.
 */
static bool site_blamed(const struct sim_fault *fault, const struct sim_worker *w, int status)
{
	const struct sim_job *job = &w->world->jobs[w->job];
	const struct rule *rule = &rules[fault->spec->kind];
	const bool dies = fault->spec->kind == FAULT_AGGREGATOR;
	const bool deaf = fault->spec->kind == FAULT_AGGREGATOR_DEAF; /* to the parent, too */
	const char *error = session_error(w->session);
	uint32_t who = fault->spec->who;
	char name[32];

	snprintf(name, sizeof(name), who == 0 && w->spec->home != 0 ? "parent agg%u" : "agg%u",
	         who);
	if (dies && (who == 0 || w->spec->home == who))
		return status == WINNOW_ERR_LOST && strstr(error, name) != NULL;
	for (uint32_t rank = 0; rank < job->spec->world; rank++)
		if ((job->sites[rank] == who || who == 0) && rank_told(error, rank))
			return status == WINNOW_ERR_MEMBERS &&
			       (strstr(error, dies ? " is lost: connection" : rule->text) != NULL ||
			        (deaf && strstr(error, rules[FAULT_DEAF].text) != NULL));
	return false;
}

bool fault_explains(const struct sim_worker *w, uint32_t op)
{
	const struct sim_job *job = &w->world->jobs[w->job];
	int status = w->ops[op].task.status;

	for (uint32_t i = 0; i < job->spec->fault_count; i++) {
		const struct rule *rule = &rules[job->spec->faults[i].kind];

		if (w->world->spec->site_count > 0 && !rule->of_worker) {
			if (job->spec->faults[i].for_us == 0 &&
			    site_blamed(&job->faults[i], w, status))
				return true;
		} else if (job->spec->faults[i].for_us == 0 &&
		           (status == rule->status || status == rule->other_status) &&
		           blamed(&job->faults[i], w, op))
			return true;
	}
	return false;
}

/* ---- in time ---- */

/* An absence begins when all others have submitted all that they will, and what all have called is over. */
static void absence_look(struct world *world, struct sim_job *job, struct sim_fault *fault)
{
	for (uint32_t rank = 0; rank < job->spec->world; rank++)
		if (rank != fault->spec->who && !job->workers[rank].dead &&
		    (job->workers[rank].submitted < job->spec->op_count ||
		     job->workers[rank].finished + 1 < job->spec->op_count))
			return;
	fault->struck_us = simnet_now(world->net);
}

/* How long after a fault its job may still wait. */
static uint64_t patience_us(const struct sim_job *job)
{
	uint64_t us = 2 * job->silence_us + 3000000;
	bool stall = false, path = false;

	for (uint32_t i = 0; i < job->spec->fault_count; i++) {
		stall = stall || rules[job->spec->faults[i].kind].waits_for_stall;
		path = path || job->spec->faults[i].kind >= FAULT_MUTE;
		us += is_lossy(job->spec->faults[i].kind) ? BREAKER_US : 0;
	}
	if (stall)
		us += job->stall_us > 10000000 ? 2 * job->stall_us : job->stall_us;
	if (path) /* a worker that computes notices nothing; nor does one that gets on with all that is small */
		us += job->spec->op_count * job->spec->gap_us +
		      (is_heavy(job->workers->world) ? 30000000 : 0);
	return us;
}

/* Is it something that a job must end of, and at once? */
static bool must_end(const struct sim_job *job, const struct sim_fault *fault)
{
	struct winnow_stats stats;

	if (fault->struck_us == 0 || fault->spec->for_us > 0 ||
	    fault->spec->kind == FAULT_MISMATCH || rules[fault->spec->kind].status == 0)
		return false;
	if (!rules[fault->spec->kind].of_worker && !is_used(job, fault->spec->who))
		return false;
	if (is_lossy(fault->spec->kind))
		return !job->workers->world->spec->private_network;
	session_stats(job->workers[0].session, &stats);
	return !is_narrow(fault->spec->kind) || stats.payload > NARROW_BYTES;
}

static void fault_check_prompt(struct world *world, const struct sim_job *job,
                               const struct sim_fault *fault)
{
	uint64_t now_us = simnet_now(world->net), struck_us = fault->struck_us;

	if (fault->spec->kind == FAULT_GPU) /* who has only zeros left needs it no more */
		struck_us = job->workers[fault->spec->who].gpu_refused_us;
	if (struck_us == 0 || !must_end(job, fault) || now_us <= struck_us + patience_us(job))
		return;
	for (uint32_t rank = 0; rank < job->spec->world; rank++) {
		const struct sim_worker *w = &job->workers[rank];

		if (!w->dead && w->finished < w->submitted)
			world_fail(world, "job %u rank %u: still waiting %.1f s after the %s",
			           w->job, w->rank, (double)(now_us - struck_us) / 1e6,
			           fault_name(fault->spec->kind));
	}
}

void faults_check_prompt(struct world *world)
{
	for (uint32_t j = 0; j < world->spec->job_count; j++) {
		struct sim_job *job = &world->jobs[j];

		for (uint32_t i = 0; i < job->spec->fault_count; i++) {
			if (job->spec->faults[i].kind == FAULT_ABSENT &&
			    job->faults[i].struck_us == 0)
				absence_look(world, job, &job->faults[i]);
			fault_check_prompt(world, job, &job->faults[i]);
		}
	}
}
