// SPDX-License-Identifier: BSD-3-Clause
/* http_status.c - /status: one JSON object; docs/status.md lists its fields */

#include <jansson.h>
#include <uv.h>

#include "aggregator/http/http_state.h"
#include "bitmap/dtype.h"
#include "ebpf/packet.h"

static json_t *number_json(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *seconds_json(uint64_t us)
{
	return json_real((double)us / 1e6);
}

static void numbers_put(json_t *object, const struct http_number list[], const void *of)
{
	for (const struct http_number *n = list; n->bytes > 0; n++) {
		uint64_t value = http_number(n, of);

		if (n->key != NULL)
			json_object_set_new(object, n->key,
			                    n->kind == NUMBER_BOOL ? json_boolean(value)
			                    : n->kind == NUMBER_SECONDS || n->kind == NUMBER_TIME
			                            ? seconds_json(value)
			                            : number_json(value));
	}
}

/* The counts from `first` to before `end`: drops, or what else the XDP program counts. */
static json_t *counts_json(const uint64_t counts[], uint32_t first, uint32_t end)
{
	json_t *object = json_object();

	for (uint32_t i = first; i < end; i++)
		json_object_set_new(object, fast_counter_name(i), number_json(counts[i]));
	return object;
}

/* ---- a job ---- */

static json_t *operation_json(const struct channel_view *busy)
{
	char tag[24];

	if (busy->operations == 0)
		return json_null();
	snprintf(tag, sizeof(tag), "%#llx", (unsigned long long)busy->tag); /* not a JSON number */
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "tag", tag, "dtype",
	                 dtype_name((enum dtype)busy->dtype), "op",
	                 reduction_name((enum reduction)busy->reduction), "wire",
	                 packet_form_name(busy->form), "count", number_json(busy->count), "age_s",
	                 seconds_json(busy->age_us));
}

static json_t *wait_json(const struct channel_wait *wait)
{
	json_t *ranks;

	if (wait->stall.missing == 0)
		return json_null();
	ranks = json_array();
	for (uint32_t i = 0; i < wait->rank_count; i++)
		json_array_append_new(ranks, number_json(wait->ranks[i]));
	return json_pack("{s:s, s:o, s:i, s:o}", "for", wait->stall.streaming ? "data" : "call",
	                 "waited_s", seconds_json(wait->stall.waited_us), "missing",
	                 (int)wait->stall.missing, "ranks", ranks);
}

static json_t *share_json(uint64_t part, uint64_t whole)
{
	return whole > 0 ? json_real((double)part / (double)whole) : json_null();
}

/* Counters never decrease, so one that does is wrong. */
static uint64_t since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* Rates between a worker's last two pings: shares of the time, and of the datagrams. */
static json_t *lately_json(const struct jobs_worker *worker)
{
	const struct control_seen *now = &worker->seen, *before = &worker->seen_before;
	uint64_t out = since(now->out, before->out), in = since(now->in, before->in);
	uint64_t pushes = since(now->pushes, before->pushes);
	uint64_t in_lost = since(now->in_lost, before->in_lost); /* not included in `in` */

	if (worker->seen_over_us == 0)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "over_s",
	                 seconds_json(worker->seen_over_us), "held_window",
	                 share_json(since(now->held_window_us, before->held_window_us),
	                            worker->seen_over_us),
	                 "held_credit",
	                 share_json(since(now->held_credit_us, before->held_credit_us),
	                            worker->seen_over_us),
	                 "out_marked", share_json(since(now->out_marked, before->out_marked), out),
	                 "out_lost", share_json(since(now->out_lost, before->out_lost), pushes),
	                 "in_marked", share_json(since(now->in_marked, before->in_marked), in),
	                 "in_lost", share_json(in_lost, in + in_lost));
}

static json_t *workers_json(const struct job_snapshot *job)
{
	json_t *list = json_array();

	for (uint32_t rank = 0; rank < job->view.world; rank++) {
		const struct jobs_worker *worker = &job->workers[rank];
		struct worker_snapshot numbers;
		json_t *object;

		snapshot_worker(job, rank, &numbers);
		object = json_pack("{s:i, s:s, s:s, s:s, s:s, s:b, s:o}", "rank", (int)rank,
		                   "state", worker->state, "host", worker->host, "address",
		                   worker->address, "says", worker->says, "multicast",
		                   worker->multicast, "silent_s", seconds_json(worker->silent_us));
		if (*worker->site != '\0')
			json_object_set_new(object, "site", json_string(worker->site));
		numbers_put(object, http_worker_numbers, &numbers);
		json_object_set_new(object, "lately", lately_json(worker));
		json_array_append_new(list, object);
	}
	return list;
}

static json_t *job_json(const struct job_snapshot *job)
{
	const struct channel_stats *stats = &job->stats;
	const struct jobs_view *view = &job->view;
	json_t *object = json_pack(
		"{s:s, s:s, s:o, s:o, s:o, s:o, s:{s:i, s:i}, s:s?, s:o, s:o}", "name", view->name,
		"state", job_state_name(view->state), "density",
		share_json(stats->blocks_owned, stats->blocks * view->world), "union",
		share_json(stats->blocks_nonzero, stats->blocks), "operation",
		operation_json(&job->busy), "waiting", wait_json(&job->busy.wait), "slots", "used",
		(int)job->slots_used, "total", (int)job->slots, "trouble",
		*view->trouble != '\0' ? view->trouble : NULL, "drops",
		counts_json(stats->drops, 1, WIRE_DROP_COUNT), "workers", workers_json(job));

	numbers_put(object, http_job_numbers, job);
	return object;
}

/* ---- the aggregator ---- */

static json_t *failure_json(const struct jobs_copy *copy)
{
	const struct jobs_failure *failure = &copy->failure;

	if (!copy->failed)
		return json_null();
	return json_pack("{s:s, s:s, s:s, s:o}", "job", failure->job, "code", failure->code, "text",
	                 failure->text, "age_s", seconds_json(failure->age_us));
}

char *http_status(const struct http_sources *sources, const struct snapshot *now)
{
	char listen[NET_TEXT_BYTES];
	json_t *root, *packets = json_object(), *list = json_array();
	char *text;

	numbers_put(packets, http_packet_numbers, now);
	for (uint32_t i = 0; i < now->job_count; i++)
		json_array_append_new(list, job_json(&now->jobs[i]));
	root = json_pack(
		"{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:o, s:s, s:o, s:o, s:o, s:o}",
		"version", WINNOW_VERSION, "listen", net_format(&sources->listen, listen),
		"datapath", http_datapath(sources), "xdp", offload_describe(sources->offload),
		"isa", bitmap_best()->name, "threads", (int)sources->threads, "slice_us",
		(int)now->data.turn.slice_us, "nice", (int)now->data.turn.nice, "rcvbuf_bytes",
		(int)sources->rcvbuf_bytes, "uptime_s",
		seconds_json(uv_hrtime() / 1000 - sources->start_us), "memory_limit_from",
		sources->bytes_from, "packets", packets, "drops",
		counts_json(now->drops, 1, WIRE_DROP_COUNT), "last_failure",
		failure_json(now->copy), "jobs", list);
	numbers_put(root, http_numbers, now);
	if (sources->parent != NULL) {
		json_object_set_new(root, "parent", json_string(sources->parent));
		json_object_set_new(root, "site", json_string(sources->site));
	}
	if (sources->offload != NULL)
		json_object_set_new(root, "xdp_packets",
		                    counts_json(now->fast, FAST_COUNT_PASSED, FAST_COUNTER_COUNT));
	text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	json_decref(root);
	return text;
}
