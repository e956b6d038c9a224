// SPDX-License-Identifier: BSD-3-Clause
/* trace_ask.c - see trace_ask.h */

#include "client/trace/trace_ask.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/control/message.h"
#include "ebpf/wire.h"

static const char *const orders[] = {
	[TRACE_SHOW] = "show",
	[TRACE_START] = "start",
	[TRACE_STOP] = "stop",
};

socklen_t trace_ask_address(uint32_t pid, uint32_t number, struct sockaddr_un *out)
{
	int length;

	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	length = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, TRACE_ASK_PREFIX "%u.%u",
	                  pid, number);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static size_t put(json_t *object, char *text)
{
	size_t bytes = object != NULL ? json_dumpb(object, text, TRACE_ASK_BYTES, JSON_COMPACT) : 0;

	json_decref(object);
	return bytes <= TRACE_ASK_BYTES ? bytes : 0;
}

size_t trace_request_put(const struct trace_request *request, char *text)
{
	return put(json_pack("{s:s, s:s, s:I, s:i}", "order", orders[request->order], "folder",
	                     request->folder, "limit", (json_int_t)request->limit_bytes, "block",
	                     (int)request->fine),
	           text);
}

size_t trace_answer_put(const struct trace_answer *answer, char *text)
{
	return put(json_pack("{s:i, s:i, s:i, s:s, s:I, s:s, s:s}", "pid", (int)answer->pid, "rank",
	                     (int)answer->rank, "world", (int)answer->world, "job", answer->job,
	                     "operations", (json_int_t)answer->operations, "trace", answer->path,
	                     "error", answer->error),
	           text);
}

static bool number(const json_t *object, const char *name, uint64_t least, uint64_t most,
                   uint64_t *out)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*out = (uint64_t)json_integer_value(value);
	return *out >= least && *out <= most;
}

static bool field(const json_t *object, const char *name, char *out, size_t room)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value != NULL && (size_t)snprintf(out, room, "%s", value) < room;
}

static bool start_take(const json_t *object, struct trace_request *out)
{
	uint64_t fine = 0;
	bool good = field(object, "folder", out->folder, sizeof(out->folder)) &&
	            out->folder[0] == '/' &&
	            number(object, "limit", 1, INT64_MAX, &out->limit_bytes) &&
	            number(object, "block", 1, TRACE_FINE_MAX, &fine);

	out->fine = (uint32_t)fine;
	return good;
}

bool trace_request_take(const char *text, size_t bytes, struct trace_request *out)
{
	json_t *object = json_loadb(text, bytes, 0, NULL);
	const char *order = json_string_value(json_object_get(object, "order"));
	bool good = false;

	*out = (struct trace_request){0};
	for (uint32_t i = 0; i < sizeof(orders) / sizeof(orders[0]) && order != NULL; i++) {
		if (strcmp(orders[i], order) != 0)
			continue;
		out->order = (enum trace_order)i;
		good = i != TRACE_START || start_take(object, out);
	}
	json_decref(object);
	return good;
}

bool trace_answer_take(const char *text, size_t bytes, struct trace_answer *out)
{
	json_t *object = json_loadb(text, bytes, 0, NULL);
	uint64_t pid = 0, rank = 0, world = 0;
	bool good;

	*out = (struct trace_answer){0};
	good = number(object, "pid", 1, INT32_MAX, &pid) &&
	       number(object, "world", 1, WIRE_WORKERS_MAX, &world) &&
	       number(object, "rank", 0, world - 1, &rank) &&
	       number(object, "operations", 0, INT64_MAX, &out->operations) &&
	       field(object, "job", out->job, sizeof(out->job)) && message_name_valid(out->job) &&
	       field(object, "trace", out->path, sizeof(out->path)) &&
	       field(object, "error", out->error, sizeof(out->error));
	out->pid = (uint32_t)pid;
	out->rank = (uint32_t)rank;
	out->world = (uint32_t)world;
	json_decref(object);
	return good;
}
