// SPDX-License-Identifier: BSD-3-Clause
/* explain.c - see explain.h */

#include "client/worker/explain.h"
#include "ebpf/packet.h"

#include <inttypes.h>
#include <stdio.h>

/* Returns the name of a value, or its number in `room`. */
static const char *value_text(uint16_t field, uint64_t value, char room[32])
{
	switch (field) {
	case WIRE_FIELD_DTYPE:
		return dtype_name((enum dtype)value);
	case WIRE_FIELD_REDUCTION:
		return reduction_name((enum reduction)value);
	case WIRE_FIELD_FORM:
		return packet_form_name(value);
	case WIRE_FIELD_SCATTER:
		return value != 0 ? "reduce_scatter" : "allreduce";
	default:
		snprintf(room, 32, "%" PRId64, (int64_t)value); /* Exponents are signed. */
		return room;
	}
}

void explain_mismatch(const struct wire_mismatch *m, char *text, size_t room)
{
	static const char *const names[] = {
		[WIRE_FIELD_COUNT] = "count",       [WIRE_FIELD_DTYPE] = "dtype",
		[WIRE_FIELD_BLOCK] = "block",       [WIRE_FIELD_REDUCTION] = "operation",
		[WIRE_FIELD_FORM] = "wire form",    [WIRE_FIELD_SCATTER] = "the call",
		[WIRE_FIELD_LAYOUT] = "layout",     [WIRE_FIELD_SLOT] = "operation slot",
		[WIRE_FIELD_EXPONENT] = "exponent",
	};
	const char *name = "parameters";
	char a[32], b[32];

	if (m->field < sizeof(names) / sizeof(names[0]) && names[m->field] != NULL)
		name = names[m->field];
	if (m->rank_a == m->rank_b) {
		snprintf(text, room,
		         "the aggregator refuses the operation that rank %u announces: its %s "
		         "cannot be %s",
		         m->rank_a, m->field == WIRE_FIELD_SCATTER ? "call" : name,
		         value_text(m->field, m->value_a, a));
		return;
	}
	if (m->field == WIRE_FIELD_LAYOUT) {
		snprintf(text, room,
		         "workers do not agree on the operation: its layout (blocks, segments or "
		         "tiles, a broadcast's root, or the order of the aggregators) differs on "
		         "rank %u and rank %u",
		         m->rank_a, m->rank_b);
		return;
	}
	snprintf(text, room,
	         "workers do not agree on the operation: %s is %s on rank %u and %s on rank %u",
	         name, value_text(m->field, m->value_a, a), m->rank_a,
	         value_text(m->field, m->value_b, b), m->rank_b);
}

enum winnow_result explain_code(const char *code, bool joined)
{
	static const struct {
		const char *code;
		enum winnow_result result;
	} known[] = {
		{"lost", WINNOW_ERR_MEMBERS},        {"moved", WINNOW_ERR_MEMBERS},
		{"gone", WINNOW_ERR_LOST},           {"shutdown", WINNOW_ERR_LOST},
		{"aborted", WINNOW_ERR_ABORTED},     {"mismatch", WINNOW_ERR_MISMATCH},
		{"stalled", WINNOW_ERR_TIMEOUT},     {"join_timeout", WINNOW_ERR_TIMEOUT},
		{"udp_timeout", WINNOW_ERR_TIMEOUT}, {"timeout", WINNOW_ERR_TIMEOUT},
		{"protocol", WINNOW_ERR_PROTOCOL},   {"orphaned", WINNOW_ERR_REFUSED},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].code, code) == 0)
			return known[i].result;
	if (strcmp(code, "path") == 0)
		return joined ? WINNOW_ERR_MEMBERS : WINNOW_ERR_UNREACHABLE;
	return joined ? WINNOW_ERR_LOST : WINNOW_ERR_REFUSED;
}
