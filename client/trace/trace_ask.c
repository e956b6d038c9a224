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

static bool copy(char *out, size_t room, const char *text)
{
	return (size_t)snprintf(out, room, "%s", text) < room;
}

bool trace_request_take(const char *text, size_t bytes, struct trace_request *out)
{
	json_t *object = json_loadb(text, bytes, 0, NULL);
	const char *order = "", *folder = "";
	json_int_t limit = 0, fine = 0;
	bool good = false;

	*out = (struct trace_request){0};
	(void)json_unpack(object, "{s:s, s?s, s?I, s?I}", "order", &order, "folder", &folder,
	                  "limit", &limit, "block", &fine);
	for (uint32_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		if (strcmp(orders[i], order) != 0)
			continue;
		out->order = (enum trace_order)i;
		good = true;
	}
	if (good && out->order == TRACE_START) {
		out->limit_bytes = (uint64_t)limit;
		out->fine = (uint32_t)fine;
		good = copy(out->folder, sizeof(out->folder), folder) && folder[0] == '/' &&
		       limit >= 1 && fine >= 1 && fine <= TRACE_FINE_MAX;
	}
	json_decref(object);
	return good;
}

bool trace_answer_take(const char *text, size_t bytes, struct trace_answer *out)
{
	json_t *object = json_loadb(text, bytes, 0, NULL);
	json_int_t pid, rank, world, operations;
	const char *job, *path, *error;
	bool good = json_unpack(object, "{s:I, s:I, s:I, s:I, s:s, s:s, s:s}", "pid", &pid, "world",
	                        &world, "rank", &rank, "operations", &operations, "job", &job,
	                        "trace", &path, "error", &error) == 0;

	*out = (struct trace_answer){0};
	good = good && pid >= 1 && pid <= INT32_MAX && world >= 1 && world <= WIRE_WORKERS_MAX &&
	       rank >= 0 && rank < world && operations >= 0 && message_name_valid(job) &&
	       copy(out->job, sizeof(out->job), job) && copy(out->path, sizeof(out->path), path) &&
	       copy(out->error, sizeof(out->error), error);
	if (good) {
		out->pid = (uint32_t)pid;
		out->rank = (uint32_t)rank;
		out->world = (uint32_t)world;
		out->operations = (uint64_t)operations;
	}
	json_decref(object);
	return good;
}
