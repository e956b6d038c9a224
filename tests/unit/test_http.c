// SPDX-License-Identifier: BSD-3-Clause
/* test_http.c - what is served, and who is answered when strangers hold all that they can */

#include "tests/unit/test_http.h"
#include "tests/unit/unit.h"

#define STRANGERS 1000

TEST_BETWEEN(paths, begin, end)
{
	expect_answer(get("/healthz"), OK, "\r\n\r\nok\n");
	expect_answer(get("/readyz"), OK, "ready\n");
	expect_answer(get("/metrics"), OK, "winnow_jobs 1\n");
	expect_answer(get("/metrics"), OK, "Content-Type: text/plain; version=0.0.4\r\n");
	expect_answer(get("/status"), OK, "Content-Type: application/json\r\n");
	expect_answer(get("/"), "HTTP/1.1 404 ", "try /metrics");
	expect_answer(get("/../../etc/passwd"), "HTTP/1.1 404 ", "try /metrics");
	expect_answer(ask(dial(&address, 1), "POST", "/status"), "HTTP/1.1 405 ", "only GET");
	expect_answer(ask(dial(&address, 1), "HEAD", "/healthz"), OK, "Content-Length: 3\r\n");
	atomic_store(&pulse.draining, true);
	expect_answer(get("/readyz"), "HTTP/1.1 503 ", "draining\n");
	expect_answer(get("/healthz"), OK, "ok\n");
}

/* A control loop that turns no more is not healthy, and has no state to show. */
TEST_BETWEEN(stuck, begin, end)
{
	answers = false;
	expect_answer(get("/status"), "HTTP/1.1 503 ", "the control loop does not answer");
	expect_answer(get("/healthz"), OK, "ok\n");
	atomic_store(&pulse.turned_us, uv_hrtime() / 1000 - HTTP_PULSE_US - 1);
	expect_answer(get("/healthz"), "HTTP/1.1 503 ", "the control loop does not turn");
	expect_answer(get("/readyz"), "HTTP/1.1 503 ", "the control loop does not turn");
	atomic_store(&pulse.turned_us, uv_hrtime() / 1000);
	answers = true;
	expect_answer(get("/status"), OK, "made-up");
}

static const char *ask_host(const char *path, const char *host)
{
	int fd = dial(&address, 1);

	ask_only(fd, "GET", path, host);
	return answer_of(fd);
}

/* Of a loopback address a browser shows a page from elsewhere only what that may see: nothing. */
TEST_BETWEEN(hosts, begin, end)
{
	static const char *const here[] = {"127.0.0.1", "127.0.0.1:9555", "localhost:80",
	                                   "LOCALHOST", "[::1]:9555",     "10.0.0.1:9555"};
	static const char *const elsewhere[] = {
		"evil.example:9555",      "evil.example", "x", "127.0.0.1.evil.example",
		"localhost.evil.example", ":9555",        ""};
	char own[256];

	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		expect_answer(ask_host("/status", here[i]), OK, "made-up");
	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
		expect_answer(ask_host("/status", elsewhere[i]), "HTTP/1.1 403 ",
		              "use its number, localhost or this machine");
		assert_null(strstr(heard, "made-up"));
	}
	assert_int_equal(gethostname(own, sizeof(own)), 0);
	expect_answer(ask_host("/healthz", own), OK, "ok\n");
	expect_answer(ask_host("/healthz", strcat(own, ":9555")), OK, "ok\n");
}

/* At an address that others may reach too it is the firewall that decides, and any name will do. */
TEST_BETWEEN(any_host, begin, end)
{
	struct net_addr any;
	struct http *second = NULL;
	struct why why;
	int fd, err = -EADDRINUSE;

	/* A port that is free at one address may be another test's at another. */
	for (uint32_t i = 0; i < 20 && err == -EADDRINUSE; i++) {
		any = free_address();
		any.ip = net_ipv4(0);
		err = http_open(&any, &sources, &second, &why);
	}
	assert_int_equal(err, 0);
	any.ip = net_ipv4(INADDR_LOOPBACK);
	fd = dial(&any, 1);
	ask_only(fd, "GET", "/status", "winnow.example:9555");
	expect_answer(answer_of(fd), OK, "made-up");
	http_close(second);
}

/* Whoever asks for a page shortly after it was made gets the same one. */
TEST_BETWEEN(shared_pages, begin, end)
{
	enum { MANY = 100 };
	const uint64_t begun_us = uv_hrtime() / 1000;
	int fds[MANY];

	for (uint32_t round = 1; round <= 3; round++) {
		for (uint32_t i = 0; i < MANY; i++) {
			fds[i] = dial(&address, (uint8_t)(1 + i % 4));
			ask_only(fds[i], "GET", i % 2 == 0 ? "/status" : "/metrics", "localhost");
		}
		jobs_started = round;
		for (uint32_t i = 0; i < MANY; i++)
			expect_answer(answer_of(fds[i]), OK,
			              i % 2 == 0 ? "made-up" : "winnow_jobs_started_total ");
	}
	assert_in_range(copies, 2, 2 + 2 * (uv_hrtime() / 1000 - begun_us) / HTTP_PAGE_US);
	expect_answer(get("/metrics"), OK, "winnow_jobs_started_total 3\n");
}

/* Ends while some have asked. */
TEST_BETWEEN(ends, begin, end)
{
	int fds[8];

	expect_answer(get("/status"), OK, "made-up");
	for (uint32_t i = 0; i < 8; i++) {
		fds[i] = dial(&address, 1);
		ask_only(fds[i], "GET", "/status", "localhost");
	}
	end(NULL);
	for (uint32_t i = 0; i < 8; i++)
		close(fds[i]);
	begin(NULL);
}

/* ---- strangers ---- */

static int strangers[STRANGERS];

static void stranger_comes(uint32_t i, uint8_t host)
{
	strangers[i] = dial(&address, host);
	turn();
}

static void strangers_go(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(strangers[i]);
}

static uint32_t descriptors(void)
{
	uint32_t count = 0;

	for (int fd = 0; fd < 4096; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/*
 * A thousand connections that ask nothing, or that begin and do not end: who asks is answered, from
 * another address and from the same; and no more are held than there may be.
 */
TEST_BETWEEN(idle, begin, end)
{
	uint32_t before = descriptors();

	for (uint32_t i = 0; i < STRANGERS; i++) {
		strangers[i] = dial(&address, 1);
		if (i % 2 == 0)
			say_text(strangers[i], "GET /healthz HTTP/1.1\r\nX-More: ");
		turn();
		if (i % 100 == 99)
			expect_answer(get("/healthz"), OK, "ok\n");
	}
	turns(20);
	assert_in_range(descriptors() - before - STRANGERS, 0, HTTP_CONNECTIONS_MAX);
	for (uint32_t i = 0; i < 20; i++)
		expect_answer(ask(dial(&address, i % 2 == 0 ? 1 : 2), "GET", "/healthz"), OK,
		              "ok\n");
	expect_answer(get("/status"), OK, "made-up");
	strangers_go(STRANGERS);
	turns(50);
	assert_in_range(descriptors(), before, before + 2);
}

/* Whoever is slow to ask is not pushed out by an address that has more. */
TEST_BETWEEN(share, begin, end)
{
	int slow = dial(&address, 3);

	for (uint32_t i = 0; i < STRANGERS; i++)
		stranger_comes(i, 2);
	expect_answer(ask(slow, "GET", "/readyz"), OK, "ready\n");
	strangers_go(STRANGERS);
}

/* Of one address the oldest goes first: whoever has just come has the time to ask. */
TEST_BETWEEN(oldest, begin, end)
{
	int asks;

	for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX; i++)
		stranger_comes(i, 1);
	asks = dial(&address, 1);
	turn();
	for (uint32_t i = HTTP_CONNECTIONS_MAX; i < 2 * HTTP_CONNECTIONS_MAX - 8; i++)
		stranger_comes(i, 1);
	expect_answer(ask(asks, "GET", "/healthz"), OK, "ok\n");
	strangers_go(2 * HTTP_CONNECTIONS_MAX - 8);
}

/* Those that have ended are forgotten: another may have the same number now. */
TEST_BETWEEN(forgotten, begin, end)
{
	int slow;

	for (uint32_t round = 0; round < 2; round++) {
		slow = round == 0 ? -1 : dial(&address, 3);
		turns(5); /* it gets the number that the first stranger had */
		for (uint32_t i = 0; i < HTTP_CONNECTIONS_MAX - 8; i++)
			stranger_comes(i, 1);
		if (round == 1)
			expect_answer(ask(slow, "GET", "/healthz"), OK, "ok\n");
		strangers_go(HTTP_CONNECTIONS_MAX - 8);
		turns(20);
	}
}

/* Connections that ask and do not read. */
TEST_BETWEEN(slow_readers, begin, end)
{
	int deaf[8];

	for (uint32_t i = 0; i < 8; i++) {
		deaf[i] = dial(&address, 1);
		for (uint32_t k = 0; k < 400; k++) {
			static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

			if (send(deaf[i], request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
				break;
			turn();
		}
		expect_answer(get("/healthz"), OK, "ok\n");
	}
	for (uint32_t i = 0; i < 8; i++)
		close(deaf[i]);
}

/* No descriptor is left but those of connections that are held: one of them gives its up. */
TEST_BETWEEN(gives_way, begin, end)
{
	const uint32_t none = descriptors();
	int held[4], last;
	struct rlimit before;

	for (uint32_t i = 0; i < 4; i++)
		held[i] = dial(&address, 1);
	UNTIL(descriptors() == none + 8); /* both ends are this process's */
	before = allow_descriptors(1);
	last = dial(&address, 1);
	expect_answer(ask(last, "GET", "/healthz"), OK, "ok\n");
	setrlimit(RLIMIT_NOFILE, &before);
	for (uint32_t i = 0; i < 4; i++)
		close(held[i]);
}

static uint64_t worked_us(void)
{
	struct timespec worked;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &worked);
	return (uint64_t)worked.tv_sec * 1000000 + (uint64_t)worked.tv_nsec / 1000;
}

/* Nobody is there to give one up: whoever comes waits, and the thread does not turn like mad meanwhile. */
TEST_BETWEEN(no_descriptors, begin, end)
{
	struct rlimit before = allow_descriptors(1);
	int fd = dial(&address, 1);
	uint64_t since_us = worked_us();

	usleep(500000);
	assert_in_range(worked_us() - since_us, 0, 100000);
	ask_only(fd, "GET", "/healthz", "localhost");
	setrlimit(RLIMIT_NOFILE, &before);
	expect_answer(answer_of(fd), OK, "ok\n");
}

TEST_BETWEEN(taken, begin, end)
{
	struct http *second = NULL;
	struct why why;

	assert_int_equal(http_open(&address, &sources, &second, &why), -EADDRINUSE);
	assert_non_null(strstr(why.text, "cannot serve HTTP on 127.0.0.1:"));
	assert_non_null(strstr(why.text, ": Address already in use"));
	assert_null(second);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return unit_run(NULL, NULL);
}
