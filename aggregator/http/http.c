// SPDX-License-Identifier: BSD-3-Clause
/* http.c - see http.h */

#include "aggregator/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "aggregator/http/http_state.h"
#include "aggregator/jobs/crowd.h"
#include "aggregator/listener.h"
#include "aggregator/privileges.h"
#include "bitmap/net/sockaddr.h"

#define IDLE_S 10
#define CONNECTION_BYTES 8192 /* of memory, for the head of a request and of its answer */
#define LEAVING_MAX 16        /* connections that are cut off but not closed yet */
#define PAGE_SHARE 20         /* making a page takes at most a twentieth of the time */

enum page { PAGE_METRICS, PAGE_STATUS, PAGE_COUNT };

/* Once the thread runs, it owns everything but `stop`. */
struct http {
	uv_async_t stop; /* ends the thread; any thread may send it */
	pthread_t thread;
	uv_loop_t loop;
	struct MHD_Daemon *daemon;
	uv_poll_t poll;   /* wakes the daemon for its sockets */
	uv_timer_t timer; /* wakes the daemon when it wants to run anyway */
	struct listener listener;
	struct crowd crowd; /* all connections by address; `who` is the socket's number */
	struct http_sources sources;
	bool local; /* it listens on a loopback address */
	struct {
		struct MHD_Response *response; /* NULL if it could not be made */
		uint64_t until_us;             /* until then it is given to all who ask */
	} pages[PAGE_COUNT];
};

/* ---- answers ---- */

static enum MHD_Result text_respond(struct MHD_Connection *connection, unsigned status,
                                    const char *text)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result;

	if (response == NULL)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

/* Tells whether a host's name, perhaps with a port, certainly means this machine. */
static bool host_is_here(const char *host)
{
	char name[256], own[256];
	struct in6_addr unused;
	size_t length;

	snprintf(name, sizeof(name), "%s", host);
	length = name[0] == '[' ? strcspn(name, "]") + 1 : strcspn(name, ":");
	if (name[0] == '[')
		return length <= strlen(name);
	name[length] = '\0';
	if (inet_pton(AF_INET, name, &unused) == 1 || strcasecmp(name, "localhost") == 0)
		return true;
	return gethostname(own, sizeof(own)) == 0 && strcasecmp(name, own) == 0;
}

/*
 * A web page from elsewhere can have its own name resolve to a loopback address, and a browser then
 * lets it read what is served there. It cannot make the browser send another name.
 */
static bool is_rebound(const struct http *http, struct MHD_Connection *connection)
{
	const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");

	return http->local && host != NULL && !host_is_here(host);
}

/* ---- pages ---- */

static struct MHD_Response *page_response(char *body, const char *type)
{
	struct MHD_Response *response = NULL;

	if (body != NULL)
		response =
			MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
	if (response != NULL)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	else
		free(body);
	return response;
}

static void page_forget(struct http *http, enum page page)
{
	if (http->pages[page].response != NULL)
		MHD_destroy_response(http->pages[page].response);
	http->pages[page].response = NULL;
}

/* A copy that fails costs nothing, so the next client may try again soon. */
static void page_make(struct http *http, enum page page, uint64_t begun_us)
{
	struct snapshot now;
	uint64_t rest_us = 0;

	page_forget(http, page);
	if (snapshot_take(&http->sources, &now)) {
		http->pages[page].response =
			page == PAGE_STATUS ? page_response(http_status(&http->sources, &now),
		                                            "application/json")
					    : page_response(http_metrics(&http->sources, &now),
		                                            "text/plain; version=0.0.4");
		snapshot_free(&now);
		rest_us = (uv_hrtime() / 1000 - begun_us) * PAGE_SHARE;
	}
	http->pages[page].until_us =
		uv_hrtime() / 1000 + (rest_us > HTTP_PAGE_US ? rest_us : HTTP_PAGE_US);
}

static enum MHD_Result page_answer(struct http *http, struct MHD_Connection *connection,
                                   enum page page)
{
	const uint64_t now_us = uv_hrtime() / 1000;

	if (now_us >= http->pages[page].until_us)
		page_make(http, page, now_us);
	if (http->pages[page].response == NULL)
		return text_respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
		                    "out of memory, or the control loop does not answer\n");
	return MHD_queue_response(connection, MHD_HTTP_OK, http->pages[page].response);
}

/* ---- requests ---- */

static enum MHD_Result probe_answer(const struct http *http, struct MHD_Connection *connection,
                                    const char *url)
{
	const struct http_pulse *pulse = http->sources.pulse;
	const bool ready = strcmp(url, "/readyz") == 0;

	if (uv_hrtime() / 1000 - atomic_load(&pulse->turned_us) > HTTP_PULSE_US)
		return text_respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
		                    "the control loop does not turn\n");
	if (ready && atomic_load(&pulse->draining))
		return text_respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "draining\n");
	return text_respond(connection, MHD_HTTP_OK, ready ? "ready\n" : "ok\n");
}

static enum MHD_Result request_answer(void *context, struct MHD_Connection *connection,
                                      const char *url, const char *method, const char *version,
                                      const char *upload, size_t *upload_bytes, void **request)
{
	struct http *http = context;

	(void)version;
	(void)upload;
	(void)upload_bytes;
	(void)request;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return text_respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
	if (is_rebound(http, connection))
		return text_respond(
			connection, MHD_HTTP_FORBIDDEN,
			"this is a loopback address: use its number, localhost or this machine's "
			"name\n");
	if (strcmp(url, "/metrics") == 0)
		return page_answer(http, connection, PAGE_METRICS);
	if (strcmp(url, "/status") == 0)
		return page_answer(http, connection, PAGE_STATUS);
	if (strcmp(url, "/healthz") == 0 || strcmp(url, "/readyz") == 0)
		return probe_answer(http, connection, url);
	return text_respond(connection, MHD_HTTP_NOT_FOUND,
	                    "try /metrics, /status, /healthz or /readyz\n");
}

/* ---- connections ---- */

static void timer_ended(uv_timer_t *timer);

static void daemon_work(struct http *http)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	MHD_run(http->daemon);
	if (MHD_get_timeout(http->daemon, &wait_ms) == MHD_YES)
		uv_timer_start(&http->timer, timer_ended, wait_ms, 0);
}

static void timer_ended(uv_timer_t *timer)
{
	daemon_work(timer->data);
}

static void socket_polled(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	daemon_work(poll->data);
}

static void *socket_key(int fd)
{
	return (void *)(intptr_t)fd;
}

/* The socket belongs to the library, which closes it when it has ended. False: there is none. */
static bool crowd_out(void *context)
{
	struct http *http = context;
	void *oldest = crowd_heaviest(&http->crowd).oldest;

	if (oldest == NULL)
		return false;
	crowd_remove(&http->crowd, oldest);
	shutdown((int)(intptr_t)oldest, SHUT_RDWR);
	daemon_work(http);
	return true;
}

/*
 * A client that asks for winnowd's state, above all a probe, gets an answer whatever strangers do:
 * a connection is served as soon as its request is complete. Until then only a newer connection
 * from an address with as many connections can push it out.
 */
static void connection_new(void *context, int fd, const struct net_addr *from)
{
	struct http *http = context;
	union net_sockaddr address;
	socklen_t size = net_sockaddr(from, &address);

	if (http->crowd.count == HTTP_CONNECTIONS_MAX)
		crowd_out(http);
	crowd_add(&http->crowd, net_ip_owner(&from->ip), socket_key(fd));
	/* A connection that the daemon refuses is closed without a call of connection_changed(). */
	if (MHD_add_connection(http->daemon, fd, &address.any, size) != MHD_YES)
		crowd_remove(&http->crowd, socket_key(fd));
	daemon_work(http);
}

static void connection_changed(void *context, struct MHD_Connection *connection, void **unused,
                               enum MHD_ConnectionNotificationCode what)
{
	struct http *http = context;

	(void)unused;
	if (what == MHD_CONNECTION_NOTIFY_CLOSED)
		crowd_remove(&http->crowd,
		             socket_key(MHD_get_connection_info(connection,
		                                                MHD_CONNECTION_INFO_CONNECTION_FD)
		                                ->connect_fd));
}

/* ---- opening and closing ---- */

/*
 * The library accepts no connections itself. Without descriptors it would spin, or accept nothing
 * while the present clients stay.
 */
static struct MHD_Daemon *daemon_start(struct http *http)
{
	return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
	                        request_answer, http, MHD_OPTION_CONNECTION_LIMIT,
	                        HTTP_CONNECTIONS_MAX + LEAVING_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
	                        IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
	                        (size_t)CONNECTION_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
	                        connection_changed, http, MHD_OPTION_END);
}

static void handle_close(uv_handle_t *handle, void *unused)
{
	(void)unused;
	uv_close(handle, NULL);
}

static void stop_asked(uv_async_t *async)
{
	uv_stop(async->loop);
}

static void *http_run(void *context)
{
	struct http *http = context;

	(void)privileges_drop(); /* winnowd.c reports a failure */
	pthread_setname_np(pthread_self(), "winnow-http");
	uv_run(&http->loop, UV_RUN_DEFAULT);
	return NULL;
}

/* Called when the thread has ended or never ran; handles may exist even then. */
static void free_all(struct http *http)
{
	uv_walk(&http->loop, handle_close, NULL);
	uv_run(&http->loop, UV_RUN_DEFAULT);
	if (http->daemon != NULL)
		MHD_stop_daemon(http->daemon);
	for (uint32_t i = 0; i < PAGE_COUNT; i++)
		page_forget(http, i);
	listener_close(&http->listener);
	crowd_close(&http->crowd);
	uv_loop_close(&http->loop);
	free(http);
}

/* Returns 0, or -errno. Only watching descriptors can fail here. */
static int handles_init(struct http *http)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	int err = uv_async_init(&http->loop, &http->stop, stop_asked);

	if (err == 0)
		err = uv_poll_init(&http->loop, &http->poll, info->epoll_fd);
	if (err != 0)
		return err;
	uv_timer_init(&http->loop, &http->timer);
	http->poll.data = http->timer.data = http;
	uv_poll_start(&http->poll, UV_READABLE, socket_polled);
	return 0;
}

static int port_open(struct http *http, const struct net_addr *listen, struct why *why)
{
	const struct listener_hooks hooks = {
		.context = http, .taken = connection_new, .make_room = crowd_out};
	int fd = listener_bind(listen, "cannot serve HTTP on", why);

	return fd < 0 ? fd : listener_open(&http->listener, &http->loop, fd, listen, &hooks, why);
}

static bool is_loopback(const struct net_ip *ip)
{
	static const struct net_ip six = {.bytes = {[15] = 1}};

	return net_ip_is_v4(ip) ? net_ip_number(ip) >> 24 == 127 : net_ip_same(ip, &six);
}

int http_open(const struct net_addr *listen, const struct http_sources *sources, struct http **out,
              struct why *why)
{
	struct http *http = calloc(1, sizeof(*http));
	int err = http != NULL ? uv_loop_init(&http->loop) : -ENOMEM;

	if (err != 0) {
		free(http);
		return why_set(why, err, "cannot serve HTTP: %s", strerror(-err));
	}
	http->listener = LISTENER_NONE;
	http->sources = *sources;
	http->local = is_loopback(&listen->ip);
	errno = ENOMEM;
	http->daemon = daemon_start(http);
	err = http->daemon != NULL ? crowd_open(&http->crowd, HTTP_CONNECTIONS_MAX) : -errno;
	if (err != 0) {
		free_all(http);
		return why_set(why, err, "cannot serve HTTP: %s", strerror(-err));
	}
	err = port_open(http, listen, why);
	if (err != 0) {
		free_all(http);
		return err;
	}
	err = handles_init(http);
	if (err == 0)
		err = -pthread_create(&http->thread, NULL, http_run, http);
	if (err != 0) {
		free_all(http);
		return why_set(why, err, "cannot start a thread for HTTP: %s", strerror(-err));
	}
	*out = http;
	return 0;
}

void http_close(struct http *http)
{
	if (http == NULL)
		return;
	uv_async_send(&http->stop);
	pthread_join(http->thread, NULL);
	free_all(http);
}
