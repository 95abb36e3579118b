/* SPDX-License-Identifier: MIT */
/*
 * crc32sum FILE...: the CRC-32 sum of each file, taken by the device, as crc32(1) prints it for
 * several files.
 *
 *	file scope ─┬─ chunk scope: read ──► copy in ──► kernel ──► copy out ──► fold
 *	            ├─ chunk scope: read ──► copy in ──► ...
 *	            └─ ...          worker   ╰──────── the device ────────╯      main thread
 *
 * The main thread owns a loop, and all continuations run there: what they share needs no lock. At
 * most IN_FLIGHT chunks are on their way, of one file or of many, and hold all the memory there is.
 * Each has a scope: when that has ended, nothing on the device uses its buffers any more, whatever
 * went wrong.
 *
 * A file is read to its end, wherever that turns out to be. What lies a whole chunk before the end
 * seen at first is read by several workers at once; the rest, and pipes, by one after the other.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
	CHUNK = 4 << 20,       /* bytes */
	FIRST_CHUNK = 4 << 14, /* of what does not say how long it is (arbitrary) */
	IN_FLIGHT = 16,	       /* chunks: 64 MiB here, and as much on the device */
	READERS = 8,	       /* workers */
	SHRANK = -1,	       /* errors beside those of errno */
	NO_PINNED = -2,
};

struct job {
	cuf_runtime *rt;
	cuf_scope *scope;
	cuf_promise *over; /* kept when all is printed, broken by the device; then NULL */
	struct file *files, *ready, *failed;
	size_t n_files, n_started, n_printed;
	unsigned in_flight; /* chunks */
	uint64_t bytes;	    /* summed so far */
	bool progress_shown;
	int exit_status;
};

struct file {
	struct job *job;
	const char *name;
	struct file *next; /* of job->ready: those of which a chunk may be taken */
	cuf_scope *scope;
	struct chunk *first, **last; /* not folded yet */
	off_t offset, size;	     /* of the next chunk; of a regular file, as opened */
	unsigned in_flight;	     /* chunks */
	uint32_t crc;
	int fd, error;
	bool regular, at_end, ended;
};

struct chunk {
	struct file *file;
	struct chunk *next; /* in the order of the file */
	off_t offset;
	size_t room, bytes;  /* to read, and read */
	unsigned char *data; /* pinned, as are the sums of its blocks */
	uint32_t *sums, crc;
	bool alone; /* where the next one begins is known once this is read */
	bool summed, ended;
};

static void take_chunks(struct job *j);
static void end_file(struct file *f);

static void out_of_memory(void)
{
	fputs("crc32sum: out of memory\n", stderr);
	exit(2);
}

/* ---- reading: on workers ---- */

static bool open_file(struct file *f)
{
	bool is_stdin = strcmp(f->name, "-") == 0;
	struct stat st;

	f->fd = is_stdin ? STDIN_FILENO : open(f->name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (f->fd < 0 || fstat(f->fd, &st))
		return false;
	/* Standard input is read from where it stands, and leaves it at its end. */
	f->regular = S_ISREG(st.st_mode) && !is_stdin;
	if (f->regular) {
		f->size = st.st_size;
		posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	}
	return true;
}

static void close_file(void *arg)
{
	struct file *f = arg;

	if (f->fd > STDERR_FILENO)
		close(f->fd);
}

/* What is left and a byte more, to see the end; of unknown length, as much as came before. */
static size_t choose_room(const struct file *f, off_t offset)
{
	off_t room = f->size - offset + 1 > offset ? f->size - offset + 1 : offset;

	return room < FIRST_CHUNK ? FIRST_CHUNK : room < CHUNK ? (size_t)room : CHUNK;
}

static size_t bytes_of_sums(size_t bytes)
{
	return (bytes + CRC32_BLOCK - 1) / CRC32_BLOCK * sizeof(uint32_t);
}

static ssize_t read_some(const struct file *f, unsigned char *to, size_t bytes, off_t offset)
{
	ssize_t n;

	for (;;) {
		n = f->regular ? pread(f->fd, to, bytes, offset) : read(f->fd, to, bytes);
		if (n < 0 && errno == EAGAIN)
			poll(&(struct pollfd){ .fd = f->fd, .events = POLLIN }, 1, -1);
		else if (n >= 0 || errno != EINTR)
			return n;
	}
}

static cuf_future *read_chunk(cuf_scope *s, cuf_future *in, void *arg)
{
	struct chunk *c = arg;
	struct file *f = c->file;
	ssize_t n = 1;

	(void)in;
	if (f->fd < 0 && !open_file(f))
		return cuf_failed(s, errno, "cannot open %s", f->name);
	c->room = choose_room(f, c->offset);
	c->data = cuf_pinned_get(f->job->rt, c->room);
	c->sums = cuf_pinned_get(f->job->rt, bytes_of_sums(c->room));
	if (!c->data || !c->sums) {
		if (cuf_runtime_device_status(f->job->rt, 0))
			return cuf_alloc(s, 1); /* what is asked of a lost device says why */
		return cuf_failed(s, NO_PINNED, "no page-locked memory");
	}
	for (; c->bytes < c->room && n > 0; c->bytes += (size_t)n) {
		n = read_some(f, c->data + c->bytes, c->room - c->bytes,
			      c->offset + (off_t)c->bytes);
		if (n < 0)
			return cuf_failed(s, errno, "cannot read %s", f->name);
	}
	if (!c->alone && c->bytes < c->room)
		return cuf_failed(s, SHRANK, "%s shrank", f->name);
	return NULL;
}

/* ---- a chunk: on the main thread, from here on ---- */

static cuf_future *fold_sums(cuf_scope *s, cuf_future *in, void *arg)
{
	struct chunk *c = arg;
	size_t left = c->bytes;

	(void)s, (void)in;
	for (const uint32_t *sum = c->sums; left > 0; sum++) {
		size_t block = left < CRC32_BLOCK ? left : CRC32_BLOCK;

		c->crc = (uint32_t)crc32_combine(c->crc, *sum, (z_off_t)block);
		left -= block;
	}
	c->summed = true;
	return NULL;
}

static cuf_future *sum_chunk(cuf_scope *s, cuf_future *in, void *arg)
{
	struct chunk *c = arg;
	struct file *f = c->file;
	size_t bytes = c->bytes, block = CRC32_BLOCK;

	if (c->alone) {
		f->offset = c->offset + (off_t)bytes;
		f->at_end |= bytes < c->room;
		if (!f->at_end) {
			f->next = f->job->ready;
			f->job->ready = f;
			take_chunks(f->job);
		}
	}
	if (bytes == 0)
		return fold_sums(s, in, c);

	cuf_future *memory = cuf_alloc(s, c->room), *few = cuf_alloc(s, bytes_of_sums(c->room));
	void *data = cuf_address(memory);
	uint32_t *sums = cuf_address(few);

	if (!data || !sums)
		return cuf_all(s, memory, few); /* says why */

	cuf_future *to = cuf_copy(s, data, c->data, bytes, .take = CUF_AFTER(memory));
	cuf_future *k = cuf_launch(s, &crc32_blocks, crc32_grid(bytes, block),
				   CUF_ARGS((const void *)data, bytes, block, sums),
				   .take = CUF_AFTER(to, few));
	cuf_future *from = cuf_copy(s, c->sums, sums, bytes_of_sums(bytes), .take = CUF_AFTER(k));

	return cuf_then(s, from, fold_sums, c);
}

/* The device failed, or memory. What is left in flight may take long to end: a pipe is read. */
static void stop(struct file *f, cuf_future *why)
{
	struct job *j = f->job;

	if (!j->over)
		return;
	j->failed = f;
	cuf_promise_follow(j->over, why);
	j->over = NULL;
}

/* What is wrong with the file itself is told in its turn, and the others go on. */
static cuf_future *chunk_failed(cuf_scope *s, cuf_future *in, void *arg)
{
	struct file *f = ((struct chunk *)arg)->file;
	cuf_error_info info = { .size = sizeof info };

	(void)s;
	cuf_error_get(cuf_error_of(in), &info);
	if (info.status != CUF_ERR_USER || info.user_code == NO_PINNED) {
		stop(f, in);
		return NULL;
	}
	if (!f->error)
		f->error = info.user_code;
	return cuf_ok();
}

/* The last that happens in its scope, on every path: nothing uses the buffers any more. */
static void chunk_ended(void *arg)
{
	struct chunk *c = arg;
	struct file *f = c->file;
	struct job *j = f->job;

	cuf_pinned_put(j->rt, c->data);
	cuf_pinned_put(j->rt, c->sums);
	if (!c->summed)
		f->at_end = true; /* it failed: nothing more of this file is read */
	c->ended = true;
	while ((c = f->first) && c->ended) {
		f->crc = (uint32_t)crc32_combine(f->crc, c->crc, (z_off_t)c->bytes);
		j->bytes += c->bytes;
		f->first = c->next;
		free(c);
	}
	if (!f->first)
		f->last = &f->first;
	j->in_flight--;
	if (--f->in_flight == 0 && f->at_end)
		end_file(f);
	take_chunks(j);
}

static void start_chunk(struct file *f, bool alone)
{
	struct chunk *c = calloc(1, sizeof *c);
	cuf_scope *s = cuf_scope_open(f->scope, .label = "chunk");

	if (!c || cuf_scope_defer(s, chunk_ended, c))
		out_of_memory();
	c->file = f;
	c->offset = f->offset;
	c->alone = alone;
	if (!alone)
		f->offset += CHUNK;
	*f->last = c;
	f->last = &c->next;
	f->in_flight++;
	f->job->in_flight++;

	cuf_future *read = cuf_call(s, read_chunk, c), *sum = cuf_then(s, read, sum_chunk, c);

	cuf_catch(s, sum, chunk_failed, c);
	cuf_release(cuf_scope_close(s)); /* a file has many: not to be kept until it ends */
}

/* ---- files ---- */

static void clear_progress(struct job *j)
{
	if (j->progress_shown)
		fputs("\r\033[K", stderr);
	j->progress_shown = false;
}

/* Prints what has ended, in the order of the arguments. */
static void print_ended(struct job *j)
{
	for (; j->n_printed < j->n_files && j->files[j->n_printed].ended; j->n_printed++) {
		const struct file *f = &j->files[j->n_printed];

		clear_progress(j);
		if (f->error) {
			fprintf(stderr, "crc32sum: %s: %s\n", f->name,
				f->error == SHRANK ? "shrank while it was read"
						   : strerror(f->error));
			j->exit_status = 1;
		} else {
			printf("%08x\t%s\n", f->crc, f->name);
		}
	}
	if (j->n_printed == j->n_files && j->over) {
		cuf_promise_fulfil(j->over, NULL, NULL);
		j->over = NULL;
	}
}

static void file_ended(cuf_future *end, void *arg)
{
	struct file *f = arg;

	f->ended = true;
	if (cuf_poll(end) == CUF_OK)
		print_ended(f->job);
	else
		stop(f, end);
}

static void end_file(struct file *f)
{
	cuf_auto end = cuf_scope_close(f->scope);

	cuf_watch(f->job->scope, end, file_ended, f);
}

static void start_file(struct file *f)
{
	f->scope = cuf_scope_open(f->job->scope, .label = "file");
	if (cuf_scope_defer(f->scope, close_file, f))
		out_of_memory();
	start_chunk(f, true);
}

/* Takes as many chunks as may be in flight: of files that are being read, then of the next ones. */
static void take_chunks(struct job *j)
{
	while (j->in_flight < IN_FLIGHT && j->over) {
		struct file *f = j->ready;

		if (f) {
			bool alone = f->size - f->offset < CHUNK;

			if (f->at_end || alone)
				j->ready = f->next;
			if (!f->at_end)
				start_chunk(f, alone);
		} else if (j->n_started < j->n_files) {
			start_file(&j->files[j->n_started++]);
		} else {
			return;
		}
	}
}

/* ---- the command ---- */

static void show_progress(struct job *j, uint64_t start_ns, double total)
{
	double seconds = (double)(cuf_now_ns() - start_ns) / 1e9, gb = (double)j->bytes / 1e9;

	fprintf(stderr, "\r%zu of %zu files, %.2f of %.2f GB, %.2f GB/s\033[K", j->n_printed,
		j->n_files, gb, total > gb ? total : gb, gb / seconds);
	j->progress_shown = true;
}

static double gigabytes(const struct file *files, size_t n)
{
	double total = 0;
	struct stat st;

	for (size_t i = 0; i < n; i++)
		if (!stat(files[i].name, &st) && S_ISREG(st.st_mode))
			total += (double)st.st_size / 1e9;
	return total;
}

/* Returns when all is printed; exits if the device fails. */
static void run(struct job *j)
{
	const cuf_runtime_options options = { .size = sizeof options, .workers = READERS };
	uint64_t start_ns = cuf_now_ns(), tick_ns = CUF_FOREVER;
	double total = 0;
	cuf_loop *loop = NULL;
	cuf_future *over;
	cuf_status status = cuf_runtime_create(&j->rt, &options);

	if (!status)
		status = cuf_loop_create(j->rt, &loop);
	if (status) {
		fprintf(stderr, "crc32sum: cannot start: %s\n", cuf_strerror(status));
		exit(2);
	}
	if (isatty(STDERR_FILENO)) {
		total = gigabytes(j->files, j->n_files);
		tick_ns = start_ns + CUF_MS(1000);
	}
	j->scope = cuf_scope_open(cuf_runtime_scope(j->rt), .on = loop, .label = "crc32sum");
	j->over = cuf_promise_create(cuf_runtime_scope(j->rt), &over);
	take_chunks(j);
	while ((status = cuf_loop_run_until(loop, over, tick_ns)) == CUF_PENDING) {
		show_progress(j, start_ns, total);
		tick_ns = cuf_now_ns() + CUF_MS(200);
	}
	if (status) {
		clear_progress(j);
		fprintf(stderr, "crc32sum: %s: stopped after %zu of %zu files\n",
			j->failed ? j->failed->name : "start", j->n_printed, j->n_files);
		cuf_error_print(stderr, cuf_error_of(over));
		exit(2); /* not in good order: a worker may wait for a pipe, who knows how long */
	}
	cuf_loop_run_until(loop, cuf_scope_close(j->scope), CUF_FOREVER);
	cuf_loop_close(loop);
	cuf_runtime_destroy(j->rt);
}

static const char help[] =
	"Usage: crc32sum [FILE]...\n"
	"Prints for each FILE its CRC-32 sum as eight hex digits, a tab, and the name as given.\n"
	"Without FILE, or where FILE is -, standard input is read.\n"
	"\n"
	"  --help  this text\n"
	"\n"
	"The exit status is 1 if a file could not be read or the sums not be written, 2 if the\n"
	"device failed or the usage was wrong. CUF_DEVICE=cuda, host or auto chooses the device.\n";

static int close_output(void)
{
	bool failed = ferror(stdout);

	errno = 0;
	if (fclose(stdout) == 0 && !failed)
		return 0;
	fprintf(stderr, "crc32sum: cannot write: %s\n", errno ? strerror(errno) : "output failed");
	return 1;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	struct job j = { 0 };
	int option;

	/* What is opened must not pass for standard input or output where those are closed. */
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option != 'h') {
			fputs("Try crc32sum --help.\n", stderr);
			return 2;
		}
		fputs(help, stdout);
		return close_output();
	}
	argv += optind;
	argc -= optind;
	j.n_files = argc ? (size_t)argc : 1;
	j.files = calloc(j.n_files, sizeof *j.files);
	if (!j.files)
		out_of_memory();
	for (size_t i = 0; i < j.n_files; i++) {
		struct file *f = &j.files[i];

		f->job = &j;
		f->name = argc ? argv[i] : "-";
		f->last = &f->first;
		f->fd = -1;
	}
	run(&j);
	free(j.files);
	return close_output() | j.exit_status;
}
