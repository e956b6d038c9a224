// SPDX-License-Identifier: BSD-3-Clause
/* http_numbers.c - every number that /metrics and /status show, once: what they call it, where it is */

#include <stddef.h>

#include "aggregator/http/http_state.h"

#define OF_JOB(field)                                                                              \
	offsetof(struct job_snapshot, field), sizeof(((struct job_snapshot *)0)->field)
#define OF_WORKER(field)                                                                           \
	offsetof(struct worker_snapshot, field), sizeof(((struct worker_snapshot *)0)->field)
#define OF_ALL(field) offsetof(struct snapshot, field), sizeof(((struct snapshot *)0)->field)

/* Those of running jobs; a job's series ends with it. */
const struct http_number http_job_numbers[] = {
	{NUMBER_COUNTER, OF_JOB(operations), "operations", "allreduce_total", "",
         "Operations that all workers have finished."},
	{NUMBER_COUNTER, OF_JOB(stats.mismatches), "mismatches", "mismatches_total", "",
         "Announcements that were refused: workers disagree."},
	{NUMBER_COUNTER, OF_JOB(stats.tensor_bytes), "tensor_bytes", "tensor_bytes_total", "",
         "Bytes of one worker's tensors, zeros included."},
	{NUMBER_COUNTER, OF_JOB(stats.received_bytes), "received_bytes", "wire_bytes_total",
         ",direction=\"received\"", "UDP payload bytes; what is sent to a group counts once."},
	{NUMBER_COUNTER, OF_JOB(stats.sent_bytes), "sent_bytes", "wire_bytes_total",
         ",direction=\"sent\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.received), "received_packets", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_JOB(stats.sent), "sent_packets", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_JOB(stats.blocks), "blocks", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_JOB(stats.blocks_nonzero), "blocks_nonzero", "blocks_total",
         ",kind=\"nonzero\"", "Blocks of the tensors reduced: nonzero if any worker had it so."},
	{NUMBER_COUNTER, OF_JOB(blocks_zero), NULL, "blocks_total", ",kind=\"zero\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.blocks_owned), "blocks_owned", "blocks_owned_total", "",
         "Blocks that each worker had non-zero, of all workers together."},
	{NUMBER_COUNTER, OF_JOB(stats.pushes), "pushes", "pushes_total", "",
         "Frames of data accepted from workers."},
	{NUMBER_COUNTER, OF_JOB(stats.fast_added), "fast_added", "fast_pushes_total",
         ",by=\"kernel\"",
         "Of the frames that the XDP program may add to: PUSHes that it has added, and those "
         "that came to user space."},
	{NUMBER_COUNTER, OF_JOB(stats.fast_missed), "fast_missed", "fast_pushes_total",
         ",by=\"user\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.results), "results", "results_total", "",
         "Frames of sums completed."},
	{NUMBER_COUNTER, OF_JOB(stats.passed_through), "passed_through", "passed_through_total", "",
         "Frames that had one contributor."},
	{NUMBER_COUNTER, OF_JOB(stats.result_resends), "result_resends", "retransmits_total",
         ",reason=\"result\"",
         "Packets sent again: a sum or a plan to a worker that asked, or asking it for data."},
	{NUMBER_COUNTER, OF_JOB(stats.plan_resends), "plan_resends", "retransmits_total",
         ",reason=\"plan\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.wants), "wants", "retransmits_total", ",reason=\"want\"",
         NULL},
	{NUMBER_GAUGE, OF_JOB(view.world), "world", "job_workers", "", "Workers that the job has."},
	{NUMBER_GAUGE, OF_JOB(view.joined), "members", "job_members", "",
         "Workers that have joined and not left."},
	{NUMBER_GAUGE, OF_JOB(view.newcomers), "newcomers", "job_newcomers", "",
         "Workers that wait until the job's members admit them."},
	{NUMBER_GAUGE, OF_JOB(view.bytes), "bytes", "job_memory_bytes", "",
         "Slots and tables, reserved."},
	{NUMBER_GAUGE, OF_JOB(slots), NULL, "job_slots", "", "Frames that may be under way."},
	{NUMBER_GAUGE, OF_JOB(slots_used), NULL, "job_slots_in_use", "", "Frames under way."},
	{NUMBER_SECONDS, OF_JOB(busy.wait.stall.waited_us), NULL, "job_wait_seconds", "",
         "For so long some worker has kept the others waiting."},
	{NUMBER_GAUGE, OF_JOB(busy.operations), "under_way", NULL, NULL, NULL},
	{NUMBER_GAUGE, OF_JOB(view.payload), "payload", NULL, NULL, NULL},
	{NUMBER_GAUGE, OF_JOB(view.window), "window", NULL, NULL, NULL},
	{NUMBER_GAUGE, OF_JOB(view.channel_count), "channels", NULL, NULL, NULL},
	{NUMBER_BOOL, OF_JOB(view.multicast), "multicast", NULL, NULL, NULL},
	{NUMBER_BOOL, OF_JOB(view.fast), "fast", NULL, NULL, NULL},
	{NUMBER_SECONDS, OF_JOB(view.state_us), "state_s", NULL, NULL, NULL},
	{NUMBER_SECONDS, OF_JOB(view.silence_us), "silence_limit_s", NULL, NULL, NULL},
	{NUMBER_SECONDS, OF_JOB(view.stall_us), "stall_limit_s", NULL, NULL, NULL},
	{0},
};

/* Of each worker that has joined; in /status beside its name. What it sees, it says itself. */
const struct http_number http_worker_numbers[] = {
	{NUMBER_TIME, OF_WORKER(waits.late_us), "late_s", "straggler_seconds_total", "",
         "So long operations waited for this worker alone to call them."},
	{NUMBER_TIME, OF_WORKER(waits.last_us), "last_s", "worker_last_seconds_total", "",
         "So long frames waited for the acknowledgement of this worker alone."},
	{NUMBER_SECONDS, OF_WORKER(seen.rtt_us), "rtt_s", "worker_rtt_seconds", "",
         "Round trip between this worker and the aggregator, smoothed; of its slowest channel."},
	{NUMBER_SECONDS, OF_WORKER(seen.rtt_least_us), "rtt_least_s", "worker_rtt_least_seconds",
         "", "The shortest that there was: what is above it has waited in queues."},
	{NUMBER_GAUGE, OF_WORKER(seen.frames), "window", "worker_window_frames", "",
         "Frames that this worker may have under way now, on all channels."},
	{NUMBER_TIME, OF_WORKER(seen.held_window_us), "held_window_s", "worker_held_seconds_total",
         ",by=\"window\"",
         "So long this worker had something to send, and its window, or the credit that waits for "
         "others' acknowledgements, did not let it; per channel."},
	{NUMBER_TIME, OF_WORKER(seen.held_credit_us), "held_credit_s", "worker_held_seconds_total",
         ",by=\"credit\"", NULL},
	{NUMBER_COUNTER, OF_WORKER(seen.out), "out", "worker_packets_total", ",direction=\"out\"",
         "Datagrams, as the worker counts them: out to the aggregator, in from it."},
	{NUMBER_COUNTER, OF_WORKER(seen.in), "in", "worker_packets_total", ",direction=\"in\"",
         NULL},
	{NUMBER_COUNTER, OF_WORKER(seen.out_marked), "out_marked", "worker_marked_total",
         ",direction=\"out\"", "Of these, datagrams that a queue has marked (ECN)."},
	{NUMBER_COUNTER, OF_WORKER(seen.in_marked), "in_marked", "worker_marked_total",
         ",direction=\"in\"", NULL},
	{NUMBER_COUNTER, OF_WORKER(seen.pushes), "pushes", "worker_pushes_total", "",
         "Of the datagrams out, PUSHes: what is lost out is a share of these."},
	{NUMBER_COUNTER, OF_WORKER(seen.out_lost), "out_lost", "worker_lost_total",
         ",direction=\"out\"",
         "Datagrams that were lost: out, PUSHes sent again; in, asked for again."},
	{NUMBER_COUNTER, OF_WORKER(seen.in_lost), "in_lost", "worker_lost_total",
         ",direction=\"in\"", NULL},
	{0},
};

const struct http_number http_numbers[] = {
	{NUMBER_GAUGE, OF_ALL(totals.jobs), NULL, "jobs", "", "Jobs that are here."},
	{NUMBER_GAUGE, OF_ALL(totals.peers), "connections", "connections", "",
         "Control connections."},
	{NUMBER_GAUGE, OF_ALL(totals.bytes), "memory_reserved_bytes", "memory_reserved_bytes", "",
         "Slots and tables of all jobs."},
	{NUMBER_GAUGE, OF_ALL(totals.bytes_max), "memory_limit_bytes", "memory_limit_bytes", "",
         "What they may be, together: --bytes-max, or what the container's memory leaves."},
	{NUMBER_BOOL, OF_ALL(totals.draining), "draining", "draining", "",
         "1 when no new jobs are taken."},
	{NUMBER_BOOL, OF_ALL(totals.keys_fresh), NULL, "keys_last_reload_successful", "",
         "0 when the key file could not be read again at the last SIGHUP: the old keys stay."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_started), "jobs_started", "jobs_started_total", "",
         "Jobs that have begun."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_finished), "jobs_finished", "jobs_finished_total", "",
         "Jobs that all workers left."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_failed), "jobs_failed", "jobs_failed_total", "",
         "Jobs that ended with an error."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_continued), "jobs_continued", "jobs_continued_total",
         "", "Failed jobs that members have continued without those that were lost."},
	{NUMBER_COUNTER, OF_ALL(totals.joins_refused), "joins_refused", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_ALL(log_lines_lost), "log_lines_lost", "log_lines_lost_total", "",
         "Lines of the log that nobody will read: what reads stderr was too slow, or is gone."},
	{0},
};

const struct http_number http_packet_numbers[] = {
	{NUMBER_COUNTER, OF_ALL(data.net.received), "received", "packets_received_total", "",
         "Datagrams."},
	{NUMBER_COUNTER, OF_ALL(data.net.received_bytes), "received_bytes",
         "packets_received_bytes_total", "", "UDP payload bytes."},
	{NUMBER_COUNTER, OF_ALL(data.net.sent), "sent", "packets_sent_total", "",
         "Datagrams; to a group counts once."},
	{NUMBER_COUNTER, OF_ALL(data.net.sent_bytes), "sent_bytes", "packets_sent_bytes_total", "",
         "UDP payload bytes."},
	{NUMBER_COUNTER, OF_ALL(data.net.tx_errors), "send_errors", "packets_send_errors_total", "",
         "Datagrams that the system refused."},
	{NUMBER_COUNTER, OF_ALL(data.unsent), "unsent", "packets_unsent_total", "",
         "Datagrams given up: the network stayed full."},
	{NUMBER_COUNTER, OF_ALL(data.net.tx_waits), NULL, "net_tx_waits_total", "",
         "Times that the network was full."},
	{NUMBER_COUNTER, OF_ALL(data.net.rx_errors), NULL, "net_rx_errors_total", "",
         "dpdk: frames that were damaged or fragmented, or that there was no room for."},
	{NUMBER_COUNTER, OF_ALL(data.net.rx_others), NULL, "net_rx_others_total", "",
         "dpdk: frames that were not for winnowd: other protocols, addresses, ports."},
	{0},
};

uint64_t http_number(const struct http_number *number, const void *of)
{
	const uint8_t *at = (const uint8_t *)of + number->at;

	return number->bytes == sizeof(uint64_t)   ? *(const uint64_t *)(const void *)at
	       : number->bytes == sizeof(uint32_t) ? *(const uint32_t *)(const void *)at
	                                           : *at;
}
