// SPDX-License-Identifier: BSD-3-Clause
/*
 * refuse.c - preloaded into a program: the system refuses something that it asks for
 *
 *     FAIL_WHAT    memory, threads or descriptors
 *     FAIL_AT=N    the N-th time; FAIL_AT=N+: and each time after that
 *     FAIL_COUNT   a file that gets how many times the program has asked
 *     FAIL_LOG     a file that gets a line for each thread or descriptor: its number, the function, and who calls it
 *
 * It does not matter who asks: our code, jansson, libuv or OpenSSL. Requests inside libc are not seen, except for memory.
 * libuv always gets its first pipe and its threads, because it would abort. winnowd asks for the same just before.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* glibc's own, by the names that it has for replacements like these. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

enum kind { NOTHING, MEMORY, THREADS, DESCRIPTORS };

static atomic_ulong asked;
static enum kind wanted;
static unsigned long fail_at;
static bool all_later;

__attribute__((constructor)) static void begin(void)
{
	const char *at = getenv("FAIL_AT"), *what = getenv("FAIL_WHAT");

	atomic_store(&asked, 0); /* Before main() the loader has asked. */
	if (what != NULL)
		wanted = *what == 'm' ? MEMORY : *what == 't' ? THREADS : DESCRIPTORS;
	if (at != NULL) {
		all_later = strchr(at, '+') != NULL;
		fail_at = strtoul(at, NULL, 10);
	}
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("FAIL_COUNT");

	wanted = NOTHING;
	if (path != NULL) {
		FILE *file = fopen(path, "w");

		if (file == NULL || fprintf(file, "%lu\n", atomic_load(&asked)) < 0 ||
		    fclose(file) != 0)
			abort();
	}
}

static bool fails(enum kind kind, int error)
{
	unsigned long number;

	if (kind != wanted)
		return false;
	number = atomic_fetch_add(&asked, 1) + 1;
	if (fail_at == 0 || !(number == fail_at || (all_later && number > fail_at)))
		return false;
	errno = error;
	return true;
}

/* ---- memory ---- */

void *malloc(size_t bytes)
{
	return fails(MEMORY, ENOMEM) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	return fails(MEMORY, ENOMEM) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	return fails(MEMORY, ENOMEM) ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	return fails(MEMORY, ENOMEM) ? NULL : __libc_memalign(alignment, bytes);
}

/* ---- threads and descriptors ---- */

static void asked_log(const char *name, const char *object)
{
	const char *path = getenv("FAIL_LOG");
	int (*next)(const char *, int, ...);
	int file;

	if (path == NULL)
		return;
	*(void **)&next = dlsym(RTLD_NEXT, "open");
	file = next(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dprintf(file, "%lu %s of %s\n", atomic_load(&asked), name, object);
	close(file);
}

/* Is this call of `name`, by code at `caller`, refused? */
static bool refuses(enum kind kind, int error, const char *name, void *caller)
{
	static atomic_bool has_pipe;
	Dl_info info = {.dli_fname = "?"};
	bool no;

	if (kind != wanted)
		return false;
	(void)dladdr(caller, &info);
	if (strstr(info.dli_fname, "libuv") != NULL &&
	    (kind == THREADS || (strcmp(name, "pipe2") == 0 && !atomic_exchange(&has_pipe, true))))
		return false;
	no = fails(kind, error);
	asked_log(name, info.dli_fname);
	errno = error;
	return no;
}

/* Defines libc's `name`, which calls the one of libc or returns `refused`. The compiler knows it as refuse_name. */
#define REFUSES(kind, error, refused, type, name, parameters, ...)                                 \
	type refuse_##name parameters __asm__(#name);                                              \
	type refuse_##name parameters                                                              \
	{                                                                                          \
		const bool no = refuses(kind, error, #name, __builtin_return_address(0));          \
		type(*next) parameters;                                                            \
                                                                                                   \
		if (no)                                                                            \
			return refused;                                                            \
		*(void **)&next = dlsym(RTLD_NEXT, #name);                                         \
		return next(__VA_ARGS__);                                                          \
	}
#define DESCRIPTOR(name, parameters, ...)                                                          \
	REFUSES(DESCRIPTORS, EMFILE, -1, int, name, parameters, __VA_ARGS__)
#define STREAM(type, name, parameters, ...)                                                        \
	REFUSES(DESCRIPTORS, EMFILE, NULL, type *, name, parameters, __VA_ARGS__)

REFUSES(THREADS, EAGAIN, EAGAIN, int, pthread_create,
        (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context),
        thread, attributes, run, context)
DESCRIPTOR(socket, (int domain, int type, int protocol), domain, type, protocol)
DESCRIPTOR(accept, (int fd, void *address, socklen_t *size), fd, address, size)
DESCRIPTOR(accept4, (int fd, void *address, socklen_t *size, int flags), fd, address, size, flags)
DESCRIPTOR(eventfd, (unsigned int value, int flags), value, flags)
DESCRIPTOR(epoll_create1, (int flags), flags)
DESCRIPTOR(timerfd_create, (int clock, int flags), clock, flags)
DESCRIPTOR(dup, (int fd), fd)
DESCRIPTOR(pipe, (int *fds), fds)
DESCRIPTOR(pipe2, (int *fds, int flags), fds, flags)
/* Callers that create no file give no mode. Whatever stands in its place is passed on, and libc ignores it. */
DESCRIPTOR(open, (const char *path, int flags, mode_t mode), path, flags, mode)
DESCRIPTOR(open64, (const char *path, int flags, mode_t mode), path, flags, mode)
DESCRIPTOR(openat, (int fd, const char *path, int flags, mode_t mode), fd, path, flags, mode)
DESCRIPTOR(openat64, (int fd, const char *path, int flags, mode_t mode), fd, path, flags, mode)
DESCRIPTOR(__open_2, (const char *path, int flags), path, flags)
DESCRIPTOR(__open64_2, (const char *path, int flags), path, flags)
STREAM(FILE, fopen, (const char *path, const char *mode), path, mode)
STREAM(FILE, fopen64, (const char *path, const char *mode), path, mode)
STREAM(DIR, opendir, (const char *path), path)
