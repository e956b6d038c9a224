// SPDX-License-Identifier: BSD-3-Clause
/* test_comm_config.c - what the environment, WINNOW_CONFIG's file and callers say, and what is wrong with it */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/comm/comm_state.h"
#include "tests/unit/unit.h"

static const char *const variables[] = {
	"RANK",           "WORLD_SIZE",        "WINNOW_AGGREGATORS",     "WINNOW_JOB",
	"WINNOW_KEY",     "WINNOW_KEY_FILE",   "WINNOW_INSECURE_NO_KEY", "WINNOW_BLOCK",
	"WINNOW_WIRE",    "WINNOW_THREADS",    "WINNOW_SILENCE",         "WINNOW_SILENCE_MS",
	"WINNOW_TIMEOUT", "WINNOW_TIMEOUT_MS", "WINNOW_JOIN_TIMEOUT_MS", "WINNOW_MULTICAST",
	"WINNOW_PAYLOAD", "WINNOW_DATAPATH",   "WINNOW_CONFIG",
};

static int clean(void **state)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	return 0;
}

/* The configuration with one variable set. */
static struct winnow_config with(const char *name, const char *value)
{
	struct winnow_config config;

	setenv(name, value, 1);
	winnow_config_init(&config);
	return config;
}

/* Creating fails before anything is opened, and the line says this. */
static void refused(const struct winnow_config *config, const char *text)
{
	struct winnow_comm *comm = (struct winnow_comm *)1;

	assert_int_equal(winnow_comm_create(config, &comm), WINNOW_ERR_INVALID);
	assert_null(comm);
	assert_null(strchr(winnow_last_error(), '\n'));
	if (strstr(winnow_last_error(), text) == NULL)
		fail_msg("'%s' does not say '%s'", winnow_last_error(), text);
}

/* A configuration of which only a variable can be wrong. */
static struct winnow_config good(void)
{
	struct winnow_config config;

	setenv("WINNOW_AGGREGATORS", "nowhere", 1); /* the next thing that is wrong */
	if (getenv("WINNOW_INSECURE_NO_KEY") == NULL)
		setenv("WINNOW_INSECURE_NO_KEY", "1", 1);
	winnow_config_init(&config);
	return config;
}

static void refused_with(const char *name, const char *value, const char *text)
{
	struct winnow_config config;

	setenv(name, value, 1);
	config = good();
	refused(&config, text);
	clean(NULL);
}

TEST_BETWEEN(flags, clean, NULL)
{
	assert_int_equal(with("WINNOW_JOB", "j").insecure_no_key, 0);
	assert_int_equal(with("WINNOW_JOB", "j").multicast, 1);
	assert_int_equal(with("WINNOW_INSECURE_NO_KEY", "yes").insecure_no_key, 1);
	assert_int_equal(with("WINNOW_INSECURE_NO_KEY", "no").insecure_no_key, 0);
	assert_int_equal(with("WINNOW_MULTICAST", "off").multicast, 0);
	clean(NULL);
	refused_with("WINNOW_INSECURE_NO_KEY", "no", "no job key");
	refused_with("WINNOW_INSECURE_NO_KEY", "nope",
	             "WINNOW_INSECURE_NO_KEY is 'nope': want yes or no");
	refused_with("WINNOW_MULTICAST", "2", "WINNOW_MULTICAST is '2': want yes or no");
}

TEST_BETWEEN(numbers, clean, NULL)
{
	static const struct {
		const char *name, *value, *text;
	} wrong[] = {
		{"RANK", "-1", "RANK is '-1': want a whole number"},
		{"RANK", "one", "RANK is 'one'"},
		{"WORLD_SIZE", "4294967297", "WORLD_SIZE is 4294967297: want 1 to 4096"},
		{"WORLD_SIZE", "4294967295", "WORLD_SIZE is 4294967295: want 1 to 4096"},
		{"WINNOW_BLOCK", "70000", "WINNOW_BLOCK is 70000: want 1 to 65536"},
		{"WINNOW_BLOCK", "1e3", "WINNOW_BLOCK is '1e3'"},
		{"WINNOW_BLOCK", "0x10", "WINNOW_BLOCK is '0x10'"},
		{"WINNOW_BLOCK", "6\n4", "WINNOW_BLOCK is '6?4'"},
		{"WINNOW_THREADS", "0", "WINNOW_THREADS is 0: want 1 to"},
		{"WINNOW_SILENCE_MS", "10s",
	         "WINNOW_SILENCE_MS is '10s': want a whole number of milliseconds"},
		{"WINNOW_SILENCE", "ten", "WINNOW_SILENCE is 'ten': want a time such as 10s"},
		{"WINNOW_SILENCE", "50ms", "WINNOW_SILENCE is 50ms: want 0.1s to 86400s"},
		{"WINNOW_TIMEOUT_MS", "99", "WINNOW_TIMEOUT_MS is 99: want 100 to 864000000"},
		{"WINNOW_JOIN_TIMEOUT_MS", "1", "WINNOW_JOIN_TIMEOUT_MS is 1: want 100 to"},
		{"WINNOW_PAYLOAD", "100", "WINNOW_PAYLOAD is 100: want 584 to 65000, or 0"},
		{"WINNOW_PAYLOAD", "99999999999999999999", "WINNOW_PAYLOAD is '9999"},
		{"WINNOW_WIRE", "f16",
	         "WINNOW_WIRE is 'f16': want auto, f32, fixed32, fixed16, fixed8 or bf16"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		refused_with(wrong[i].name, wrong[i].value, wrong[i].text);
	assert_int_equal(with("RANK", "3").rank, 3);
	/* As a variable made of a file ends. */
	assert_int_equal(with("RANK", "3\n").rank, 3);
	assert_string_equal(with("WINNOW_JOB", "train\r\n").job, "train");
	assert_string_equal(with("WINNOW_AGGREGATORS", " a:1, b:2\n").aggregators, "a:1, b:2");
	/* Times have a unit, or _MS in the name; what is empty is not set. */
	assert_int_equal(with("WINNOW_SILENCE", "2.5s").silence_ms, 2500);
	assert_int_equal(with("WINNOW_SILENCE_MS", "2500").silence_ms, 2500);
	assert_int_equal(with("WINNOW_TIMEOUT", "2m").timeout_ms, 120000);
	assert_int_equal(with("WINNOW_BLOCK", "").block, 256);
	assert_int_equal(with("WINNOW_PAYLOAD", "2K").payload, 2048);
	assert_null(with("WINNOW_KEY_FILE", "").key_file);
	assert_int_equal(with("WINNOW_PAYLOAD", "0").payload, 0);
	assert_int_equal(with("WINNOW_BLOCK", "65536").block, 65536);
	clean(NULL);
	refused_with("WINNOW_PAYLOAD", "0", "is not HOST:PORT");
}

/* What the caller says counts for more than a variable that is wrong. */
TEST_BETWEEN(callers_word, clean, NULL)
{
	struct winnow_config config;

	setenv("WINNOW_BLOCK", "many", 1);
	setenv("WINNOW_MULTICAST", "?", 1);
	config = good();
	config.block = 64;
	config.multicast = 0;
	refused(&config, "is not HOST:PORT");
	config.block = 0;
	refused(&config, "block is 0: want 1 to 65536");
}

/* Which of the two counts nobody would know. */
TEST_BETWEEN(two_keys, clean, NULL)
{
	struct winnow_config config;

	setenv("WINNOW_KEY_FILE", "/nowhere", 1);
	config = good();
	config.insecure_no_key = 0;
	config.key = "a-key-of-the-program's";
	refused(&config, "there is a key and a key file (/nowhere)");
	config.key_file = NULL;
	refused(&config, "is not HOST:PORT");
	clean(NULL);
}

TEST_BETWEEN(file, clean, clean)
{
	static const struct {
		const char *line, *text;
	} wrong[] = {
		{"multicast = maybe", "is 'maybe': want yes or no"},
		{"block = 4 rows", "is '4 rows': want a whole number"},
		{"block = 70000", ", line 2: block is 70000: want"},
		{"wire = f8", "is 'f8': want auto, f32, fixed32, fixed16, fixed8 or bf16"},
		{"rank = 3", "no option "},
		{"silence_ms = 1", "silence_ms; "},
		{"nothing", "line 2"},
	};
	char path[] = "/tmp/winnow-test-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	setenv("WINNOW_CONFIG", path, 1);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct winnow_config config;

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
		dprintf(fd, "[winnow]\n%s\n", wrong[i].line);
		config = good();
		refused(&config, wrong[i].text);
	}
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	dprintf(fd, "[winnow]\nmulticast = no\nblock = 64\nsilence-ms = 500\ntimeout = "
	            "3s\n[bench]\nx = y\n");
	assert_int_equal(with("WINNOW_JOB", "j").multicast, 0);
	assert_int_equal(with("WINNOW_JOB", "j").block, 64);
	assert_int_equal(with("WINNOW_JOB", "j").silence_ms, 500);
	assert_int_equal(with("WINNOW_JOB", "j").timeout_ms, 3000);
	/* The environment counts for more. */
	assert_int_equal(with("WINNOW_BLOCK", "32").block, 32);
	assert_int_equal(with("WINNOW_MULTICAST", "on").multicast, 1);
	close(fd);
	unlink(path);
}
