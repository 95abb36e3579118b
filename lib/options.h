/* SPDX-License-Identifier: MIT */
/*
 * Structures that begin with their size: read as this library declares them.
 */
#ifndef CUFI_OPTIONS_H
#define CUFI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/*
 * Reads @from, which begins with its caller's size, into @to of @size bytes. NULL is all zeros. A
 * smaller one is filled up with zeros; false: larger, and the tail that we do not know is not zero.
 */
static inline bool cufi_struct_read(void *to, size_t size, const void *from)
{
	const unsigned char *bytes = from;
	size_t given;

	memset(to, 0, size);
	memcpy(to, &size, sizeof size);
	if (!from)
		return true;
	memcpy(&given, from, sizeof given);
	if (given < sizeof given)
		return false;
	memcpy(to, from, given < size ? given : size);
	memcpy(to, &size, sizeof size);
	for (size_t i = size; i < given; i++) {
		if (bytes[i])
			return false;
	}
	return true;
}

#endif
