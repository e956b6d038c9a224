// SPDX-License-Identifier: BSD-3-Clause
/* tune_plot.c - draws time against block size with gnuplot, which reads a script on stdin */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/table.h"
#include "client/cli/tune/tune.h"

/* The colours of Okabe and Ito can be told apart by the colour-blind. */
#define LOOK                                                                                       \
	"set border 3\nset tics nomirror\nset grid ytics lc rgb '#dddddd'\nset key bottom center " \
	"outside horizontal\nset logscale x 2\nset xlabel 'block (elements)'\nset ylabel 'ms an "  \
	"operation'\nset yrange [0:*]\n"
#define CURVES                                                                                     \
	"plot $rows using 1:2 with linespoints pt 7 ps 0.5 lw 2 lc rgb '#0072B2' title "           \
	"'predicted', $rows using 1:3 with lines dt 2 lc rgb '#009E73' title 'sending', $rows "    \
	"using 1:4 with lines dt 2 lc rgb '#CC79A7' title 'receiving', $best using 1:2 with "      \
	"points pt 7 ps 1.2 lc rgb '#0072B2' notitle"

static void script_write(const struct tune *tune, const char *terminal, FILE *out)
{
	const struct tune_row *best = &tune->rows[tune->best];
	double most_s = 0;

	fprintf(out, "set terminal %s size 640,400 background rgb 'white'\n" LOOK, terminal);
	fprintf(out, "set title '%u workers at %sbit/s: best block %u (d %.3f, U %.3f)'\n",
	        tune->net.world, text_si(tune->net.rate * 8, CELL), best->block, best->d,
	        best->united);
	fprintf(out, "$best << END\n%u %.9g\nEND\n$rows << END\n", best->block, best->time_s * 1e3);
	for (uint32_t i = 0; i < tune->block_count; i++) {
		const struct tune_row *row = &tune->rows[i];

		fprintf(out, "%u %.9g %.9g %.9g\n", row->block, row->time_s * 1e3,
		        (double)predict_bytes(&row->sent) / tune->net.rate * 1e3,
		        (double)predict_bytes(&row->received) / tune->net.rate * 1e3);
		most_s = row->time_s > most_s ? row->time_s : most_s;
	}
	fprintf(out, "END\n" CURVES);
	if (tune->ring_s < 4 * most_s) /* A higher line would flatten all other curves. */
		fprintf(out, ", %.9g with lines dt 2 lc rgb '#999999' title 'a ring'",
		        tune->ring_s * 1e3);
	fprintf(out, "\n");
}

/* Returns gnuplot's exit status, or -errno if it did not start. */
static int gnuplot_run(int in, int out)
{
	char name[] = "gnuplot", *argv[] = {name, NULL};
	posix_spawn_file_actions_t files;
	int status = 0, err;
	pid_t child;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	err = posix_spawnp(&child, name, &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (err != 0)
		return -err;
	/* waitpid() fails if our parent had SIGCHLD ignored. */
	if (waitpid(child, &status, 0) != child)
		return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int tune_plot(const struct tune *tune, const char *path)
{
	bool png = strcmp(path + strlen(path) - 4, ".png") == 0; /* Otherwise .svg. */
	FILE *script = tmpfile();
	char part[PATH_MAX + 8]; /* Beside `path`; open() fails if it is too long. */
	int out, status;

	if (script != NULL)
		script_write(tune, png ? "png" : "svg", script);
	if (script == NULL || fflush(script) != 0 || ferror(script))
		return cli_error(1, "cannot write a temporary file: %s", strerror(errno));
	rewind(script);
	snprintf(part, sizeof(part), "%s.part", path);
	out = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (out < 0)
		return cli_error(1, "cannot write %s: %s", path, strerror(errno));
	status = gnuplot_run(fileno(script), out);
	fclose(script);
	close(out);
	if (status == 0 && rename(part, path) != 0)
		status = -errno;
	if (status == 0)
		return 0;
	unlink(part);
	if (status == -ENOENT)
		return cli_error(1, "cannot draw %s without gnuplot: apt-get install gnuplot-nox",
		                 path);
	if (status < 0)
		return cli_error(1, "cannot draw %s: %s", path, strerror(-status));
	return cli_error(1, "cannot draw %s: gnuplot failed with exit status %d", path, status);
}
