// SPDX-License-Identifier: BSD-3-Clause
/* test_options.c - names and absurd values, which source wins, and what is printed */

#include "tests/unit/test_options.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *operands[2];
static uint32_t operand_count;
static char file_path[64];

static void write_file(const char *contents)
{
	FILE *file = fopen(file_path, "we");

	assert_non_null(file);
	fputs(contents, file);
	fclose(file);
}

/* A file that says so is refused. */
static void assert_file_wrong(const char *contents, const char *reason)
{
	write_file(contents);
	assert_wrong(READ("--config", file_path), reason);
}

static int file_make(void **state)
{
	int fd;
	snprintf(file_path, sizeof(file_path), "/tmp/winnow-test-XXXXXX");
	fd = mkstemp(file_path);
	return fd < 0 || close(fd) != 0;
}

static int file_remove(void **state)
{
	return unlink(file_path);
}

/* ---- names ---- */

TEST(aliases)
{
	GIVES(out.count == 7 && out.flag, "-c", "7", "-t--x", "--flag");
	assert_string_equal(out.text, "--x");
	GIVES(out.count == 8, "-c8");
	GIVES(out.count == 9, "-c", "7", "--op-count=9");
	assert_wrong(READ("-c"), "-c wants a value: N");
	assert_wrong(READ("-c=7"), "-c is '=7': want a whole number");
	assert_wrong(READ("-c", "0"), "-c is 0: want 1 to 1000");
	assert_wrong(READ("-"), "'-' is not an option");
	GIVES(out.count == 11, "-cc", "11");
	GIVES(out.count == 12, "--counts", "12");
	GIVES(out.count == 13, "--counts=13");
	assert_wrong(READ("--counts"), "--counts wants a value: N");
	assert_wrong(READ("--counts=x"), "--counts is 'x': want a whole number");
	assert_wrong(READ("--countsx=1"), "no option --countsx");
	assert_int_equal(READ("--help"), 1);
	assert_non_null(strstr(said, "a count; also -cc, -c, --counts [4]\n"));
}

/* ---- wrong usage ---- */

TEST(absurd)
{
	static const char *const counts[] = {
		"", "1.0", "1e2", "0x10", "1K", "-1", "4294967296000000000000", "one"};
	const char *const others[] = {"--size=1T", "--rate=1B", "--time=1h", "--real=1K",
	                              "--flag=2",  "--time=",   "--real=nan"};
	char long_name[300] = "--", argument[64];

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		snprintf(argument, sizeof(argument), "--op-count=%s", counts[i]);
		assert_wrong(READ(argument), "want a whole number");
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_wrong(READ(others[i]), "': want ");
	assert_wrong(READ("--op-count"), "--op-count wants a value: N");
	assert_wrong(READ("--op-cuont", "1"), "did you mean --op-count?");
	assert_wrong(READ("--tmie=1"), "did you mean --time?");
	assert_wrong(READ("--timexy=1"), "did you mean --time?");
	assert_wrong(READ("--ti=1"), "did you mean --time?");
	assert_wrong(READ("--something-else"), "see prog --help");
	assert_wrong(READ("op-count=1"), "'op-count=1' is not an option");
	assert_wrong(READ("--"), "'--' is not an option");
	assert_wrong(READ("-x"), "'-x' is not an option");
	memset(long_name + 2, 'x', sizeof(long_name) - 3);
	assert_wrong(READ(long_name), "no option --xxx");
}

/* Help leaves out the group that is rare, and says so. */
TEST(help)
{
	assert_int_equal(READ("--help"), 1);
	assert_non_null(strstr(said, " a number [0.5]\nkeys:\n"));
	assert_non_null(strstr(said, "\n\n--help-all also shows: flags, waiting\n\nexamples:\n"));
	assert_int_equal(READ("--help-all"), 1);
	assert_null(strstr(said, "--help-all"));
	assert_non_null(strstr(said, "usage: prog [...]\n\nAbout it."));
	assert_non_null(strstr(said, "--op-count N"));
	assert_non_null(strstr(said, "a count; also -cc, -c, --counts [4]"));
	assert_non_null(strstr(said, "examples:\n  prog --flag\n"));
	assert_non_null(strstr(said, " a text; also -t\ncounts:\n  --op-count N "));
	assert_non_null(strstr(said, " a number [0.5]\nflags:\n  --flag "));
	assert_non_null(strstr(said, "each TIME; command line only [0s]\n"));
	assert_int_equal(READ("-h"), 1);
	assert_int_equal(READ("--version"), 1);
	assert_string_equal(said, "prog " WINNOW_VERSION "\n");
	assert_int_equal(READ("--op-count=0", "--help"), 2);
}

/* ---- sources ---- */

/* File, environment, arguments: each wins over those before it. */
TEST(precedence)
{
	write_file("; comment\nop-count = 10\n[prog]\nsize = 1M\ntime = 20s\ntext = a b ; c\n"
	           "[bench]\nop-count = absurd\nunknown = 1\n");
	GIVES(out.count == 4 && out.size == 65536 && out.rate == 1000000000, "--flag");
	GIVES(out.count == 10 && out.size == 1 << 20 && out.time == 20000000, "--config",
	      file_path);
	assert_string_equal(out.text, "a b");
	setenv("WINNOW_OP_COUNT", "20", 1);
	setenv("OTHER_COUNT", "30", 1);
	GIVES(out.count == 20 && out.size == 2 << 20 && out.time == 20000000, "--config", file_path,
	      "--size=2M");
	GIVES(out.count == 40, "--config", file_path, "--op-count=40");
	unsetenv("WINNOW_OP_COUNT");
	GIVES(out.count == 30, "--flag");
	setenv("WINNOW_CONFIG", file_path, 1);
	setenv("OTHER_COUNT", "", 1); /* as if it were not set */
	GIVES(out.count == 10, "--flag");
	unsetenv("OTHER_COUNT");
	unsetenv("WINNOW_CONFIG");
}

TEST(sources_wrong)
{
	setenv("OTHER_COUNT", "x", 1);
	assert_wrong(READ("--flag"), "OTHER_COUNT is 'x'");
	setenv("WINNOW_OP_COUNT", "0", 1);
	assert_wrong(READ("--flag"), "WINNOW_OP_COUNT is 0");
	unsetenv("OTHER_COUNT");
	unsetenv("WINNOW_OP_COUNT");
	assert_wrong(READ("--config=/nowhere/file"), "cannot read /nowhere/file: No such file");
	assert_file_wrong("op-count = 1\nno equals sign\n", "line 2: want \"name = value\"");
	assert_file_wrong("[prog]\nop-cont = 1\nsize = absurd\ntime = 0\n",
	                  ", line 2: no option op-cont; did you mean op-count?\n");
	assert_non_null(strstr(said, file_path));
	assert_file_wrong("[prog]\nflag = 1\nsize = absurd\nop-cont = 1\n",
	                  ", line 3: size is 'absurd': want");
	assert_file_wrong("time = 0\n", "want 0.001s to 60s");
}

/* One that has no variable of its own name. */
TEST(other_variable)
{
	setenv("WINNOW_ELSE", "absurd", 1);
	setenv("WINNOW_OTHER", "7", 1);
	GIVES(out.other == 7, "--flag");
	assert_int_equal(READ("--dump-config"), 1);
	assert_non_null(strstr(said, "; WINNOW_OTHER\n"));
	assert_int_equal(READ("--help"), 1);
	assert_non_null(strstr(said, "another; in the environment WINNOW_OTHER\n"));
	unsetenv("WINNOW_ELSE");
	unsetenv("WINNOW_OTHER");
}

/* What no variable and no file may say. */
TEST(argument_alone)
{
	setenv("WINNOW_ONCE", "1", 1);
	assert_int_equal(READ("--flag"), 0);
	assert_false(out.once);
	GIVES(out.once, "--once");
	unsetenv("WINNOW_ONCE");
	assert_file_wrong("[prog]\nonce = yes\n",
	                  ", line 2: once is allowed on the command line only");
	assert_int_equal(READ("--once", "--dump-config"), 1);
	assert_non_null(strstr(said, "\n; once = 1"));
	assert_int_equal(READ("--help"), 1);
	assert_non_null(strstr(said, "not always; command line only\n"));
}

/* What would go unheard, or never end. */
TEST(files_wrong)
{
	char folder[] = "/tmp/winnow-test-XXXXXX", pipe[sizeof(folder) + 2];

	assert_file_wrong("[porg]\nop-count = 7\n",
	                  ", line 1: no section [porg]; did you mean [prog]?");
	assert_file_wrong("[benhc]\nsize = 1G\n", "no section [benhc]; did you mean [bench]?");
	assert_file_wrong("[prog]\nop-count = 7\n[something else]\nsize = 1G\n",
	                  "no section [something else]; this program reads [prog]");
	assert_file_wrong("[prog\nop-count = 7\n", ", line 1: want \"name = value\" or \"[sec");
	assert_file_wrong("[prog] op-count = 7\n", ", line 1: want \"name = value\" or \"[sec");
	assert_file_wrong("[prog]\n = 7\n", ", line 2: want \"name = value\" or \"[sec");
	assert_file_wrong("[prog]\n:", ", line 2: want \"name = value\" or \"[sec");
	assert_file_wrong("[prog]\ntext = a\n  op-count\n", ", line 3: want \"name = value\"");
	assert_wrong(READ("--config=/dev/zero"), "it is a device, not a regular file");
	assert_non_null(mkdtemp(folder));
	assert_wrong(READ("--config", folder), "it is a directory, not a regular file");
	snprintf(pipe, sizeof(pipe), "%s/p", folder);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_wrong(READ("--config", pipe), "it is a pipe, not a regular file");
	assert_int_equal(unlink(pipe), 0);
	assert_int_equal(rmdir(folder), 0);
	assert_wrong(READ("--config=/dev/zero"), "it is a device, not a regular file");
	assert_int_equal(truncate(file_path, (off_t)16 << 20), 0);
	assert_wrong(READ("--config", file_path), "it has a zero byte");
	assert_int_equal(truncate(file_path, ((off_t)16 << 20) + 1), 0);
	assert_wrong(READ("--config", file_path), "it is larger than 16 MB");
}

/* What a line may look like, and how long it may be. */
TEST(file_lines)
{
	char line[1000], text[1100];

	assert_file_wrong(
		"# one\n; two\n\n  [prog] ; three\n\top-count: 7 ; four\n text =a;b # c ;d\r\n"
		"size = 16\n  rate = 1K\nonly-a-comment",
		", line 9: want \"name = value\"");
	assert_true(out.count == 7 && out.size == 16 && out.rate == 1000);
	assert_string_equal(out.text, "a;b # c");
	memset(line, 'a', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	snprintf(text, sizeof(text), "[prog]\ntext = %s\nop-count = 7\n", line);
	write_file(text);
	GIVES(out.count == 7, "--config", file_path);
	assert_string_equal(out.text, line);
	write_file("[prog] # another comment\nop-count = 7");
	GIVES(out.count == 7, "--config", file_path);
}

/* A name that comes twice: one of the two would not hold, and nobody would see which. */
TEST(twice)
{
	assert_file_wrong("[prog]\nop-count = 7\nsize = 1M\nop-count = 8\n",
	                  ", line 4: the file sets op-count twice");
	assert_file_wrong("[prog]\nwait = 2\n[bench]\nwait = 3\n[prog]\nwait-ms = 300\n",
	                  ", line 6: the file sets wait twice");
	/* Where a stronger source holds as well. */
	assert_wrong(READ("--config", file_path, "--wait=1"), ", line 6: the file sets wait twice");
	write_file("[prog]\nop-count = 7\n[bench]\nop-count = 8\n");
	assert_int_equal(READ("--config", file_path), 0); /* the other is another program's */
	assert_int_equal(out.count, 7);
}

TEST(encodings)
{
	static const char sixteen[] = "[\0p\0]\0\n";
	FILE *file;

	write_file("\xef\xbb\xbf[prog]\r\nop-count = 7\r\n");
	GIVES(out.count == 7, "--config", file_path);
	assert_file_wrong("\xff\xfe[", "it is in UTF-16, save it as UTF-8");
	assert_file_wrong("\xfe\xff[", "it is in UTF-16, save it as UTF-8");
	file = fopen(file_path, "we");
	assert_non_null(file);
	fwrite(sixteen, 1, sizeof(sixteen) - 1, file);
	fclose(file);
	assert_wrong(READ("--config", file_path), "it has a zero byte; if it is in UTF-16");
}

/* ---- blanks and line ends ---- */

TEST(surroundings)
{
	char first[80];
	struct why why;

	write_file("");
	setenv("WINNOW_OP_COUNT", "20\n", 1);
	setenv("WINNOW_TEXT", " a\tb \r\n", 1);
	setenv("WINNOW_FLAG", "yes\n", 1);
	setenv("WINNOW_CHOICE", "\tsecond ", 1);
	setenv("WINNOW_SECRET", " pass\n", 1);                 /* job_keys.h's */
	assert_wrong(READ("--size= 1M "), "--size is ' 1M '"); /* a shell has put them there */
	GIVES(out.count == 20, "--size=1M", "--config", file_path);
	assert_string_equal(out.text, "a\tb");
	assert_true(out.flag);
	assert_int_equal(out.choice, SECOND);
	assert_int_equal(out.size, 1 << 20);
	assert_string_equal(out.secret, " pass\n");
	/* A library's text is kept, once. */
	assert_int_equal(option_env(&list[1], &why), 0);
	assert_string_equal(out.text, "a\tb");
	snprintf(first, sizeof(first), "%p", (const void *)out.text);
	assert_int_equal(option_env(&list[1], &why), 0);
	snprintf(said, sizeof(said), "%p", (const void *)out.text);
	assert_string_equal(first, said);
	/* Nothing but blanks is nothing. */
	setenv("WINNOW_OP_COUNT", "\n", 1);
	setenv("WINNOW_FLAG", "\n", 1);
	setenv("WINNOW_TEXT", " ", 1);
	GIVES(out.count == 4, "--config", file_path);
	assert_false(out.flag);
	assert_null(out.text);
	/* What is wrong is one line, whatever it quotes. */
	setenv("WINNOW_OP_COUNT", "2\n0\x1b[2J", 1);
	assert_wrong(READ("--config", file_path), "WINNOW_OP_COUNT is '2?0?[2J': want a whole");
	assert_wrong(READ("--no\nsuch=1"), "no option --no?such");
	unsetenv("WINNOW_OP_COUNT");
	unsetenv("WINNOW_FLAG");
	unsetenv("WINNOW_TEXT");
	unsetenv("WINNOW_CHOICE");
	unsetenv("WINNOW_SECRET");
}

/* ---- what --dump-config prints ---- */

static void assert_dumped(const char *name, const char *value, const char *origin)
{
	char left[100], want[300];

	snprintf(left, sizeof(left), "%s = %s", name, value);
	snprintf(want, sizeof(want), "\n%-40s ; %s\n", left, origin);
	if (strstr(said, want) == NULL)
		fail_msg("want '%s' in %s", want, said);
}

TEST(dump)
{
	char dumped[sizeof(said)];

	write_file("[prog]\nsize = 1M\ntext = a b\nop-count = 9\n");
	setenv("WINNOW_OP_COUNT", "20", 1);
	setenv("WINNOW_SECRET", "pass=word", 1);
	assert_int_equal(READ("--dump-config", "--config", file_path, "--flag"), 1);
	assert_int_equal(strncmp(said, "[prog]\n", 7), 0);
	assert_dumped("; config", file_path, "command line");
	assert_dumped("text", "a b", file_path);
	assert_dumped("op-count", "20", "WINNOW_OP_COUNT");
	assert_dumped("size", "1M", file_path);
	assert_dumped("rate", "1G", "default");
	assert_dumped("flag", "1", "command line");
	assert_dumped("; secret", "(hidden)", "WINNOW_SECRET");
	assert_null(strstr(said, "pass=word"));
	unsetenv("WINNOW_OP_COUNT");
	unsetenv("WINNOW_SECRET");
	/* It is a file that says the same. */
	strcpy(dumped, said);
	write_file(dumped);
	GIVES(out.count == 20 && out.size == 1 << 20 && out.flag && out.time == 10000000,
	      "--config", file_path);
	assert_string_equal(out.text, "a b");
	assert_null(out.secret);
	assert_int_equal(READ("--dump-config"), 1);
	assert_dumped("; text", "", "not set");
	/* What is wrong is said, and nothing is dumped. */
	assert_wrong(READ("--dump-config", "--op-count=0"), "want 1 to 1000");
}

/* Two ways to say one thing: the command line's, then the environment's, then the file's. */
TEST(keys)
{
	GIVES(out.key != NULL && out.key_file == NULL, "--key", "k");
	setenv("WINNOW_KEY_FILE", "f", 1);
	GIVES(strcmp(out.key, "k") == 0, "--key", "k");
	assert_null(out.key_file);
	assert_int_equal(READ("--key", "k", "--dump-config"), 1);
	assert_dumped("; key-file", "", "not used: key overrides it");
	GIVES(strcmp(out.key_file, "f") == 0, "--flag");
	write_file("[prog]\nkey = k\n");
	GIVES(strcmp(out.key_file, "f") == 0, "--config", file_path);
	assert_null(out.key);
	setenv("WINNOW_KEY", "k", 1);
	assert_wrong(READ("--flag"), "key-file (WINNOW_KEY_FILE) contradicts key (WINNOW_KEY)");
	GIVES(strcmp(out.key_file, "g") == 0, "--key-file", "g");
	assert_null(out.key);
	unsetenv("WINNOW_KEY_FILE");
	write_file("[prog]\nkey-file = f\n");
	GIVES(strcmp(out.key, "k") == 0, "--config", file_path);
	assert_null(out.key_file);
	unsetenv("WINNOW_KEY");
	assert_file_wrong("[prog]\nkey-file = f\nkey = k\n", ": give one of them");
	assert_wrong(READ("--key=k", "--key-file=f"), "key-file (command line) contradicts key");
}

TEST(operands)
{
	assert_wrong(READ("a:1"), "'a:1' is not an option");
	options.operands = operands;
	options.operand_count = &operand_count;
	options.operand_max = 2;
	assert_int_equal(READ("a:1", "--op-count", "7", "b:2"), 0);
	assert_int_equal(operand_count, 2);
	assert_string_equal(operands[0], "a:1");
	assert_string_equal(operands[1], "b:2");
	assert_int_equal(READ("--flag"), 0);
	assert_int_equal(operand_count, 0);
	write_file("flag = 1\n"); /* the arguments are read twice */
	assert_int_equal(READ("a:1", "b:2", "--config", file_path), 0);
	assert_int_equal(operand_count, 2);
	assert_wrong(READ("a:1", "b:2", "c:3"), "at most 2 arguments");
	assert_wrong(READ("-x"), "'-x' is not an option");
	options.operand_max = 0;
}

/* A word that could not be the value of an option that needs none is no value of it. */
TEST(value_left_out)
{
	GIVES(out.again == 1000000, "--again");
	GIVES(out.again == 5000000, "--again", "5");
	GIVES(out.again == 20000, "--again=20ms");
	GIVES(out.again == 1000000, "--again", "--flag");
	assert_true(out.flag);
	options.operands = operands;
	options.operand_count = &operand_count;
	options.operand_max = 2;
	GIVES(out.again == 1000000, "--again", "10.0.0.1:9555");
	assert_int_equal(operand_count, 1);
	assert_string_equal(operands[0], "10.0.0.1:9555");
	options.operand_max = 0;
	assert_wrong(READ("--again", "2m"), "--again is 2m: want 0.001s to 60s");
	assert_wrong(READ("--again="), "--again is ''");
}

TEST(command)
{
	int at;

	options.command_at = &at;
	assert_int_equal(READ("-c", "7", "python3", "--help", "-c", "8"), 0);
	assert_int_equal(at, 3);
	assert_int_equal(out.count, 7);
	assert_int_equal(READ("--flag", "--", "--flag", "--what"), 0);
	assert_int_equal(at, 3);
	assert_int_equal(READ("--op-count=3", "python3", "--", "x"), 0);
	assert_int_equal(at, 2);
	assert_int_equal(READ("--flag"), 0);
	assert_int_equal(at, 2); /* of 2 arguments: there is none */
	assert_int_equal(READ("--flag", "--"), 0);
	assert_int_equal(at, 3);
	assert_int_equal(READ("--help", "python3"), 1);
	assert_wrong(READ("--what", "python3"), "no option --what");
	assert_wrong(READ("-x", "python3"), "'-x' is not an option");
	options.command_at = NULL;
}

int main(void)
{
	return unit_run(file_make, file_remove);
}
