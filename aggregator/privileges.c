// SPDX-License-Identifier: BSD-3-Clause
/* privileges.c - see privileges.h */

#include "aggregator/privileges.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#define USER_BYTES 64
#define ENTRY_BYTES 16384
#define ID_MAX (UINT32_MAX - 1) /* the number above it means "none" to the kernel */

static struct {
	bool named;
	uid_t uid;
	gid_t gid;
	char text[USER_BYTES]; /* What the operator called the user. */
	char name[USER_BYTES]; /* The name in the list of groups, or "". */
} user;

static int memory_hide(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -errno;
}

int privileges_begin(void)
{
	int err = memory_hide();

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		err = -errno;
	return err;
}

/* Finds "NAME", or "UID:GID", which may have no name here. */
static bool user_find(const char *text)
{
	static char memory[ENTRY_BYTES];
	struct passwd entry, *found = NULL;
	uint64_t uid, gid;
	char more;

	if (getpwnam_r(text, &entry, memory, sizeof(memory), &found) != 0 || found == NULL) {
		if (sscanf(text, "%10" SCNu64 ":%10" SCNu64 "%c", &uid, &gid, &more) != 2 ||
		    uid > ID_MAX || gid > ID_MAX)
			return false;
		user.uid = (uid_t)uid;
		user.gid = (gid_t)gid;
		(void)getpwuid_r(user.uid, &entry, memory, sizeof(memory), &found);
	} else {
		user.uid = found->pw_uid;
		user.gid = found->pw_gid;
	}
	snprintf(user.name, sizeof(user.name), "%s", found != NULL ? found->pw_name : "");
	return true;
}

int privileges_user(const char *text, struct why *why)
{
	if (strlen(text) >= sizeof(user.text) || !user_find(text))
		return why_set(why, -ENOENT,
		               "--user: there is no user '%.64s' on this machine; want a name, or "
		               "UID:GID",
		               text);
	snprintf(user.text, sizeof(user.text), "%s", text);
	if (user.uid == 0 || user.gid == 0)
		return why_set(why, -EINVAL,
		               "--user: '%s' is root, or of root's group: want another one", text);
	if (geteuid() != 0 && (geteuid() != user.uid || getegid() != user.gid))
		return why_set(why, -EPERM,
		               "--user: only root can become '%s': leave it out, or start as root",
		               text);
	user.named = geteuid() == 0;
	return 0;
}

void privileges_own(void)
{
	if (!user.named)
		return;
	setfsgid(user.gid);
	setfsuid(user.uid);
}

static int capabilities_drop(void)
{
	cap_t none = cap_init(); /* starts without any capability */
	int err = 0;

	if (none == NULL)
		return -errno;
	if (cap_set_proc(none) != 0)
		err = -errno;
	cap_free(none);
	return err;
}

int privileges_drop(void)
{
	return user.named ? 0 : capabilities_drop();
}

/* The C library has all threads do it, also DPDK's. They lose their capabilities with it. */
static int user_become(void)
{
	uid_t real, effective, saved;
	gid_t groups[3];

	if ((user.name[0] != '\0' ? initgroups(user.name, user.gid) : setgroups(0, NULL)) != 0 ||
	    setresgid(user.gid, user.gid, user.gid) != 0 ||
	    setresuid(user.uid, user.uid, user.uid) != 0)
		return -errno;
	if (getresuid(&real, &effective, &saved) != 0 ||
	    getresgid(&groups[0], &groups[1], &groups[2]) != 0 || real != user.uid ||
	    effective != user.uid || saved != user.uid || groups[0] != user.gid ||
	    groups[1] != user.gid || groups[2] != user.gid || setuid(0) == 0)
		return -ENOTRECOVERABLE;
	/* The kernel forgets this when the user changes. */
	return memory_hide();
}

int privileges_become(struct why *why)
{
	int err = user.named ? user_become() : 0;

	if (err != 0)
		return why_set(why, err,
		               "cannot become user '%s': %s; it takes root with CAP_SETUID and "
		               "CAP_SETGID",
		               user.text, strerror(-err));
	err = capabilities_drop();
	return err == 0 ? 0 : why_set(why, err, "cannot give up capabilities: %s", strerror(-err));
}
