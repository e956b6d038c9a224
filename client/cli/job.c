// SPDX-License-Identifier: BSD-3-Clause
/* job.c - winnow job: an operator's order to a job that runs, given to each of its aggregators; PROTOCOL.md section 5.11 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "aggregator/control/line_proof.h"
#include "aggregator/control/lines.h"
#include "aggregator/control/message.h"
#include "aggregator/control/options.h"
#include "aggregator/control/proof.h"
#include "aggregator/net/clock.h"
#include "aggregator/net/net.h"
#include "client/cli/cli.h"
#include "client/comm/comm_options.h"

static struct {
	const char *operands[2];
	uint32_t operand_count, rank;
	const char *aggregators, *reason;
	uint64_t timeout_us;
	struct winnow_config config; /* its key */
} settings;

#define NO_RANK UINT32_MAX

static const struct option list[] = {
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &settings.aggregators, "127.0.0.1:5555",
         NULL, 0, 0, "all that the job uses"},
	{"rank", "R", OPTION_COUNT32, &settings.rank, NULL, OPTION_ARGUMENT, 0,
         WIRE_WORKERS_MAX - 1, "shrink: which worker goes"},
	{"reason", "TEXT", OPTION_TEXT, &settings.reason, "", NULL, 0, 0,
         "shrink: what it is told, and the others"},
	{"timeout", "TIME", OPTION_TIME, &settings.timeout_us, "3s", OPTION_ARGUMENT, 1000, 6e8,
         "how long to wait for an aggregator"},
	COMM_OPTIONS_KEY(settings.config),
	{0},
};

static const struct options options = {
	.program = "winnow job",
	.usage = "pause|resume|shrink JOB [...]",
	.about =
		"Tells a job that runs to wait before its next operation, to continue, or to do "
		"without a worker.\nIt takes the job's key. pause: operations under way end as far "
		"as all workers have called them; no\nwaiting counts, and nothing is lost. shrink: "
		"the worker's error says that an operator has taken\nit out, and the others "
		"continue as after a loss, if their program knows how.",
	.examples = "  winnow job pause train1 --aggregators 10.0.0.1:5555 --key-file key\n"
		    "  winnow job shrink train1 --rank 3 --reason 'its host is needed'\n",
	.list = list,
	.section = "job",
	.operands = settings.operands,
	.operand_count = &settings.operand_count,
	.operand_max = 2,
};

/* ---- one aggregator ---- */

/* An aggregator that has been connected to, what it is told, and what it has said. */
struct talk {
	int fd;
	const struct proof_key *key;
	struct control_message *order;
	bool ordered; /* the order is out */
	struct transcript transcript;
	struct line_proof in; /* its lines': on once the order is out, if there is a key */
	struct lines lines;
	struct control_message answer;
	struct why why;
};

/* Its hello has come. */
static int order_say(struct talk *talk)
{
	struct control_message *order = talk->order;
	struct line_proof none; /* the order is our only line */
	char *line;
	size_t bytes;
	bool sent;

	if (talk->answer.kind != CONTROL_HELLO)
		return why_set(&talk->why, -EPROTO, "it is no winnowd");
	if (talk->answer.key != (talk->key != NULL))
		return why_set(&talk->why, -EPROTO, "%s",
		               talk->key != NULL ? "it runs with --insecure-no-key: so must this"
		                                 : "it wants the job's key: --key-file FILE");
	proof_random(order->nonce, sizeof(order->nonce));
	if (talk->key != NULL)
		proof_of_order(talk->key, talk->answer.nonce, order, order->proof);
	line = message_format(order);
	if (line == NULL)
		return why_set(&talk->why, -ENOMEM, "out of memory");
	transcript_add(&talk->transcript, line);
	if (talk->key != NULL)
		line_proofs_early(talk->key, order->job, 0, &talk->transcript, &none, &talk->in);
	explicit_bzero(&none, sizeof(none));
	bytes = strlen(line);
	sent = send(talk->fd, line, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
	free(line);
	talk->ordered = true;
	return sent ? 0 : why_set(&talk->why, -errno, "%s", strerror(errno));
}

/* A line has come. 0: another one must; 1: the order is obeyed; or -errno and talk->why. */
static int line_take(void *context, const char *line)
{
	struct talk *talk = context;
	const char *said = line_proven(&talk->in, line);

	transcript_add(&talk->transcript, line);
	if (message_parse(said != NULL ? said : line, &talk->answer, &talk->why) != 0)
		return -EPROTO;
	/* Only a refusal needs no proof: who does not know our key can make none. */
	if (said == NULL && talk->answer.kind != CONTROL_FAILED)
		return why_set(
			&talk->why, -EPROTO,
			"its answer has no right proof: somebody on the path has changed it");
	if (!talk->ordered)
		return order_say(talk);
	return talk->answer.kind == CONTROL_DONE
	               ? 1
	               : why_set(&talk->why, -EPROTO, "%s", talk->answer.text);
}

/* What it says until it has obeyed: 1; or -errno and talk->why. */
static int talk_hear(struct talk *talk, uint64_t end_us)
{
	int err = 0;

	talk->transcript = (struct transcript){0};
	while (err == 0) {
		char buffer[4096];
		ssize_t bytes = cli_receive(talk->fd, buffer, sizeof(buffer), end_us);

		if (bytes <= 0)
			return why_set(&talk->why, -ECONNRESET, "%s",
			               bytes == 0           ? "connection closed"
			               : errno == ETIMEDOUT ? "it has not answered"
			                                    : strerror(errno));
		why_set(&talk->why, 0, "it sent something that is not a message");
		err = lines_feed(&talk->lines, buffer, (size_t)bytes, line_take, talk);
	}
	return err;
}

/* 0, and the aggregator's word is printed; or 1. */
static int order_give(const char *name, struct control_message *order, const struct proof_key *key)
{
	uint64_t end_us = clock_us() + settings.timeout_us;
	struct talk talk = {.key = key, .order = order};
	struct net_addr to;
	int err;

	if (net_resolve(name, &to, &talk.why) != 0)
		return cli_error(1, "%s: %s", name, talk.why.text);
	talk.fd = cli_connect(&to, end_us);
	if (talk.fd < 0)
		return cli_error(1, "%s: %s; is winnowd there?", name, strerror(errno));
	err = talk_hear(&talk, end_us);
	close(talk.fd);
	explicit_bzero(&talk.in, sizeof(talk.in));
	if (err < 0)
		return cli_error(1, "%s: %s", name, talk.why.text);
	printf("%s: %s\n", name, talk.answer.text);
	return 0;
}

/* ---- all of them ---- */

/* 2: it makes no sense. */
static int order_read(struct control_message *order)
{
	const char *word = settings.operands[0], *job = settings.operands[1];
	bool shrink = settings.operand_count == 2 && strcmp(word, "shrink") == 0;

	if (settings.operand_count != 2 ||
	    (!shrink && strcmp(word, "pause") != 0 && strcmp(word, "resume") != 0))
		return cli_error(2, "say pause, resume or shrink, and the job's name");
	if (!message_name_valid(job))
		return cli_error(2, "'%.80s' is no job's name", job);
	if (shrink == (settings.rank == NO_RANK))
		return cli_error(2, shrink ? "shrink needs --rank: which worker goes?"
		                           : "--rank is for shrink");
	*order = (struct control_message){.kind = CONTROL_ORDER, .version = WIRE_VERSION};
	order->rank = shrink ? settings.rank : 0;
	snprintf(order->job, sizeof(order->job), "%s", job);
	snprintf(order->order, sizeof(order->order), "%s", shrink ? "expel" : word);
	message_printable(settings.reason, order->text, sizeof(order->text));
	return 0;
}

static int key_read(const char *job, struct proof_keys **keys, const struct proof_key **key)
{
	const struct winnow_config *config = &settings.config;
	int status = cli_key_check(config);
	struct why why;

	*key = NULL;
	if (status != 0 || config->insecure_no_key)
		return status;
	if (config->key_file == NULL && config->key == NULL)
		return cli_error(2, "no job key: give --key-file FILE, or --insecure-no-key");
	if (proof_keys_load(config->key_file, config->key, keys, &why) != 0)
		return cli_error(2, "%s", why.text);
	*key = proof_keys_find(*keys, job);
	return *key != NULL ? 0 : cli_error(2, "the key file has no key for job '%s'", job);
}

int cli_job(int argc, char **argv)
{
	struct proof_keys *keys = NULL;
	const struct proof_key *key;
	struct control_message order;
	const char *at;
	char name[256];
	int status;

	settings.rank = NO_RANK;
	status = options_read(&options, argc, argv);
	if (status != 0)
		return status == 1 ? 0 : status;
	if (proof_init() != 0)
		return cli_error(1, "libsodium cannot start: no source of randomness?");
	status = order_read(&order);
	if (status == 0)
		status = key_read(order.job, &keys, &key);
	at = status == 0 ? settings.aggregators : NULL;
	while (at != NULL) {
		int result;

		at = option_item(at, name, sizeof(name));
		result = order_give(name, &order, key);
		status = result > status ? result : status;
		if (result == 0 && strcmp(order.order, "expel") == 0)
			break; /* the others are told by the workers */
	}
	proof_keys_free(keys);
	return status != 0 ? status : cli_flush(1);
}
