// SPDX-License-Identifier: BSD-3-Clause
/* control.c - see control.h */

#include "aggregator/control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "aggregator/connections.h"
#include "aggregator/http/http.h"
#include "aggregator/keyring.h"
#include "aggregator/log.h"
#include "aggregator/parent.h"
#include "aggregator/service.h"
#include "client/worker/explain.h"

#define TICK_MS 50
#define DEVICE_US 1000000
#define COPY_WAIT_NS 2000000000 /* for the loop to turn */

/* SIGHUP reloads the keys; the others end winnowd. */
static const int numbers[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};
#define SIGNALS (sizeof(numbers) / sizeof(numbers[0]))

/* How another thread gets a copy of jobs.c's state. */
struct copier {
	uv_async_t asked;
	uv_mutex_t lock; /* for the fields below */
	uv_cond_t made;
	bool wanted, closed;
	struct jobs_copy *copy;
};

struct control {
	struct control_config config;
	struct copier copier;
	struct http_pulse pulse;
	uv_loop_t loop;
	uv_timer_t timer, watchdog;
	uv_signal_t signals[SIGNALS];
	uv_poll_t reports;
	struct keyring keyring;
	struct jobs *jobs;
	struct connections connections;
	struct parent *parent; /* NULL if this is no site */
	struct http *http;
	uint64_t drain_until_us; /* 0 until it drains */
	uint64_t device_due_us;  /* when to check that the device is still there */
	bool ending;
	bool lost; /* a data thread has reported that the network port is gone */
};

static uint64_t loop_us(void)
{
	return uv_hrtime() / 1000;
}

static void control_end(struct control *control, const char *text)
{
	if (control->ending)
		return;
	control->ending = true;
	jobs_end(control->jobs, text);
	listener_stop(&control->connections.listener);
}

/* ---- data threads ---- */

_Static_assert(sizeof(struct report) <= PIPE_BUF, "a pipe takes a report whole or not at all");

int reports_open(struct reports *reports)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
		return -errno;
	*reports = (struct reports){.read_fd = fds[0], .write_fd = fds[1]};
	return 0;
}

void reports_close(struct reports *reports)
{
	close(reports->read_fd);
	close(reports->write_fd);
}

bool reports_put(void *context, const struct report *report)
{
	const struct reports *reports = context;

	return write(reports->write_fd, report, sizeof(*report)) == sizeof(*report);
}

bool reports_take(const struct reports *reports, struct report *out)
{
	return read(reports->read_fd, out, sizeof(*out)) == sizeof(*out);
}

void reports_forget(const struct reports *reports)
{
	struct report unused;

	while (reports_take(reports, &unused))
		if (unused.kind == REPORT_ABOVE)
			free(unused.above.data);
}

/* Tells workers and ends winnowd, because its service manager knows what to do. */
static void port_lost(struct control *control, const char *why)
{
	struct why text;

	log_event("error", "port_lost", NULL, "%s", why);
	why_set(&text, 0, "the aggregator has lost its network port: %s", why);
	control_end(control, text.text);
	control->lost = true;
	control->drain_until_us = 1;
}

static void device_look(struct control *control)
{
	control->device_due_us = loop_us() + DEVICE_US;
	if (offload_lost(control->config.offload))
		log_event("error", "device_lost",
		          LOG_FIELDS(LOG_WORD("device", control->config.device)),
		          "the device is gone, and the XDP program with it: jobs continue in user "
		          "space; restart winnowd when the device is back");
}

/* A job that only user space can serve is not slow because of its workers. */
static void take_trouble(struct control *control, const struct report *report)
{
	if (report->trouble.kind == JOBS_SLOW) {
		device_look(control);
		if (!offload_works(control->config.offload))
			return;
	}
	jobs_trouble(control->jobs, report->id, &report->trouble);
}

static void take_answer(struct control *control, const struct report *report)
{
	upwards_answer(parent_links(control->parent), report->above.data, report->above.bytes);
	free(report->above.data);
}

static void take_refusal(struct control *control, const struct report *report)
{
	char text[CONTROL_TEXT_BYTES];

	explain_mismatch(&report->refused, text, sizeof(text));
	jobs_refused(control->jobs, report->id, text);
}

static void take_reports(uv_poll_t *poll, int status, int events)
{
	struct control *control = poll->data;
	struct report report;

	(void)status;
	(void)events;
	while (reports_take(control->config.reports, &report))
		if (report.kind == REPORT_STALL)
			jobs_stalled(control->jobs, report.id, &report.stall);
		else if (report.kind == REPORT_ABOVE)
			take_answer(control, &report);
		else if (report.kind == REPORT_REFUSED)
			take_refusal(control, &report);
		else if (report.kind == REPORT_TROUBLE)
			take_trouble(control, &report);
		else if (!control->ending)
			port_lost(control, report.lost.text);
}

static int port_attach(void *context, const struct jobs_channel *channel)
{
	struct control *control = context;
	int err = data_attach(control->config.data, channel);

	if (err != 0)
		offload_release(control->config.offload, channel->id);
	return err;
}

static void port_detach(void *context, uint16_t id)
{
	struct control *control = context;

	data_detach(control->config.data, id);
	offload_release(control->config.offload, id);
	reports_forget(control->config.reports); /* the next job may get this number */
}

/* ---- copies for HTTP ---- */

static void copy_make(uv_async_t *asked)
{
	struct control *control = asked->data;
	struct copier *copier = &control->copier;
	struct jobs_copy *copy = jobs_copy(control->jobs);

	uv_mutex_lock(&copier->lock);
	if (copier->wanted) {
		copier->copy = copy;
		copy = NULL;
	}
	copier->wanted = false;
	uv_cond_signal(&copier->made);
	uv_mutex_unlock(&copier->lock);
	free(copy); /* if it came too late */
}

/* Runs in HTTP's thread, which may wait for the loop; the loop waits for no thread. */
static struct jobs_copy *copy_ask(void *context)
{
	struct control *control = context;
	struct copier *copier = &control->copier;
	struct jobs_copy *copy;

	uv_mutex_lock(&copier->lock);
	copier->wanted = true;
	uv_async_send(&copier->asked);
	while (copier->wanted && !copier->closed &&
	       uv_cond_timedwait(&copier->made, &copier->lock, COPY_WAIT_NS) == 0)
		;
	copier->wanted = false;
	copy = copier->copy;
	copier->copy = NULL;
	uv_mutex_unlock(&copier->lock);
	return copy;
}

static void copier_init(struct control *control)
{
	struct copier *copier = &control->copier;

	uv_async_init(&control->loop, &copier->asked, copy_make);
	copier->asked.data = control;
	uv_mutex_init(&copier->lock);
	uv_cond_init(&copier->made);
}

/* The waiting thread gets no copy, and no thread asks any more. */
static void copier_end(struct copier *copier)
{
	uv_mutex_lock(&copier->lock);
	copier->closed = true;
	uv_cond_signal(&copier->made);
	uv_mutex_unlock(&copier->lock);
}

/* ---- time and signals ---- */

static void loop_tick(uv_timer_t *timer)
{
	struct control *control = timer->data;
	struct jobs_totals totals;
	uint64_t now_us = loop_us();

	atomic_store(&control->pulse.turned_us, now_us);
	jobs_tick(control->jobs, now_us);
	if (now_us >= control->device_due_us)
		device_look(control);
	log_flush(false);
	connections_tick(&control->connections, now_us);
	connections_keys_made(&control->connections, control->keyring.keys);
	if (control->parent != NULL)
		parent_keys_set(control->parent, control->keyring.keys);
	if (control->drain_until_us == 0)
		return;
	jobs_totals(control->jobs, &totals);
	if (totals.jobs == 0)
		control_end(control, "");
	else if (now_us >= control->drain_until_us)
		control_end(control, "the aggregator is shutting down");
	if (control->ending && connections_none(&control->connections) &&
	    (control->parent == NULL || upwards_none(parent_links(control->parent))))
		uv_stop(&control->loop);
}

static void end_asked(struct control *control, int number)
{
	struct jobs_totals totals;

	jobs_totals(control->jobs, &totals);
	if (control->drain_until_us == 0) {
		log_event("info", "drain",
		          LOG_FIELDS(LOG_NUMBER("signal", (uint64_t)number),
		                     LOG_NUMBER("jobs", totals.jobs),
		                     LOG_NUMBER("limit_s", control->config.drain_us / 1000000)),
		          NULL);
		service_tell("STOPPING=1\nSTATUS=draining: %u jobs may continue for %.0f s",
		             totals.jobs, (double)control->config.drain_us / 1e6);
		jobs_drain(control->jobs);
		atomic_store(&control->pulse.draining, true);
		control->drain_until_us = loop_us() + control->config.drain_us;
	} else {
		control->drain_until_us = 1; /* the second signal ends all jobs at once */
	}
	loop_tick(&control->timer);
}

static uint32_t keys_distinct(const struct job_keys *keys)
{
	return keys != NULL ? keys->distinct : 0;
}

static void keys_reload(struct control *control)
{
	service_tell("RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)loop_us());
	keyring_read(&control->keyring);
}

static void keys_reloaded(void *context, bool fresh)
{
	struct control *control = context;

	jobs_keys_set(control->jobs, keys_distinct(control->keyring.keys), fresh);
	connections_keys_made(&control->connections, control->keyring.keys);
	service_tell("READY=1");
}

static void signal_taken(uv_signal_t *signal, int number)
{
	if (number == SIGHUP)
		keys_reload(signal->data);
	else
		end_asked(signal->data, number);
}

/* A data thread only answers while it turns. */
static void threads_watch(uv_timer_t *timer)
{
	const struct control *control = timer->data;

	data_await(control->config.data);
	service_tell("WATCHDOG=1");
}

/* ---- opening and closing ---- */

/* Returns 0, or -errno. Only watching descriptors can fail here. */
static int handles_init(struct control *control)
{
	uint64_t watch_ms = service_watchdog_ms();
	int err;

	copier_init(control);
	uv_timer_init(&control->loop, &control->timer);
	uv_timer_init(&control->loop, &control->watchdog);
	err = uv_poll_init(&control->loop, &control->reports, control->config.reports->read_fd);
	if (err != 0)
		return err;
	control->timer.data = control->watchdog.data = control;
	control->reports.data = control;
	atomic_store(&control->pulse.turned_us, loop_us());
	uv_poll_start(&control->reports, UV_READABLE, take_reports);
	uv_timer_start(&control->timer, loop_tick, TICK_MS, TICK_MS);
	if (watch_ms > 0)
		uv_timer_start(&control->watchdog, threads_watch, watch_ms, watch_ms);
	for (size_t i = 0; i < SIGNALS; i++) {
		uv_signal_init(&control->loop, &control->signals[i]);
		control->signals[i].data = control;
		uv_signal_start(&control->signals[i], signal_taken, numbers[i]);
	}
	return 0;
}

static int parent_find(struct control *control, struct why *why)
{
	const struct control_config *config = &control->config;
	const struct parent_config parent = {
		.text = config->parent_text,
		.site = config->site,
		.address = config->parent,
		.rcvbuf = config->jobs.rcvbuf_bytes,
		.payload_max = config->jobs.payload_max,
		.data = config->data,
		.keys = config->keys,
	};

	if (config->parent.port == 0)
		return 0;
	return parent_open(&parent, &control->loop, &control->parent, why);
}

static int serve_http(struct control *control, struct why *why)
{
	const struct control_config *config = &control->config;
	struct http_sources sources = {
		.copy = copy_ask,
		.context = control,
		.pulse = &control->pulse,
		.data = config->data,
		.offload = config->offload,
		.listen = config->listen,
		.threads = config->jobs.threads,
		.rcvbuf_bytes = config->jobs.rcvbuf_bytes / 2,
		.bytes_from = config->bytes_from,
		.parent = config->parent_text,
		.site = config->site,
		.start_us = loop_us(),
		.epoch_us = config->jobs.epoch_us,
	};
	int err = http_open(&config->metrics, &sources, &control->http, why);

	if (err == 0 || !config->metrics_auto)
		return err;
	log_event("warn", "no_metrics", NULL, "%s; continuing without HTTP", why->text);
	return 0;
}

const struct net_addr *control_metrics(const struct control *control)
{
	return control->http != NULL ? &control->config.metrics : NULL;
}

static void *nothing(void *context)
{
	return context;
}

/*
 * libuv ends the process without a word if the system refuses it the pipe of its first loop or the
 * thread of its pool. So this function asks for the same before that, to have the reason. Returns
 * 0, or -errno.
 */
static int loop_init(uv_loop_t *loop)
{
	pthread_t thread;
	int fds[2], err;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	err = -pthread_create(&thread, NULL, nothing, NULL);
	if (err == 0)
		pthread_join(thread, NULL);
	close(fds[0]);
	close(fds[1]);
	return err == 0 ? uv_loop_init(loop) : err;
}

int control_open(const struct control_config *config, struct control **out, struct why *why)
{
	struct control *control = calloc(1, sizeof(*control));
	struct jobs_ports ports = {
		.context = control,
		.kernel = config->offload,
		.data = config->data,
		.send = connections_send,
		.close = connections_shut,
		.share = offload_share,
		.unshare = offload_unshare,
		.attach = port_attach,
		.start = data_start,
		.heard = data_heard,
		.detach = port_detach,
		.seal_key = connections_seal_key,
		.random = random_bytes_for,
		.log = log_fields,
	};
	int err = control != NULL ? loop_init(&control->loop) : -ENOMEM;

	if (err != 0) {
		free(control);
		close(config->listen_fd);
		job_keys_free(config->keys);
		return why_set(why, err, "cannot create an event loop: %s", strerror(-err));
	}
	control->config = *config;
	control->config.jobs.keys = keys_distinct(config->keys);
	control->connections.listener = LISTENER_NONE;
	control->connections.keys = config->keys;
	keyring_open(&control->keyring, &control->loop, config->key_file, config->keys,
	             keys_reloaded, control);
	err = handles_init(control);
	if (err == 0)
		err = parent_find(control, why);
	if (err == 0 && control->parent != NULL) {
		control->config.jobs.sited = true;
		control->config.jobs.site = config->site;
		control->config.jobs.parent = config->parent_text;
		upwards_serve(parent_links(control->parent), &ports);
	}
	if (err == 0)
		err = jobs_open(&control->config.jobs, &ports, &control->jobs);
	if (err != 0) {
		close(config->listen_fd);
		why_set(why, err, "cannot set up jobs: %s", strerror(-err));
	}
	if (control->parent != NULL)
		upwards_told(parent_links(control->parent), control->jobs);
	if (err == 0)
		err = connections_open(&control->connections, &control->loop, control->jobs,
		                       config->listen_fd, &config->listen, why);
	if (err == 0 && config->metrics.port != 0)
		err = serve_http(control, why);
	if (err != 0) {
		control_close(control);
		return err;
	}
	keyring_warn(&control->keyring);
	*out = control;
	return 0;
}

int control_run(struct control *control)
{
	keyring_start(&control->keyring);
	uv_run(&control->loop, UV_RUN_DEFAULT);
	return control->lost ? -ENODEV : 0;
}

static void close_handle(uv_handle_t *handle, void *unused)
{
	(void)unused;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

void control_close(struct control *control)
{
	copier_end(&control->copier);
	http_close(control->http);
	if (control->jobs != NULL)
		jobs_end(control->jobs, "the aggregator is shutting down");
	connections_end(&control->connections);
	if (control->parent != NULL)
		parent_end(control->parent);
	keyring_stop(&control->keyring);
	uv_walk(&control->loop, close_handle, NULL);
	uv_run(&control->loop, UV_RUN_DEFAULT);
	uv_loop_close(&control->loop);
	uv_mutex_destroy(&control->copier.lock);
	uv_cond_destroy(&control->copier.made);
	jobs_close(control->jobs);
	if (control->parent != NULL)
		parent_close(control->parent);
	keyring_close(&control->keyring);
	free(control);
}
