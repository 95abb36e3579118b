/* SPDX-License-Identifier: MIT */
/*
 * What the host device is made of: operations, kernels, streams, events, devices; who guards and
 * who writes each field. What is done with them: host.h.
 */
#ifndef CUFI_DEVICE_HOST_TYPES_H
#define CUFI_DEVICE_HOST_TYPES_H

#include "device.h"
#include "wait.h"

#define CUFI_HOST_DEVICES 64   /* that can be pretended (arbitrary) */
#define CUFI_HOST_QUEUES  8    /* hardware queues of a process, measured on an H200 */
#define CUFI_HOST_DEPTH	  1021 /* work pending in one before the enqueuer blocks, measured there */
#define CUFI_HOST_ARGS	  64   /* of a kernel (arbitrary; CUDA limits their bytes to 4 KiB) */
#define CUFI_HOST_PAYLOAD 128  /* bytes of arguments that an operation holds itself (arbitrary) */
#define CUFI_HOST_CLASSES 152  /* sizes of blocks: 4 for each power of two, 2^10 to 2^48 */

/* ---- operations ---- */

/*
 * Up to HOST_CALL they are work: they hold a place in a hardware queue, and may be told to
 * fault.
 */
enum host_kind {
	HOST_LAUNCH,
	HOST_COPY,
	HOST_FILL,
	HOST_CALL,
	HOST_MALLOC,
	HOST_FREE,
	HOST_RECORD,
	HOST_WAIT,
	HOST_FUNC
};
enum host_func_state { FUNC_WAITING, FUNC_HANDED, FUNC_DONE };

/* Owner: the stream's list, then its session; goes back to the stream's spare ones. */
struct host_op {
	struct host_op *next;
	uint64_t seq; /* of its stream, from 1 */
	enum host_kind kind;
	void *owned; /* freed with the operation: arguments or bytes too large for payload */
	union {
		struct {
			const struct host_kernel *kernel;
			struct cuf_grid grid;
		} launch;
		struct {
			void *dst;
			const void *src;
			size_t bytes;
			int byte; /* fill */
		} copy;
		struct {
			void (*fn)(void *arg);
			void *arg;
			uint64_t delay_ns;
			atomic_int state; /* host functions: enum host_func_state */
		} call;
		struct {
			struct host_block *block;
			size_t bytes;
		} memory;
		struct CUevent_st *record; /* a reference: timing events alone; else NULL */
		struct {
			struct CUstream_st *on; /* a reference */
			uint64_t seq;
			bool asked; /* the stream's waiter is, or was, in on's list */
		} wait;
	} u;
	_Alignas(64) unsigned char payload[CUFI_HOST_PAYLOAD];
};

struct host_kernel {
	struct host_kernel *next;
	struct cuf_kernel kernel;
	size_t bytes;		       /* of all arguments, laid out */
	size_t offset[CUFI_HOST_ARGS]; /* of each in them */
	size_t arg_bytes[CUFI_HOST_ARGS];
};

/* ---- streams and events ---- */

/* In a stream's list of those that want to know of its progress, lowest seq first; guarded by that
 * stream's lock. */
struct host_waiter {
	struct host_waiter *next, *prev;
	bool linked;
	uint64_t seq;
	struct CUstream_st *kick; /* a stream to look again, or NULL and */
	_Atomic uint32_t *word;	  /* a word to set to 1 and wake */
};

enum host_stream_state { HOST_IDLE, HOST_READY, HOST_RUNNING, HOST_BLOCKED };

/*
 * Never freed before the last close(), only used again: a late kick of a stream that is gone does
 * no harm. References: its handle, each event last recorded on it, each operation that waits for
 * it, and one while it is not idle.
 */
struct CUstream_st {
	atomic_uint alive; /* HOST_ALIVE from create to destroy */
	int device;
	unsigned queue; /* its hardware queue */
	atomic_uint refs;
	atomic_bool stalled;
	struct CUstream_st *next, **at; /* device lock: its list; gone: stream.c's spare ones */
	struct CUstream_st *ready_next; /* pool lock */
	struct CUstream_st *func_next;	/* func.c's lock */

	_Alignas(64) cufi_lock lock; /* guards from here: */
	enum host_stream_state state;
	bool again; /* kicked while running: look again before blocking */
	struct host_op *first, **last;
	struct host_op *spare;
	unsigned n_spare;
	struct host_waiter *waiters, *last_waiter;
	/* to here. */
	_Alignas(64) _Atomic uint64_t issued; /* seq of the last put on it; written under lock */

	_Alignas(64) _Atomic uint64_t done; /* seq of the last that ended; writer: the session */
	_Atomic uint64_t wake_at; /* lowest seq that a waiter waits for; written under lock */
	/* The session's: */
	struct host_op *batch; /* taken off the list; the first is running */
	struct host_op *spent, **spent_last;
	unsigned n_spent;
	struct host_waiter waiter; /* while the first of the batch waits for another stream */

	struct host_block *freed[CUFI_HOST_CLASSES]; /* freed on it, not reached yet: heap lock */
};
#define HOST_ALIVE 0x57e4a11eu /* arbitrary */

struct CUevent_st {
	unsigned alive;
	int device;
	bool timing;
	atomic_uint refs; /* its handle, each record of a timing event that is pending */
	struct CUevent_st *next, **at; /* the device's list: device lock */

	cufi_lock lock;		/* guards from here */
	struct CUstream_st *on; /* a reference; NULL: not recorded, or known to be complete */
	uint64_t seq;
	bool recorded, stamped;
	uint64_t stamp_ns;
};

/* ---- devices ---- */

struct host_device {
	/* A fault sets faulting; once no session runs on the device, lost as well, for all to see. */
	atomic_int faulting, lost;
	atomic_uint active; /* sessions on its streams */
	atomic_bool gate;
	_Atomic uint64_t fault_in; /* the operation to fault, counted down; 0: none */
	atomic_int fault_code;
	atomic_bool touched; /* somebody called for it: CUDA would have made a context */
	cufi_lock lock;
	struct CUstream_st *streams;
	struct CUevent_st *events;
};
extern struct host_device cufi_host_devices[CUFI_HOST_DEVICES];

#endif
