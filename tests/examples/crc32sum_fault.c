/* SPDX-License-Identifier: MIT */
/*
 * crc32sum where something goes wrong, for crc32sum.sh:
 *
 *	crc32sum_fault fault KTH CODE FILE...      the KTH operation on the device faults
 *	crc32sum_fault fail KTH CODE FILE...       the KTH call to the device fails
 *	crc32sum_fault truncate LENGTH "" FILE...  FILE gets that long when more than a chunk is read
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <unistd.h>

int crc32sum_main(int argc, char **argv);
ssize_t pread_changing(int fd, void *to, size_t bytes, off_t offset);

#define main  crc32sum_main
#define pread pread_changing
#include "../../examples/crc32sum.c"
#undef main
#undef pread

#include <cufuture/host.h>
#include <pthread.h>

static const char *changing;
static off_t length;

static void change(void)
{
	if (changing && truncate(changing, length))
		abort();
}

/* Whoever is first to read behind the first chunk changes the file; the others wait for that. */
ssize_t pread_changing(int fd, void *to, size_t bytes, off_t offset)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (offset > 0)
		pthread_once(&once, change);
	return pread(fd, to, bytes, offset);
}

int main(int argc, char **argv)
{
	if (argc < 5) {
		fprintf(stderr,
			"usage: crc32sum_fault fault|fail|truncate ARGUMENT CODE FILE...\n");
		return 99;
	}
	if (!strcmp(argv[1], "fault")) {
		cuf_host_fault_at(0, strtoull(argv[2], NULL, 10), atoi(argv[3]));
	} else if (!strcmp(argv[1], "fail")) {
		cuf_host_fail_call(CUF_HOST_ANY, strtoull(argv[2], NULL, 10), atoi(argv[3]));
	} else {
		changing = argv[4];
		length = atoll(argv[2]);
	}
	return crc32sum_main(argc - 3, argv + 3);
}
