// SPDX-License-Identifier: BSD-3-Clause
/* job.c - winnow job: an operator's order to a job that runs, given to each of its aggregators; PROTOCOL.md section 5.11 */

#include <errno.h>
#include <poll.h>
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
#include "aggregator/net/sockaddr.h"
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
	{"aggregator", "HOST:PORT,..", OPTION_TEXT, &settings.aggregators, "127.0.0.1:5555",
         "WINNOW_AGGREGATORS", 0, 0, "all that the job uses"},
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
	.about = "Tells a job that runs to wait before its next operation, to continue, or to do "
		 "without a worker.\nIt takes the job's key. pause: operations under way end as "
		 "far as "
		 "all workers have called them; no\nwaiting counts, and nothing is lost. shrink: "
		 "the "
		 "worker's error says that an operator has taken\nit out, and the others continue "
		 "as "
		 "after a loss, if their program knows how.",
	.examples = "  winnow job pause train1 --aggregator 10.0.0.1:5555 --key-file key\n"
		    "  winnow job shrink train1 --rank 3 --reason 'its host is needed'\n",
	.list = list,
	.section = "job",
	.operands = settings.operands,
	.operand_count = &settings.operand_count,
	.operand_max = 2,
};

/* ---- one aggregator ---- */

/* An aggregator that has been connected to, until when it is to have answered, and what has come so far. */
struct talk {
	int fd;
	uint64_t end_us;
	struct transcript transcript;
	struct line_proof in; /* its lines': on once the order is out, if there is a key */
	char said[LINES_BYTES_MAX];
	size_t bytes;
};

/* Waits for it. 0: a line has ended; or -errno: -ECONNRESET where it has gone. */
static int talk_hear(struct talk *talk)
{
	while (memchr(talk->said, '\n', talk->bytes) == NULL) {
		struct pollfd fd = {.fd = talk->fd, .events = POLLIN};
		uint64_t now_us = clock_us();
		ssize_t bytes;

		if (now_us >= talk->end_us || talk->bytes + 1 == sizeof(talk->said))
			return now_us >= talk->end_us ? -ETIMEDOUT : -EPROTO;
		poll(&fd, 1, (int)((talk->end_us - now_us) / 1000 + 1));
		bytes = recv(talk->fd, talk->said + talk->bytes,
		             sizeof(talk->said) - 1 - talk->bytes, MSG_DONTWAIT);
		if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
			return bytes == 0 ? -ECONNRESET : -errno;
		talk->bytes += bytes > 0 ? (size_t)bytes : 0;
	}
	return 0;
}

/*
 * False: none has come in time, or it is of no use: `why`. Only a refusal needs no proof: who does not know our
 * key can make none.
 */
static bool answer_read(struct talk *talk, struct control_message *answer, struct why *why)
{
	int err = talk_hear(talk);
	const char *said;
	char *end;
	bool good;

	if (err != 0) {
		why_set(why, err, "%s",
		        err == -ECONNRESET  ? "connection closed"
		        : err == -ETIMEDOUT ? "it has not answered"
		                            : strerror(-err));
		return false;
	}
	end = memchr(talk->said, '\n', talk->bytes);
	*end++ = '\0';
	said = line_proven(&talk->in, talk->said);
	transcript_add(&talk->transcript, talk->said);
	good = message_parse(said != NULL ? said : talk->said, answer, why) == 0;
	if (good && said == NULL && answer->kind != CONTROL_FAILED) {
		why_set(why, -EPROTO,
		        "its answer has no right proof: somebody on the path has changed it");
		good = false;
	}
	talk->bytes -= (size_t)(end - talk->said);
	memmove(talk->said, end, talk->bytes);
	return good;
}

/* -1: errno. */
static int connect_to(const struct net_addr *to)
{
	const struct timeval limit = {.tv_sec = (time_t)(settings.timeout_us / 1000000),
	                              .tv_usec = (suseconds_t)(settings.timeout_us % 1000000)};
	union net_sockaddr address;
	socklen_t size = net_sockaddr(to, &address);
	int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* for connect() as well */
	if (connect(fd, &address.any, size) == 0)
		return fd;
	err = errno == EINPROGRESS ? ETIMEDOUT : errno;
	close(fd);
	errno = err;
	return -1;
}

/* To an aggregator that has been connected to. 0 and its answer, or `why` it has not done so. */
static int order_say(struct talk *talk, struct control_message *order, const struct proof_key *key,
                     struct control_message *answer, struct why *why)
{
	struct line_proof none; /* the order is our only line */
	char *line;
	size_t bytes;
	bool sent;

	transcript_begin(&talk->transcript);
	if (!answer_read(talk, answer, why))
		return -EIO;
	if (answer->kind != CONTROL_HELLO)
		return why_set(why, -EPROTO, "it is no winnowd");
	if (answer->key != (key != NULL))
		return why_set(why, -EPROTO, "%s",
		               key != NULL ? "it runs with --insecure-no-key: so must this"
		                           : "it wants the job's key: --key-file FILE");
	proof_random(order->nonce, sizeof(order->nonce));
	if (key != NULL)
		proof_of_order(key, answer->nonce, order, order->proof);
	line = message_format(order);
	if (line == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	transcript_add(&talk->transcript, line);
	if (key != NULL)
		line_proofs_early(key, order->job, 0, &talk->transcript, &none, &talk->in);
	bytes = strlen(line);
	sent = send(talk->fd, line, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
	free(line);
	if (!sent)
		return why_set(why, -errno, "%s", strerror(errno));
	if (!answer_read(talk, answer, why))
		return -EIO;
	if (answer->kind != CONTROL_DONE)
		return why_set(why, -EPROTO, "%s", answer->text);
	return 0;
}

/* 0, and the aggregator's word is printed; or 1. */
static int order_give(const char *name, struct control_message *order, const struct proof_key *key)
{
	struct control_message answer;
	struct net_addr to;
	struct why why;
	struct talk talk = {.end_us = clock_us() + settings.timeout_us};
	int err;

	if (net_resolve(name, &to, &why) != 0)
		return cli_error(1, "%s: %s", name, why.text);
	talk.fd = connect_to(&to);
	if (talk.fd < 0)
		return cli_error(1, "%s: %s; is winnowd there?", name, strerror(errno));
	err = order_say(&talk, order, key, &answer, &why);
	close(talk.fd);
	if (err != 0)
		return cli_error(1, "%s: %s", name, why.text);
	printf("%s: %s\n", name, answer.text);
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
	struct why why;

	*key = NULL;
	if (config->insecure_no_key && (config->key_file != NULL || config->key != NULL))
		return cli_error(2, "--insecure-no-key (WINNOW_INSECURE_NO_KEY) contradicts a key: "
		                    "give one of them");
	if (config->insecure_no_key)
		return 0;
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

		at = cli_item(at, name, sizeof(name));
		result = order_give(name, &order, key);
		status = result > status ? result : status;
		if (result == 0 && strcmp(order.order, "expel") == 0)
			break; /* the others are told by the workers */
	}
	proof_keys_free(keys);
	return status != 0 ? status : cli_flush(1);
}
