// SPDX-License-Identifier: BSD-3-Clause
#include <assert.h>

#include "tests/unit/unit.h"
#include "tests/unit/test_random.h"

static struct CMUnitTest tests[128]; /* cmocka passes over empty ones */
static size_t count;

void unit_add(struct CMUnitTest test)
{
	assert(count < sizeof(tests) / sizeof(tests[0]));
	tests[count++] = test;
}

int unit_run(CMFixtureFunction begin, CMFixtureFunction end)
{
	if (count == 0)
		return 1;
	random_seed();
	return cmocka_run_group_tests(tests, begin, end) != 0;
}

/* That of a test which has its own comes before it. */
__attribute__((weak)) int main(void)
{
	return unit_run(NULL, NULL);
}
