// SPDX-License-Identifier: BSD-3-Clause
/* explain.c - see explain.h */

#include "client/worker/explain.h"
#include "ebpf/packet.h"

#include <inttypes.h>
#include <stdio.h>

static void value_text(uint16_t field, uint64_t value, char *text, size_t room)
{
	switch (field) {
	case WIRE_FIELD_DTYPE:
		snprintf(text, room, "%s", dtype_name((enum dtype)value));
		break;
	case WIRE_FIELD_REDUCTION:
		snprintf(text, room, "%s", reduction_name((enum reduction)value));
		break;
	case WIRE_FIELD_FORM:
		snprintf(text, room, "%s", packet_form_name(value));
		break;
	case WIRE_FIELD_SCATTER:
		snprintf(text, room, "%s", value != 0 ? "reduce_scatter" : "allreduce");
		break;
	default:
		snprintf(text, room, "%" PRIu64, value);
	}
}

void explain_mismatch(const struct allreduce *task, char *text, size_t room)
{
	static const char *const names[] = {
		[WIRE_FIELD_COUNT] = "count",    [WIRE_FIELD_DTYPE] = "dtype",
		[WIRE_FIELD_BLOCK] = "block",    [WIRE_FIELD_REDUCTION] = "operation",
		[WIRE_FIELD_FORM] = "wire form", [WIRE_FIELD_SCATTER] = "the call",
	};
	const struct wire_mismatch *m = &task->mismatch;
	const char *name = "parameters";
	char a[32], b[32];

	if (m->field == WIRE_FIELD_LAYOUT) {
		snprintf(text, room,
		         "workers do not agree on the operation: its layout (blocks, segments or "
		         "tiles, a broadcast's root, or the order of the aggregators) differs on "
		         "rank %u and rank %u",
		         m->rank_a, m->rank_b);
		return;
	}
	if (m->field < sizeof(names) / sizeof(names[0]) && names[m->field] != NULL)
		name = names[m->field];
	value_text(m->field, m->value_a, a, sizeof(a));
	value_text(m->field, m->value_b, b, sizeof(b));
	snprintf(text, room,
	         "workers do not agree on the operation: %s is %s on rank %u and %s on rank %u",
	         name, a, m->rank_a, b, m->rank_b);
}

enum winnow_result explain_code(const char *code, bool joined)
{
	static const struct {
		const char *code;
		enum winnow_result result;
	} known[] = {
		{"lost", WINNOW_ERR_MEMBERS},
		{"moved", WINNOW_ERR_MEMBERS},
		{"gone", WINNOW_ERR_LOST},
		{"shutdown", WINNOW_ERR_LOST},
		{"aborted", WINNOW_ERR_ABORTED},
		{"stalled", WINNOW_ERR_TIMEOUT},
		{"join_timeout", WINNOW_ERR_TIMEOUT},
		{"udp_timeout", WINNOW_ERR_TIMEOUT},
		{"timeout", WINNOW_ERR_TIMEOUT},
		{"protocol", WINNOW_ERR_PROTOCOL},
		{"unreachable", WINNOW_ERR_UNREACHABLE},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].code, code) == 0)
			return known[i].result;
	if (strcmp(code, "path") == 0)
		return joined ? WINNOW_ERR_MEMBERS : WINNOW_ERR_UNREACHABLE;
	return joined ? WINNOW_ERR_LOST : WINNOW_ERR_REFUSED;
}
