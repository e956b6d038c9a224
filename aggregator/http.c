// SPDX-License-Identifier: BSD-3-Clause
/* http.c - see http.h */

#include "aggregator/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_MAX 32
#define IDLE_S 10

struct http {
	struct MHD_Daemon *daemon;
	uv_poll_t poll;
	uv_timer_t timer;
	struct http_sources sources;
};

/* ---- what the data threads say, asked once a request ---- */

struct job_snapshot {
	struct jobs_view view;
	struct channel_stats stats; /* its channels', added up */
};

struct snapshot {
	uint32_t job_count;
	struct job_snapshot *jobs;
	struct jobs_totals totals;
	struct data_stats data;
	uint64_t
		fast[FAST_COUNTER_COUNT]; /* of the XDP program; its drops are in data.drops, too */
};

static void job_stats(struct data *data, const struct jobs_view *view, struct channel_stats *sum)
{
	*sum = (struct channel_stats){0};
	for (uint32_t i = 0; i < view->channel_count; i++) {
		struct channel_stats one = {0};
		const uint64_t *from = (const uint64_t *)(const void *)&one;
		uint64_t *to = (uint64_t *)(void *)sum;

		_Static_assert(sizeof(one) % sizeof(uint64_t) == 0, "only uint64_t");
		if (!data_channel_stats(data, view->channel_ids[i], &one))
			continue;
		for (size_t k = 0; k < sizeof(one) / sizeof(uint64_t); k++)
			to[k] += from[k];
	}
}

static bool snapshot_take(const struct http_sources *sources, struct snapshot *out)
{
	jobs_totals(sources->jobs, &out->totals);
	data_stats(sources->data, &out->data);
	offload_counters(sources->offload, out->fast);
	for (uint32_t d = 0; d < WIRE_DROP_COUNT; d++)
		if (d != WIRE_DROP_DUPLICATE) /* is in the channels' own numbers */
			out->data.drops[d] += out->fast[d];
	out->job_count = 0;
	out->jobs = calloc(out->totals.jobs + 1, sizeof(*out->jobs));
	if (out->jobs == NULL)
		return false;
	for (uint32_t i = 0; i < JOBS_MAX && out->job_count < out->totals.jobs; i++) {
		struct job_snapshot *job = &out->jobs[out->job_count];

		if (!jobs_view(sources->jobs, i, &job->view))
			continue;
		job_stats(sources->data, &job->view, &job->stats);
		out->job_count++;
	}
	return true;
}

static const char *datapath(const struct http_sources *sources)
{
	return sources->offload != NULL ? "xdp" : "udp";
}

/* ---- Prometheus text, version 0.0.4 ---- */

static void family(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP winnow_%s %s\n# TYPE winnow_%s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	family(out, name, type, help);
	fprintf(out, "winnow_%s %" PRIu64 "\n", name, value);
}

struct job_metric {
	const char *name;
	const char *help;
	size_t offset; /* in struct channel_stats */
};

#define METRIC(name, field, help)                                                                  \
	{                                                                                          \
		name, help, offsetof(struct channel_stats, field)                                  \
	}

/* Counters of running jobs; a job's series ends with it. */
static const struct job_metric job_metrics[] = {
	METRIC("allreduce_total", operations,
               "Operations that all workers have finished, per channel."),
	METRIC("mismatches_total", mismatches, "Operations that failed because workers disagreed."),
	METRIC("tensor_bytes_total", tensor_bytes,
               "Bytes of one worker's tensors, zeros included."),
	METRIC("blocks_total", blocks, "Blocks of the tensors reduced."),
	METRIC("blocks_nonzero_total", blocks_nonzero, "Blocks that any worker had non-zero."),
	METRIC("pushes_total", pushes, "Frames of data accepted from workers."),
	METRIC("results_total", results, "Frames of sums completed."),
	METRIC("passed_through_total", passed_through, "Frames that had one contributor."),
	METRIC("result_resends_total", result_resends, "Sums sent again to a worker that asked."),
	METRIC("wants_total", wants, "Requests to workers for data that did not arrive."),
	METRIC("received_bytes_total", received_bytes, "UDP payload bytes received."),
	METRIC("sent_bytes_total", sent_bytes, "UDP payload bytes sent; to a group counts once."),
};

static void jobs_metrics(FILE *out, const struct snapshot *now)
{
	for (size_t m = 0; m < sizeof(job_metrics) / sizeof(job_metrics[0]); m++) {
		family(out, job_metrics[m].name, "counter", job_metrics[m].help);
		for (uint32_t i = 0; i < now->job_count; i++) {
			uint64_t value;

			memcpy(&value, (const uint8_t *)&now->jobs[i].stats + job_metrics[m].offset,
			       sizeof(value));
			fprintf(out, "winnow_%s{job=\"%s\"} %" PRIu64 "\n", job_metrics[m].name,
			        now->jobs[i].view.name, value);
		}
	}
	family(out, "job_members", "gauge", "Workers that have joined and not left.");
	for (uint32_t i = 0; i < now->job_count; i++)
		fprintf(out, "winnow_job_members{job=\"%s\"} %u\n", now->jobs[i].view.name,
		        now->jobs[i].view.joined);
}

static void drop_metrics(FILE *out, const struct snapshot *now)
{
	family(out, "packets_dropped_total", "counter",
	       "Packets received and not used, by reason.");
	for (uint32_t d = 1; d < WIRE_DROP_COUNT; d++) {
		uint64_t count = now->data.drops[d];

		for (uint32_t i = 0; i < now->job_count; i++)
			count += now->jobs[i].stats.drops[d];
		fprintf(out, "winnow_packets_dropped_total{reason=\"%s\"} %" PRIu64 "\n",
		        drop_name((enum wire_drop)d), count);
	}
}

static void fast_metrics(FILE *out, const struct snapshot *now)
{
	family(out, "xdp_packets_total", "counter",
	       "Datagrams that the XDP program saw, by what it did; those that it dropped are in "
	       "packets_dropped_total.");
	for (uint32_t i = FAST_COUNT_PASSED; i < FAST_COUNTER_COUNT; i++)
		fprintf(out, "winnow_xdp_packets_total{verdict=\"%s\"} %" PRIu64 "\n",
		        fast_counter_name((enum fast_counter)i), now->fast[i]);
}

static void totals_metrics(FILE *out, const struct snapshot *now)
{
	const struct jobs_totals *t = &now->totals;
	const struct net_stats *net = &now->data.net;

	single(out, "jobs", "gauge", "Jobs that are here.", t->jobs);
	single(out, "connections", "gauge", "Control connections.", t->peers);
	single(out, "memory_reserved_bytes", "gauge", "Slots and tables of all jobs.", t->bytes);
	single(out, "draining", "gauge", "1 when no new jobs are taken.", t->draining);
	single(out, "jobs_started_total", "counter", "Jobs that have begun.", t->jobs_started);
	single(out, "jobs_finished_total", "counter", "Jobs that all workers left.",
	       t->jobs_finished);
	single(out, "jobs_failed_total", "counter", "Jobs that ended with an error.",
	       t->jobs_failed);
	single(out, "joins_refused_total", "counter", "Workers that were not let in.",
	       t->joins_refused);
	single(out, "packets_received_total", "counter", "Datagrams.", net->received);
	single(out, "packets_received_bytes_total", "counter", "UDP payload bytes.",
	       net->received_bytes);
	single(out, "packets_sent_total", "counter", "Datagrams; to a group counts once.",
	       net->sent);
	single(out, "packets_sent_bytes_total", "counter", "UDP payload bytes.", net->sent_bytes);
	single(out, "packets_send_errors_total", "counter", "Datagrams that the system refused.",
	       net->tx_errors);
	single(out, "packets_unsent_total", "counter",
	       "Datagrams given up: the network stayed full.", now->data.unsent);
}

char *http_metrics(const struct http_sources *sources)
{
	struct snapshot now;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return NULL;
	if (snapshot_take(sources, &now)) {
		family(out, "build_info", "gauge", "What this is.");
		fprintf(out, "winnow_build_info{version=\"%s\",isa=\"%s\",datapath=\"%s\"} 1\n",
		        WINNOW_VERSION, bitmap_best()->name, datapath(sources));
		totals_metrics(out, &now);
		drop_metrics(out, &now);
		if (sources->offload != NULL)
			fast_metrics(out, &now);
		jobs_metrics(out, &now);
		free(now.jobs);
	}
	fclose(out);
	return text;
}

/* ---- JSON ---- */

static json_t *job_json(const struct jobs_view *view, const struct channel_stats *stats)
{
	json_t *drops = json_object();

	for (uint32_t d = 1; d < WIRE_DROP_COUNT; d++)
		json_object_set_new(drops, drop_name((enum wire_drop)d),
		                    json_integer((json_int_t)stats->drops[d]));
	return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:b, s:b, s:I, s:i, s:I, s:I, s:I, s:I, "
	                 "s:I, s:I, s:o}",
	                 "name", view->name, "state", view->state, "world", (int)view->world,
	                 "members", (int)view->joined, "payload", (int)view->payload, "window",
	                 (int)view->window, "multicast", view->multicast, "fast", view->fast,
	                 "bytes", (json_int_t)view->bytes, "channels", (int)view->channel_count,
	                 "operations", (json_int_t)stats->operations, "blocks",
	                 (json_int_t)stats->blocks, "blocks_nonzero",
	                 (json_int_t)stats->blocks_nonzero, "results", (json_int_t)stats->results,
	                 "result_resends", (json_int_t)stats->result_resends, "wants",
	                 (json_int_t)stats->wants, "drops", drops);
}

char *http_status(const struct http_sources *sources)
{
	json_t *list = json_array(), *root;
	struct snapshot now;
	char *text;

	if (!snapshot_take(sources, &now)) {
		json_decref(list);
		return NULL;
	}
	for (uint32_t i = 0; i < now.job_count; i++)
		json_array_append_new(list, job_json(&now.jobs[i].view, &now.jobs[i].stats));
	free(now.jobs);
	root = json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:o}", "version",
	                 WINNOW_VERSION, "datapath", datapath(sources), "isa", bitmap_best()->name,
	                 "draining", now.totals.draining, "memory_reserved_bytes",
	                 (json_int_t)now.totals.bytes, "jobs_started",
	                 (json_int_t)now.totals.jobs_started, "jobs_finished",
	                 (json_int_t)now.totals.jobs_finished, "jobs_failed",
	                 (json_int_t)now.totals.jobs_failed, "joins_refused",
	                 (json_int_t)now.totals.joins_refused, "jobs", list);
	text = json_dumps(root, JSON_INDENT(2));
	json_decref(root);
	return text;
}

/* ---- answering ---- */

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status, const char *type,
                               char *body)
{
	struct MHD_Response *response;
	enum MHD_Result result;

	if (body == NULL)
		return MHD_NO;
	response = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
	if (response == NULL) {
		free(body);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **request)
{
	const struct http *http = context;
	struct jobs_totals totals;

	(void)version;
	(void)upload;
	(void)upload_bytes;
	(void)request;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain",
		               strdup("only GET\n"));
	if (strcmp(url, "/metrics") == 0)
		return respond(connection, MHD_HTTP_OK, "text/plain; version=0.0.4",
		               http_metrics(&http->sources));
	if (strcmp(url, "/status") == 0)
		return respond(connection, MHD_HTTP_OK, "application/json",
		               http_status(&http->sources));
	if (strcmp(url, "/healthz") == 0)
		return respond(connection, MHD_HTTP_OK, "text/plain", strdup("ok\n"));
	jobs_totals(http->sources.jobs, &totals);
	if (strcmp(url, "/readyz") == 0)
		return respond(connection,
		               totals.draining ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK,
		               "text/plain", strdup(totals.draining ? "draining\n" : "ready\n"));
	return respond(connection, MHD_HTTP_NOT_FOUND, "text/plain",
	               strdup("try /metrics, /status, /healthz or /readyz\n"));
}

/* ---- on the loop ---- */

static void timed(uv_timer_t *timer);

static void work(struct http *http)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	MHD_run(http->daemon);
	if (MHD_get_timeout(http->daemon, &wait_ms) == MHD_YES)
		uv_timer_start(&http->timer, timed, wait_ms, 0);
}

static void timed(uv_timer_t *timer)
{
	work(timer->data);
}

static void polled(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	work(poll->data);
}

int http_open(const struct net_addr *listen, uv_loop_t *loop, const struct http_sources *sources,
              struct http **out, char *why)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(listen->ip),
		.sin_port = htons(listen->port),
	};
	struct http *http = calloc(1, sizeof(*http));
	const union MHD_DaemonInfo *info;
	char text[24];

	if (http == NULL) {
		snprintf(why, NET_WHY_BYTES, "out of memory");
		return -ENOMEM;
	}
	http->sources = *sources;
	http->daemon = MHD_start_daemon(MHD_USE_EPOLL, listen->port, NULL, NULL, answer, http,
	                                MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT,
	                                CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
	                                MHD_OPTION_END);
	if (http->daemon == NULL) {
		snprintf(why, NET_WHY_BYTES, "cannot serve HTTP on %s: %s",
		         net_format(listen, text), strerror(errno));
		free(http);
		return errno != 0 ? -errno : -EADDRINUSE;
	}
	info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	uv_poll_init(loop, &http->poll, info->epoll_fd);
	uv_timer_init(loop, &http->timer);
	http->poll.data = http;
	http->timer.data = http;
	uv_poll_start(&http->poll, UV_READABLE, polled);
	*out = http;
	return 0;
}

static void closed(uv_handle_t *handle)
{
	free(handle->data);
}

void http_close(struct http *http)
{
	if (http == NULL)
		return;
	uv_poll_stop(&http->poll);
	uv_close((uv_handle_t *)&http->timer, NULL);
	uv_close((uv_handle_t *)&http->poll, closed);
	MHD_stop_daemon(http->daemon);
}
