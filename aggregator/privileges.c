// SPDX-License-Identifier: BSD-3-Clause
/* privileges.c - see privileges.h */

#include "aggregator/privileges.h"

#include <errno.h>
#include <stddef.h>
#include <sys/capability.h>
#include <sys/prctl.h>

int privileges_hide(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -errno;
}

int privileges_drop(void)
{
	cap_t none = cap_init(); /* starts with no capability set */
	int status = 0;

	if (none == NULL)
		return -errno;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || cap_set_proc(none) != 0)
		status = -errno;
	cap_free(none);
	return status;
}
