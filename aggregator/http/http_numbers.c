// SPDX-License-Identifier: BSD-3-Clause
/* http_numbers.c - every number of /metrics and /status: its names, and where it is */

#include <stddef.h>

#include "aggregator/http/http_state.h"

#define OF_JOB(field)                                                                              \
	offsetof(struct job_snapshot, field), sizeof(((struct job_snapshot *)0)->field)
#define OF_WORKER(field)                                                                           \
	offsetof(struct worker_snapshot, field), sizeof(((struct worker_snapshot *)0)->field)
#define OF_ALL(field) offsetof(struct snapshot, field), sizeof(((struct snapshot *)0)->field)

/* Numbers of running jobs. A job's series end with it. */
const struct http_number http_job_numbers[] = {
	{NUMBER_COUNTER, OF_JOB(operations), "operations", "allreduce_total", "",
         "Operations that all workers have finished."},
	{NUMBER_COUNTER, OF_JOB(stats.mismatches), "mismatches", "mismatches_total", "",
         "Announcements refused because the workers disagree."},
	{NUMBER_COUNTER, OF_JOB(stats.tensor_bytes), "tensor_bytes", "tensor_bytes_total", "",
         "Bytes of one worker's tensors, zeros included."},
	{NUMBER_COUNTER, OF_JOB(stats.received_bytes), "received_bytes", "wire_bytes_total",
         ",direction=\"received\"", "UDP payload bytes; a datagram to a group counts once."},
	{NUMBER_COUNTER, OF_JOB(stats.sent_bytes), "sent_bytes", "wire_bytes_total",
         ",direction=\"sent\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.received), "received_packets", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_JOB(stats.sent), "sent_packets", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_JOB(stats.blocks), "blocks", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_JOB(stats.blocks_nonzero), "blocks_nonzero", "blocks_total",
         ",kind=\"nonzero\"",
         "Blocks of reduced tensors; nonzero if at least one worker had a non-zero element."},
	{NUMBER_COUNTER, OF_JOB(blocks_zero), NULL, "blocks_total", ",kind=\"zero\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.blocks_owned), "blocks_owned", "blocks_owned_total", "",
         "Non-zero blocks of each worker, added up."},
	{NUMBER_COUNTER, OF_JOB(stats.pushes), "pushes", "pushes_total", "",
         "Frames of data accepted from workers."},
	{NUMBER_COUNTER, OF_JOB(stats.fast_added), "fast_added", "fast_pushes_total",
         ",by=\"kernel\"",
         "PUSHes of frames that the XDP program may add: added by the kernel, or by user "
         "space."},
	{NUMBER_COUNTER, OF_JOB(stats.fast_missed), "fast_missed", "fast_pushes_total",
         ",by=\"user\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.results), "results", "results_total", "",
         "Completed frames of sums."},
	{NUMBER_COUNTER, OF_JOB(stats.passed_through), "passed_through", "passed_through_total", "",
         "Completed frames with only one contributor."},
	{NUMBER_COUNTER, OF_JOB(stats.result_resends), "result_resends", "retransmits_total",
         ",reason=\"result\"",
         "Packets sent again: sums and plans that workers asked for, and requests for missing "
         "data."},
	{NUMBER_COUNTER, OF_JOB(stats.plan_resends), "plan_resends", "retransmits_total",
         ",reason=\"plan\"", NULL},
	{NUMBER_COUNTER, OF_JOB(stats.wants), "wants", "retransmits_total", ",reason=\"want\"",
         NULL},
	{NUMBER_GAUGE, OF_JOB(view.world), "world", NULL, NULL, NULL},
	{NUMBER_GAUGE, OF_JOB(here), NULL, "job_workers", "",
         "Workers of the job; at a site, those that join there."},
	{NUMBER_GAUGE, OF_JOB(view.joined), "members", "job_members", "",
         "Workers that have joined and not left."},
	{NUMBER_GAUGE, OF_JOB(view.newcomers), "newcomers", "job_newcomers", "",
         "Workers that wait until the job's members admit them."},
	{NUMBER_GAUGE, OF_JOB(view.bytes), "bytes", "job_memory_bytes", "",
         "Memory reserved for slots and tables."},
	{NUMBER_GAUGE, OF_JOB(slots), NULL, "job_slots", "", "Frames that may be in progress."},
	{NUMBER_GAUGE, OF_JOB(slots_used), NULL, "job_slots_in_use", "", "Frames in progress."},
	{NUMBER_SECONDS, OF_JOB(busy.wait.stall.waited_us), NULL, "job_wait_seconds", "",
         "How long a worker has kept the others waiting."},
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

/* For each worker that has joined. The worker itself reports what it sees. */
const struct http_number http_worker_numbers[] = {
	{NUMBER_TIME, OF_WORKER(waits.late_us), "late_s", "straggler_seconds_total", "",
         "How long operations waited for only this worker to call them."},
	{NUMBER_TIME, OF_WORKER(waits.last_us), "last_s", "worker_last_seconds_total", "",
         "How long frames waited for only this worker's acknowledgement."},
	{NUMBER_SECONDS, OF_WORKER(seen.rtt_us), "rtt_s", "worker_rtt_seconds", "",
         "Smoothed round trip between this worker and the aggregator, on its slowest channel."},
	{NUMBER_SECONDS, OF_WORKER(seen.rtt_least_us), "rtt_least_s", "worker_rtt_least_seconds",
         "",
         "The shortest round trip of the last 10 to 20 s; any longer one includes waiting in "
         "queues."},
	{NUMBER_GAUGE, OF_WORKER(seen.frames), "window", "worker_window_frames", "",
         "Frames that this worker may now have in flight, on all channels."},
	{NUMBER_TIME, OF_WORKER(seen.held_window_us), "held_window_s", "worker_held_seconds_total",
         ",by=\"window\"",
         "How long this worker could not send its data, per channel: because of its window, or of "
         "credit that waits for other workers' acknowledgements."},
	{NUMBER_TIME, OF_WORKER(seen.held_credit_us), "held_credit_s", "worker_held_seconds_total",
         ",by=\"credit\"", NULL},
	{NUMBER_COUNTER, OF_WORKER(seen.out), "out", "worker_packets_total", ",direction=\"out\"",
         "Datagrams as the worker counts them: out to the aggregator, in from it."},
	{NUMBER_COUNTER, OF_WORKER(seen.in), "in", "worker_packets_total", ",direction=\"in\"",
         NULL},
	{NUMBER_COUNTER, OF_WORKER(seen.out_marked), "out_marked", "worker_marked_total",
         ",direction=\"out\"", "Those of these datagrams that a queue has marked (ECN)."},
	{NUMBER_COUNTER, OF_WORKER(seen.in_marked), "in_marked", "worker_marked_total",
         ",direction=\"in\"", NULL},
	{NUMBER_COUNTER, OF_WORKER(seen.pushes), "pushes", "worker_pushes_total", "",
         "PUSHes among the datagrams out; losses out are a share of these."},
	{NUMBER_COUNTER, OF_WORKER(seen.out_lost), "out_lost", "worker_lost_total",
         ",direction=\"out\"",
         "Lost datagrams: out, PUSHes sent again; in, datagrams asked for again."},
	{NUMBER_COUNTER, OF_WORKER(seen.in_lost), "in_lost", "worker_lost_total",
         ",direction=\"in\"", NULL},
	{0},
};

const struct http_number http_numbers[] = {
	{NUMBER_GAUGE, OF_ALL(totals.jobs), NULL, "jobs", "", "Jobs on this aggregator."},
	{NUMBER_GAUGE, OF_ALL(totals.peers), "connections", "connections", "",
         "Control connections."},
	{NUMBER_GAUGE, OF_ALL(totals.bytes), "memory_reserved_bytes", "memory_reserved_bytes", "",
         "Memory reserved for slots and tables of all jobs."},
	{NUMBER_GAUGE, OF_ALL(totals.bytes_max), "memory_limit_bytes", "memory_limit_bytes", "",
         "The limit of that memory: --bytes-max, or what the container's memory leaves."},
	{NUMBER_BOOL, OF_ALL(totals.draining), "draining", "draining", "",
         "1 if no new jobs are accepted."},
	{NUMBER_BOOL, OF_ALL(totals.keys_fresh), NULL, "keys_last_reload_successful", "",
         "0 if the key file could not be read at the last SIGHUP; the old keys stay in use."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_started), "jobs_started", "jobs_started_total", "",
         "Jobs that have begun."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_finished), "jobs_finished", "jobs_finished_total", "",
         "Jobs that ended because all workers left."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_failed), "jobs_failed", "jobs_failed_total", "",
         "Jobs that ended with an error."},
	{NUMBER_COUNTER, OF_ALL(totals.jobs_continued), "jobs_continued", "jobs_continued_total",
         "", "Failed jobs that the remaining members have continued."},
	{NUMBER_COUNTER, OF_ALL(totals.joins_refused), "joins_refused", NULL, NULL, NULL},
	{NUMBER_COUNTER, OF_ALL(log_lines_lost), "log_lines_lost", "log_lines_lost_total", "",
         "Lost log lines, because the reader of stderr was too slow or has gone."},
	{0},
};

const struct http_number http_packet_numbers[] = {
	{NUMBER_COUNTER, OF_ALL(data.net.received), "received", "packets_received_total", "",
         "Datagrams received."},
	{NUMBER_COUNTER, OF_ALL(data.net.received_bytes), "received_bytes",
         "packets_received_bytes_total", "", "UDP payload bytes."},
	{NUMBER_COUNTER, OF_ALL(data.net.sent), "sent", "packets_sent_total", "",
         "Datagrams sent; one to a group counts once."},
	{NUMBER_COUNTER, OF_ALL(data.net.sent_bytes), "sent_bytes", "packets_sent_bytes_total", "",
         "UDP payload bytes."},
	{NUMBER_COUNTER, OF_ALL(data.net.tx_errors), "send_errors", "packets_send_errors_total", "",
         "Datagrams that the system refused to send."},
	{NUMBER_COUNTER, OF_ALL(data.unsent), "unsent", "packets_unsent_total", "",
         "Datagrams given up because the network stayed full."},
	{NUMBER_COUNTER, OF_ALL(data.net.tx_waits), NULL, "net_tx_waits_total", "",
         "How often the network was full."},
	{NUMBER_COUNTER, OF_ALL(data.net.rx_errors), NULL, "net_rx_errors_total", "",
         "dpdk: frames that were damaged, fragmented, or found no room."},
	{NUMBER_COUNTER, OF_ALL(data.net.rx_others), NULL, "net_rx_others_total", "",
         "dpdk: frames for other protocols, addresses or ports."},
	{0},
};

uint64_t http_number(const struct http_number *number, const void *of)
{
	const uint8_t *at = (const uint8_t *)of + number->at;

	return number->bytes == sizeof(uint64_t)   ? *(const uint64_t *)(const void *)at
	       : number->bytes == sizeof(uint32_t) ? *(const uint32_t *)(const void *)at
	                                           : *at;
}
