// SPDX-License-Identifier: BSD-3-Clause
/* net.c - finds back ends by name */

#include "bitmap/net/net.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/*
 * Finds the file of this code, a program or a library, but not by the program's name, which its
 * caller chooses. Returns false if the path is unknown or relative, as anything may lie there.
 */
static bool own_path(char path[PATH_MAX])
{
	static const char here;
	struct link_map *map;
	Dl_info self;
	ssize_t length;

	if (dladdr1(&here, &self, (void **)&map, RTLD_DL_LINKMAP) == 0)
		return false;
	if (map->l_name[0] == '\0') { /* the program */
		length = readlink("/proc/self/exe", path, PATH_MAX - 1);
		path[length > 0 ? length : 0] = '\0';
	} else {
		snprintf(path, PATH_MAX, "%s", map->l_name);
	}
	return path[0] == '/';
}

/* Finds winnow-NAME.so beside the file of this code, or where `make install` puts it. */
static bool plugin_path(const char *name, char path[PATH_MAX])
{
	/* Relative to a program's folder, bin/, or the library's, lib/ or lib/x86_64-linux-gnu/. */
	static const char *const places[] = {"", "winnow/", "../lib/winnow/", "../winnow/"};
	char own[PATH_MAX];

	if (!own_path(own))
		return false;
	strrchr(own, '/')[1] = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (snprintf(path, PATH_MAX, "%s%swinnow-%s.so", own, places[i], name) < PATH_MAX &&
		    access(path, F_OK) == 0)
			return true;
	}
	return false;
}

int net_plugin_open(const char *name, const char *path, const char *symbol, const void **out,
                    struct why *why)
{
	const char *const *version;
	char found[PATH_MAX];
	void *object;

	if (getauxval(AT_SECURE) != 0)
		return why_set(why, -EPERM,
		               "this program does not open winnow-%.60s.so, because that may run "
		               "its caller's code, and file capabilities or set-user-ID give this "
		               "program rights that the caller lacks; start it as root, or with "
		               "ambient capabilities",
		               name);
	if (path == NULL && (strchr(name, '/') != NULL || !plugin_path(name, found)))
		return why_set(why, -ENOENT, "there is no winnow-%.60s.so in this build", name);
	path = path != NULL ? path : found;
	object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (object == NULL)
		return why_set(why, -ELIBACC, "cannot open winnow-%s.so: %.180s", name, dlerror());
	*out = version = dlsym(object, symbol);
	if (version == NULL || strcmp(*version, WINNOW_VERSION) != 0) {
		dlclose(object);
		return why_set(why, -ELIBACC, "%s belongs to another version, not to %s", path,
		               WINNOW_VERSION);
	}
	return 0;
}

int net_backend_named(const char *name, const struct net_backend **out, struct why *why)
{
	const void *plugin;
	int err;

	*out = &net_udp;
	if (strcmp(name, "udp") == 0)
		return 0;
	if (strcmp(name, "dpdk") != 0)
		return why_set(why, -ENOENT, "there is no datapath '%.60s': want udp or dpdk",
		               name);
	err = net_plugin_open(name, NULL, NET_PLUGIN_SYMBOL, &plugin, why);
	if (err == -ENOENT)
		why_set(why, err, "there is no datapath '%.60s' in this build", name);
	if (err == 0)
		*out = ((const struct net_plugin *)plugin)->backend;
	return err;
}

const char *net_backend_about(const char *name)
{
	const void *plugin;
	struct why why;

	return net_plugin_open(name, NULL, NET_PLUGIN_SYMBOL, &plugin, &why) == 0
	               ? ((const struct net_plugin *)plugin)->about
	               : NULL;
}
