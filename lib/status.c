/* SPDX-License-Identifier: MIT */
/*
 * Texts of the public enums, and the version of the library. Total: any int gives a string, and
 * every string is static. The switches have no default, so that a new value is a warning here.
 */
#include "status.h"

#include "cufuture/base.h"

#define DOTTED(major, minor, patch)  DOTTED_(major, minor, patch)
#define DOTTED_(major, minor, patch) #major "." #minor "." #patch

const char *cuf_version(void)
{
	return DOTTED(CUF_VERSION_MAJOR, CUF_VERSION_MINOR, CUF_VERSION_PATCH);
}

const char *cuf_strerror(cuf_status st)
{
	switch (st) {
	case CUF_PENDING:
		return "not settled yet";
	case CUF_OK:
		return "success";
	case CUF_ERR_INVALID:
		return "invalid argument";
	case CUF_ERR_NO_MEMORY:
		return "out of memory";
	case CUF_ERR_DEVICE:
		return "device error";
	case CUF_ERR_DEVICE_LOST:
		return "device lost";
	case CUF_ERR_CANCELLED:
		return "cancelled";
	case CUF_ERR_TIMED_OUT:
		return "timed out";
	case CUF_ERR_BROKEN:
		return "promise broken";
	case CUF_ERR_WOULD_DEADLOCK:
		return "waiting would deadlock";
	case CUF_ERR_SHUTDOWN:
		return "shutting down";
	case CUF_ERR_FORKED:
		return "runtime belongs to the parent process";
	case CUF_ERR_BUSY:
		return "too much work in flight";
	case CUF_ERR_USER:
		return "failed in user code";
	case CUF_ERR_TOO_LATE:
		return "too late to cancel";
	case CUF_ERR_NOT_ENQUEUED:
		return "not enqueued yet";
	case CUF_ERR_UNSUPPORTED:
		return "not supported";
	}
	return "unknown status";
}

const char *cufi_phase_name(int phase)
{
	switch (phase) {
	case CUF_PHASE_SUBMIT:
		return "submit";
	case CUF_PHASE_ENQUEUE:
		return "enqueue";
	case CUF_PHASE_EXECUTE:
		return "execute";
	}
	return "unknown phase";
}
