// SPDX-License-Identifier: BSD-3-Clause
/* http_status.c - /status: one JSON object; docs/OPERATE.md lists its fields */

#include <jansson.h>
#include <stdlib.h>

#include "aggregator/http/http_impl.h"
#include "aggregator/log.h"
#include "bitmap/dtype.h"

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *seconds(uint64_t us)
{
	return json_real((double)us / 1e6);
}

static json_t *drops_json(const uint64_t drops[WIRE_DROP_COUNT])
{
	json_t *object = json_object();

	for (uint32_t d = 1; d < WIRE_DROP_COUNT; d++)
		json_object_set_new(object, drop_name((enum wire_drop)d), number(drops[d]));
	return object;
}

/* ---- a job ---- */

static json_t *operation_json(const struct channel_view *busy)
{
	char tag[24];

	if (busy->operations == 0)
		return json_null();
	snprintf(tag, sizeof(tag), "%#llx", (unsigned long long)busy->tag); /* 64 bits */
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "tag", tag, "dtype",
	                 dtype_name((enum dtype)busy->dtype), "op",
	                 reduction_name((enum reduction)busy->reduction), "wire",
	                 busy->fixed32 ? "fixed32" : "native", "count", number(busy->count),
	                 "age_s", seconds(busy->age_us));
}

static json_t *wait_json(const struct channel_wait *wait)
{
	json_t *ranks;

	if (wait->stall.missing == 0)
		return json_null();
	ranks = json_array();
	for (uint32_t i = 0; i < wait->rank_count; i++)
		json_array_append_new(ranks, number(wait->ranks[i]));
	return json_pack("{s:s, s:o, s:i, s:o}", "for", wait->stall.streaming ? "data" : "call",
	                 "waited_s", seconds(wait->stall.waited_us), "missing",
	                 (int)wait->stall.missing, "ranks", ranks);
}

static json_t *workers_json(const struct jobs *jobs, const struct job_snapshot *job)
{
	json_t *list = json_array();

	for (uint32_t rank = 0; rank < job->view.world; rank++) {
		struct jobs_worker worker;

		jobs_worker(jobs, job->index, rank, &worker);
		json_array_append_new(list, json_pack("{s:i, s:s, s:s, s:s, s:b, s:o}", "rank",
		                                      (int)rank, "state", worker.state, "host",
		                                      worker.host, "address", worker.address,
		                                      "multicast", worker.multicast, "silent_s",
		                                      seconds(worker.silent_us)));
	}
	return list;
}

static void counters_put(json_t *object, const struct channel_stats *stats)
{
	const struct {
		const char *name;
		uint64_t value;
	} counters[] = {
		{"mismatches", stats->mismatches},
		{"tensor_bytes", stats->tensor_bytes},
		{"blocks", stats->blocks},
		{"blocks_nonzero", stats->blocks_nonzero},
		{"blocks_owned", stats->blocks_owned},
		{"pushes", stats->pushes},
		{"results", stats->results},
		{"passed_through", stats->passed_through},
		{"result_resends", stats->result_resends},
		{"plan_resends", stats->plan_resends},
		{"wants", stats->wants},
		{"fast_added", stats->fast_added},
		{"fast_missed", stats->fast_missed},
		{"received_packets", stats->received},
		{"received_bytes", stats->received_bytes},
		{"sent_packets", stats->sent},
		{"sent_bytes", stats->sent_bytes},
	};

	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		json_object_set_new(object, counters[i].name, number(counters[i].value));
}

static json_t *share(uint64_t part, uint64_t whole)
{
	return whole > 0 ? json_real((double)part / (double)whole) : json_null();
}

static json_t *job_json(const struct jobs *jobs, const struct job_snapshot *job)
{
	const struct channel_stats *stats = &job->stats;
	const struct jobs_view *view = &job->view;
	json_t *object = json_pack(
		"{s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:b, s:b, s:I, s:i, s:o, s:o, s:o, s:o}",
		"name", view->name, "state", view->state, "state_s", seconds(view->state_us),
		"world", (int)view->world, "members", (int)view->joined, "payload",
		(int)view->payload, "window", (int)view->window, "multicast", view->multicast,
		"fast", view->fast, "bytes", (json_int_t)view->bytes, "channels",
		(int)view->channel_count, "silence_limit_s", seconds(view->silence_us),
		"stall_limit_s", seconds(view->stall_us), "density",
		share(stats->blocks_owned, stats->blocks * view->world), "union",
		share(stats->blocks_nonzero, stats->blocks));

	if (object == NULL)
		return json_null();
	json_object_set_new(object, "operations", number(job->operations));
	json_object_set_new(object, "under_way", number(job->busy.operations));
	json_object_set_new(object, "operation", operation_json(&job->busy));
	json_object_set_new(object, "waiting", wait_json(&job->busy.wait));
	json_object_set_new(
		object, "slots",
		json_pack("{s:i, s:i}", "used", (int)job->slots_used, "total", (int)job->slots));
	counters_put(object, stats);
	json_object_set_new(object, "trouble",
	                    *view->trouble != '\0' ? json_string(view->trouble) : json_null());
	json_object_set_new(object, "drops", drops_json(stats->drops));
	json_object_set_new(object, "workers", workers_json(jobs, job));
	return object;
}

/* ---- the aggregator ---- */

static json_t *failure_json(const struct jobs *jobs)
{
	struct jobs_failure failure;

	if (!jobs_last_failure(jobs, &failure))
		return json_null();
	return json_pack("{s:s, s:s, s:s, s:o}", "job", failure.job, "code", failure.code, "text",
	                 failure.text, "age_s", seconds(failure.age_us));
}

static json_t *packets_json(const struct data_stats *data)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "received", number(data->net.received),
	                 "received_bytes", number(data->net.received_bytes), "sent",
	                 number(data->net.sent), "sent_bytes", number(data->net.sent_bytes),
	                 "send_errors", number(data->net.tx_errors), "unsent",
	                 number(data->unsent));
}

static json_t *fast_json(const uint64_t counters[FAST_COUNTER_COUNT])
{
	json_t *object = json_object();

	for (uint32_t i = FAST_COUNT_PASSED; i < FAST_COUNTER_COUNT; i++)
		json_object_set_new(object, fast_counter_name((enum fast_counter)i),
		                    number(counters[i]));
	return object;
}

static void totals_put(json_t *root, const struct jobs_totals *totals)
{
	json_object_set_new(root, "draining", json_boolean(totals->draining));
	json_object_set_new(root, "connections", number(totals->peers));
	json_object_set_new(root, "memory_reserved_bytes", number(totals->bytes));
	json_object_set_new(root, "memory_limit_bytes", number(totals->bytes_max));
	json_object_set_new(root, "jobs_started", number(totals->jobs_started));
	json_object_set_new(root, "jobs_finished", number(totals->jobs_finished));
	json_object_set_new(root, "jobs_failed", number(totals->jobs_failed));
	json_object_set_new(root, "joins_refused", number(totals->joins_refused));
	json_object_set_new(root, "log_lines_lost", number(log_lines_lost()));
}

char *http_status(const struct http_sources *sources, uint64_t uptime_us)
{
	char listen[24];
	json_t *root, *list;
	struct snapshot now;
	char *text;

	if (!snapshot_take(sources, &now))
		return NULL;
	root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:o}", "version", WINNOW_VERSION,
	                 "listen", net_format(&sources->listen, listen), "datapath",
	                 http_datapath(sources), "xdp", offload_describe(sources->offload), "isa",
	                 bitmap_best()->name, "threads", (int)sources->threads, "rcvbuf_bytes",
	                 (int)sources->rcvbuf_bytes, "uptime_s", seconds(uptime_us));
	if (root == NULL) {
		snapshot_free(&now);
		return NULL;
	}
	totals_put(root, &now.totals);
	json_object_set_new(root, "memory_limit_from", json_string(sources->bytes_from));
	json_object_set_new(root, "packets", packets_json(&now.data));
	json_object_set_new(root, "drops", drops_json(now.drops));
	if (sources->offload != NULL)
		json_object_set_new(root, "xdp_packets", fast_json(now.fast));
	json_object_set_new(root, "last_failure", failure_json(sources->jobs));
	list = json_array();
	for (uint32_t i = 0; i < now.job_count; i++)
		json_array_append_new(list, job_json(sources->jobs, &now.jobs[i]));
	json_object_set_new(root, "jobs", list);
	snapshot_free(&now);
	text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	json_decref(root);
	return text;
}
