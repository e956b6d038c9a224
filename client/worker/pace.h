/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pace.h - how long to wait, and how much to have under way
 *
 * The timers of PROTOCOL.md 10.1, and the limit of CONGESTION.md, called window here. Marks and delay tell
 * that a queue grows. Loss without a queue counts only if it is much more than the path has shown at its
 * best, or if no answer comes: so a link that loses 5 % of everything still runs full. On a private network
 * queues are nobody else's: they may take milliseconds, so that a link is busy while its host waits for a
 * CPU. Pure: time comes in as an argument, in microseconds of any clock that does not run backwards.
 */
#ifndef CLIENT_PACE_H
#define CLIENT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_PROBE_START_US 20000
#define PACE_PROBE_MAX_US 400000
#define PACE_LATE_US_MIN 300
#define PACE_LATE_US_MAX 5000
#define PACE_SILENCE_PROBES 32 /* In silence a worker asks at least this often, in probe times. */
#define PACE_WINDOW_MIN 2      /* CONGESTION.md 1: "It is never below 2 or above START's window" */

/* The least of what has been seen lately: in this span and in the one before. */
struct pace_least {
	uint64_t until; /* when the span ends: a time, or a number of rounds */
	uint64_t here, before;
};

struct pace_marks {
	uint32_t packets, marked;
};

/* The round under way: a few round trips. */
struct pace_round {
	uint64_t start_us;
	uint64_t least_us; /* The shortest way there and back. */
	uint32_t samples;
	uint32_t results;
	bool full; /* The window has held us up in it. */
	struct pace_marks sent, received;
	uint32_t lost;   /* PUSHes. */
	uint32_t missed; /* RESULTs. */
};

/* Loss has rounds of its own, of many packets. */
struct pace_loss {
	uint32_t sent, lost;
	uint64_t rounds;
	struct pace_least least; /* Per 1024. */
};

/* Others may fill a long queue, whatever we leave to them: see is_contended(). */
struct pace_rivals {
	uint32_t parts;      /* `parts` of pace before it shrank; 0: the queue is not long. */
	uint64_t queued_us;  /* The queue at that time. */
	uint64_t patient_us; /* Until then others of us may make the queue shorter. */
	bool contending;
	bool recovering; /* The window shrank after the last round: this one's loss may be older. */
};

/* All look at once whether a long queue is theirs: see is_emptying(). */
struct pace_empty {
	uint64_t epoch_us;
	uint64_t due_us;    /* The next look. */
	uint32_t rounds;    /* The rounds left of this look. */
	uint32_t parts;     /* `parts` of pace before this look. */
	uint64_t queued_us; /* The queue at that time. */
};

struct pace {
	uint64_t srtt_us; /* It is 0 before the first sample. */
	uint64_t rttvar_us;

	uint32_t window; /* Packets that may be under way. */
	uint32_t parts;  /* The window in parts of a packet: it changes by a few at a time. */
	uint32_t window_min, window_max;
	bool private_network;
	bool doubling; /* There has been no sign of congestion yet. */

	uint32_t marked_total; /* Datagrams of ours that came marked, as last told. */
	uint32_t marked_share; /* Per 1024, smoothed. */
	uint64_t best_us;      /* The shortest way ever. */
	struct pace_least path_us;
	struct pace_round round;
	struct pace_loss loss;
	struct pace_rivals rivals;
	struct pace_empty empty;
};

struct pace_config {
	uint32_t window_start, window_max;
	bool private_network;
	/* now_us plus this is roughly the same time for all who share a queue. */
	uint64_t epoch_us;
};
void pace_init(struct pace *pace, const struct pace_config *config);

/*
 * A round trip was measured, of which `path_us` were spent in the network. Ends a round when it is
 * due, and adapts the window.
 */
void pace_rtt(struct pace *pace, uint64_t rtt_us, uint64_t path_us, uint64_t now_us);

/*
 * How long to wait before asking again, while packets are under way: as long as news comes, and in a silence that
 * has lasted so long.
 */
uint64_t pace_measure_us(const struct pace *pace);
uint64_t pace_silence_us(const struct pace *pace, uint64_t silent_us);

/* How many packets leave in so many microseconds, as far as the window lets them: it lasts for a round trip. */
uint32_t pace_in_us(const struct pace *pace, uint64_t us);

/* 10.1: "The probe time is RFC 6298's srtt + 4*rttvar, and late, at most 400 ms; 20 ms before the first measurement" */
uint64_t pace_probe_us(const struct pace *pace);

/* 10.1: "when a datagram that another one has overtaken is taken for lost: an eighth of srtt, 300 us to 5 ms" */
uint64_t pace_late_us(const struct pace *pace);

/* CONGESTION.md 3: "If a STATUS that asked in a silence (10.4) has no answer before the next one in it" */
void pace_unanswered(struct pace *pace);

/* A PUSH was sent, or an eager announcement, whose loss nobody reports; with it `under_way` packets are under way. */
void pace_sent(struct pace *pace, uint32_t under_way);
void pace_eager(struct pace *pace, uint32_t under_way);

/* A RESULT came. True: with it the round has become full, so it is time to measure. */
bool pace_result(struct pace *pace);

void pace_received(struct pace *pace, bool marked);

/* `total` of our datagrams have come marked. Some PUSHes were lost; a RESULT was lost. */
void pace_marked(struct pace *pace, uint32_t total);
void pace_lost(struct pace *pace, uint32_t packets);
void pace_missed(struct pace *pace);

#endif /* CLIENT_PACE_H */
