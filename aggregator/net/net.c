// SPDX-License-Identifier: BSD-3-Clause
/* net.c - back ends by name */

#include "aggregator/net/net.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool net_plugin_path(const char *name, char *path)
{
	static const char *const places[] = {"", "winnow/", "../lib/winnow/"};
	static const char here;
	Dl_info self;

	if (dladdr(&here, &self) == 0)
		return false;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *slash = strrchr(self.dli_fname, '/');
		int folder = slash != NULL ? (int)(slash - self.dli_fname) + 1 : 0;

		snprintf(path, PATH_MAX, "%.*s%swinnow-%s.so", folder, self.dli_fname, places[i],
		         name);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static int plugin_open(const char *name, const struct net_plugin **out, struct why *why)
{
	const struct net_plugin *plugin;
	char path[PATH_MAX];
	void *object;

	if (strchr(name, '/') != NULL || !net_plugin_path(name, path))
		return why_set(why, -ENOENT, "there is no datapath '%.60s' in this build", name);
	object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (object == NULL)
		return why_set(why, -ELIBACC, "cannot open datapath %s: %s", name, dlerror());
	plugin = dlsym(object, NET_PLUGIN_SYMBOL);
	if (plugin == NULL || strcmp(plugin->version, WINNOW_VERSION) != 0) {
		dlclose(object);
		return why_set(why, -ELIBACC, "%s belongs to another version, not to %s", path,
		               WINNOW_VERSION);
	}
	*out = plugin;
	return 0;
}

int net_backend_named(const char *name, const struct net_backend **out, struct why *why)
{
	const struct net_plugin *plugin;
	int err;

	*out = &net_udp;
	if (strcmp(name, "udp") == 0)
		return 0;
	err = plugin_open(name, &plugin, why);
	if (err == 0)
		*out = plugin->backend;
	return err;
}

const char *net_backend_about(const char *name)
{
	const struct net_plugin *plugin;
	struct why why;

	return plugin_open(name, &plugin, &why) == 0 ? plugin->about : NULL;
}
