// SPDX-License-Identifier: BSD-3-Clause
/*
 * no_names.c - preloaded: a host whose name server does not answer: not the first three times for
 * "later.NAME", which then is NAME; never for "never.NAME"; and one that does not know "nowhere.NAME", and from the
 * third time on says nothing
 */

#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
	static int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	static int asked;

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
	if (name != NULL && strncmp(name, "never.", strlen("never.")) == 0)
		return EAI_AGAIN;
	if (name != NULL && strncmp(name, "nowhere.", strlen("nowhere.")) == 0) {
		if (asked++ >= 2)
			sleep(60);
		return EAI_NONAME;
	}
	if (name == NULL || strncmp(name, "later.", strlen("later.")) != 0)
		return next(name, service, hints, out);
	return asked++ < 3 ? EAI_AGAIN : next(name + strlen("later."), service, hints, out);
}
