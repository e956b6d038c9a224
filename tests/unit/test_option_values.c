// SPDX-License-Identifier: BSD-3-Clause
/* test_option_values.c - what values of every kind may be, and what they become */

#include "tests/unit/test_options.h"

TEST(sizes)
{
	static const struct {
		const char *text;
		int64_t size, rate; /* -1: refused */
	} cases[] = {
		{"0", 0, 0},
		{"1", 1, 1},
		{"1.5K", 1536, 1500},
		{".5M", 524288, 500000},
		{"2G", INT64_C(2) << 30, 2000000000},
		{"3T", -1, 3000000000000},
		{"7B", 7, -1},
		{"0.4", 0, 0},
		{"0.6", 1, 1},
		{"1e3", 1000, 1000},
		{"9e18", 9000000000000000000, 9000000000000000000},
		{"9.1e18", -1, -1},
		{"1e999", -1, -1},
		{"1e-999", -1, -1},
		{"", -1, -1},
		{"K", -1, -1},
		{".", -1, -1},
		{"-1", -1, -1},
		{"+1", -1, -1},
		{" 1", -1, -1},
		{"1 ", -1, -1},
		{"1 K", -1, -1},
		{"1k", 1024, -1},
		{"2m", 2097152, -1},
		{".5g", 536870912, -1},
		{"1KB", -1, -1},
		{"1M1", -1, -1},
		{"nan", -1, -1},
		{"inf", -1, -1},
		{"twelve", -1, -1},
	};
	char argument[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t got = 99;
		int want = cases[i].size < 0 ? -EINVAL : 0;

		if (option_size(cases[i].text, &got) != want)
			fail_msg("size '%s'", cases[i].text);
		assert_true(got == (want == 0 ? (uint64_t)cases[i].size : 99));
		snprintf(argument, sizeof(argument), "--rate=%s", cases[i].text);
		if (READ(argument) != (cases[i].rate < 0 ? 2 : 0))
			fail_msg("rate '%s'", cases[i].text);
		assert_true(out.rate == (uint64_t)cases[i].rate); /* a wrong one: all bits */
	}
}

TEST(kinds)
{
	static const struct {
		const char *text;
		uint64_t us;
	} times[] = {{"1", 1000000},   {"1s", 1000000},     {"2ms", 2000},
	             {"1500us", 1500}, {"0.25m", 15000000}, {"1m", 60000000}};
	const char *const flags[] = {"1", "yes", "true", "on", "0", "no", "false", "off", ""};
	char argument[64];

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		snprintf(argument, sizeof(argument), "--time=%s", times[i].text);
		assert_int_equal(READ(argument), 0);
		assert_int_equal(out.time, times[i].us);
	}
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		snprintf(argument, sizeof(argument), "--flag=%s", flags[i]);
		assert_int_equal(READ(argument), 0);
		assert_int_equal(out.flag, i < 4);
	}
	assert_true(option_is_off("no") && option_is_off("off") && option_is_off("0"));
	assert_true(option_is_on("yes") && option_is_on("on") && option_is_on("1"));
	assert_false(option_is_on("0") || option_is_on("") || option_is_on("eth0"));
	assert_false(option_is_off("1") || option_is_off("eth0") || option_is_off("127.0.0.1:1"));
	GIVES(out.flag && out.count == 7 && out.real == 0.25, "--flag", "--op-count", "7", "--text",
	      "--x", "--real=.25");
	assert_string_equal(out.text, "--x");
	GIVES(strcmp(out.text, "a=b") == 0, "--text=a=b");
	GIVES(strcmp(out.text, "") == 0, "--text=");
	GIVES(out.count == 2, "--op-count=1", "--op-count=2");
}

/* A class by the names that RFCs give it, or by number. */
TEST(classes)
{
	static const struct {
		const char *text;
		uint32_t value;
	} right[] = {{"0", 0},     {"63", 63},   {"df", 0},    {"CS0", 0}, {"cs1", 8}, {"cs7", 56},
	             {"af11", 10}, {"AF23", 22}, {"af43", 38}, {"ef", 46}, {"LE", 1},  {"va", 44}};
	static const char *const wrong[] = {"",     "cs",   "cs8",  "cs10",  "af",   "af1",
	                                    "af01", "af14", "af50", "af111", "e",    "efx",
	                                    "0x10", "1.5",  "cs-1", "af 1",  "cs1 ", "af1 1"};

	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		assert_int_equal(READ("--dscp", right[i].text), 0);
		assert_int_equal(out.dscp, right[i].value);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_wrong(READ("--dscp", wrong[i]), "want a number, or a name such as cs1");
	assert_wrong(READ("--dscp", "64"), "dscp is 64: want 0 to 63");
}

TEST(32_bits)
{
	assert_int_equal(READ("--flag"), 0);
	assert_true(out.choice == FIRST && out.int_flag == 0 && out.count32 == 0 &&
	            out.ms == 10000);
	assert_int_equal(
		READ("--choice=three", "--int-flag", "--count32=4000000000", "--wait=1.5s"), 0);
	assert_true(out.choice == THIRD && out.int_flag == 1);
	assert_true(out.count32 == 4000000000 && out.ms == 1500);
	GIVES(out.choice == FIRST && out.int_flag == 0 && out.count32 == 0 && out.ms == 1500,
	      "--choice=one", "--int-flag=no", "--count32=0", "--wait-ms=1500");
	assert_wrong(READ("--choice="), "--choice is '': want first, second or third");
	assert_wrong(READ("--choice=thir"), "want first, second or third");
	assert_wrong(READ("--choice=first,one"), "want first, second or third");
	assert_wrong(READ("--count32=9"), "--count32 is 9: want 10 to 4000000000, or 0");
	assert_wrong(READ("--count32=4294967306"), "want 10 to 4000000000, or 0");
	assert_wrong(READ("--wait=99ms"), "--wait is 99ms: want 0.1s to 60s");
	assert_wrong(READ("--wait-ms=99"), "--wait-ms is 99: want 100 to 60000");
	assert_wrong(READ("--wait-ms=1s"),
	             "--wait-ms is '1s': want a whole number of milliseconds");
	assert_wrong(READ("--time-ms=1"), "no option --time-ms");
	setenv("WINNOW_WAIT", "2s", 1);
	setenv("WINNOW_WAIT_MS", "3000", 1);
	GIVES(out.ms == 2000, "--flag");
	unsetenv("WINNOW_WAIT");
	GIVES(out.ms == 3000, "--flag");
	unsetenv("WINNOW_WAIT_MS");
	assert_int_equal(READ("--help-all"), 1);
	assert_non_null(strstr(said, "  --choice first|second|third "));
}

TEST(limits)
{
	static const char *const right[] = {"--op-count=1", "--op-count=1000", "--size=16",
	                                    "--size=1G",    "--time=1ms",      "--time=1m",
	                                    "--real=0",     "--real=1"};

	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		assert_int_equal(READ(right[i]), 0);
	assert_wrong(READ("--op-count=0"), "--op-count is 0: want 1 to 1000");
	assert_wrong(READ("--op-count=1001"), "want 1 to 1000");
	assert_wrong(READ("--size=15"), "want 16 to 1024M");
	assert_wrong(READ("--size=1025M"), "want 16 to 1024M");
	assert_wrong(READ("--time=999us"), "want 0.001s to 60s");
	assert_wrong(READ("--time=2m"), "want 0.001s to 60s");
	assert_wrong(READ("--real=1.0001"), "want 0 to 1");
}

TEST(items)
{
	char item[8];
	const char *at = " a:1,\tb:2 ,,c c\n,12345678";

	at = option_item(at, item, sizeof(item));
	assert_string_equal(item, "a:1");
	at = option_item(at, item, sizeof(item));
	assert_string_equal(item, "b:2");
	at = option_item(at, item, sizeof(item));
	assert_string_equal(item, "");
	at = option_item(at, item, sizeof(item));
	assert_string_equal(item, "c c");
	at = option_item(at, item, sizeof(item));
	assert_string_equal(item, "1234567");
	assert_null(at);
	assert_null(option_item("", item, sizeof(item)));
	assert_string_equal(item, "");
	assert_null(option_item(" \n", item, sizeof(item)));
	assert_string_equal(item, "");
}
