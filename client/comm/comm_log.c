// SPDX-License-Identifier: BSD-3-Clause
/* comm_log.c - tells a caller why it still waits and what it has joined, by config.log or on stderr */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bitmap/control/options.h"
#include "client/comm/comm_state.h"

/* Shorter waits are not told: for an aggregator, and for other workers, which take their time to start. */
#define WAIT_FIRST_US 2000000
#define WAIT_RANKS_US 5000000

void comm_tell(const struct winnow_config *config, enum winnow_level level, const char *format, ...)
{
	char said[CONTROL_TEXT_BYTES + 256], text[sizeof(said) + 24];
	va_list args;

	if (config->log == NULL && level > config->debug)
		return;
	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	text_show(said);
	snprintf(text, sizeof(text), "rank %u: %s", config->rank, said);
	if (config->log != NULL)
		config->log(config->log_context, level, text);
	else
		fprintf(stderr, "winnow: %s\n", text);
}

void comm_tell_strangers(const struct winnow_config *config)
{
	char *const *at = environ;
	struct why why;

	while (config->rank == 0 && option_stranger(&at, &why))
		comm_tell(config, WINNOW_WARN, "%s", why.text);
}

/* It tells less and less often, so that a job that waits for an hour does not fill a log. */
void comm_tell_wait(const struct winnow_config *config, struct comm_wait *wait, const char *text,
                    uint64_t ranks_since_us)
{
	uint64_t now_us = clock_us(), waited_us = now_us - wait->began_us;

	if (*text == '\0' || waited_us < WAIT_FIRST_US || waited_us < wait->due_us ||
	    (ranks_since_us != 0 && now_us - ranks_since_us < WAIT_RANKS_US) ||
	    strcmp(text, wait->told) == 0)
		return;
	snprintf(wait->told, sizeof(wait->told), "%s", text);
	wait->due_us = waited_us + waited_us / 2;
	comm_tell(config, WINNOW_WARN, "%s", text);
}

void comm_wait_turn(struct winnow_comm *comm, struct comm_wait *wait)
{
	char text[sizeof(comm->shared.news.awaits.text)];
	uint64_t ranks_since_us = comm->shared.news.awaits.ranks_us;

	memcpy(text, comm->shared.news.awaits.text, sizeof(text));
	comm_cond_wait(&comm->shared.changed, &comm->shared.lock,
	               clock_us() + COMM_GIVE_UP_LOOK_US);
	pthread_mutex_unlock(&comm->shared.lock);
	comm_tell_wait(&comm->move.config, wait, text, ranks_since_us);
	pthread_mutex_lock(&comm->shared.lock);
}

/* ---- what the thread knows ---- */

/* Why `peer` has not let us in yet; "": it has. *ranks_us: since when it has waited for other workers, or 0. */
static void peer_awaits(const struct winnow_comm *comm, const struct comm_peer *peer, char *text,
                        size_t room, uint64_t *ranks_us)
{
	const struct link *link = session_link(comm->session, (uint32_t)(peer - comm->peers));

	*ranks_us = peer->state == PEER_CONNECTED ? peer->tcp.since_us : 0;
	if (link->state >= LINK_RUNNING)
		*text = '\0';
	else if (peer->state == PEER_CONNECTED)
		snprintf(text, room, "%s: %s", peer->name, link_awaits(link));
	else
		snprintf(text, room, "%s: %s; trying for %.0f s", peer->name,
		         peer->tries.refused != 0 ? strerror(peer->tries.refused) : "no answer yet",
		         (double)peer->tries.patience_us / 1e6);
}

/* An aggregator that cannot be reached comes first, because it may be why the others wait for workers. */
void comm_awaits(struct winnow_comm *comm)
{
	char text[sizeof(comm->shared.news.awaits.text)] = "",
	     one[sizeof(comm->shared.news.awaits.text)];
	uint64_t ranks_us = 0, one_us;
	uint32_t more = 0;

	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		peer_awaits(comm, &comm->peers[i], one, sizeof(one), &one_us);
		if (*one == '\0')
			continue;
		more += one_us == 0;
		if (*text != '\0' && (one_us != 0 || ranks_us == 0))
			continue;
		memcpy(text, one, sizeof(one));
		ranks_us = one_us;
	}
	if (more > 1 && ranks_us == 0)
		text_add(text, sizeof(text), " (and %u more)", more - 1);
	memcpy(comm->shared.news.awaits.text, text, sizeof(text));
	comm->shared.news.awaits.ranks_us = ranks_us;
}

/* ---- what has been joined ---- */

void comm_tell_joined(struct winnow_comm *comm)
{
	char names[256] = "";
	struct winnow_stats stats;

	if (comm->move.config.log == NULL && comm->move.config.debug < WINNOW_INFO)
		return;
	winnow_comm_stats(comm, &stats);
	for (uint32_t i = 0; i < comm->move.peer_count; i++)
		text_add(names, sizeof(names), "%s%s", i > 0 ? "," : "", comm->peers[i].name);
	comm_tell(&comm->move.config, WINNOW_INFO,
	          "joined job '%s': workers=%u datapath=%s multicast=%u/%u payload=%u isa=%s "
	          "channels=%u key=%s slice_us=%u nice=%d aggregators=%s",
	          comm->move.job, comm->move.config.world, comm->fixed.backend->name,
	          stats.multicast, comm->move.peer_count, stats.payload, bitmap_best()->name,
	          stats.channels, comm->fixed.tls != NULL ? "yes" : "no",
	          comm->shared.turn.slice_us, comm->shared.turn.nice, names);
}
