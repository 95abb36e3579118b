/* SPDX-License-Identifier: MIT */
/*
 * Loops: queues of tasks that their owner drains. And what the calling thread is doing: whether user
 * code of ours runs on it, so that a wait there would deadlock.
 */
#ifndef CUFI_LOOP_H
#define CUFI_LOOP_H

#include "core.h"

void cufi_loop_init(cuf_loop *l, cuf_runtime *rt, enum cufi_loop_kind kind);
/* Any thread. On a closed loop the task goes to the runtime's, as CUFI_CLOSED. */
void cufi_loop_push(cuf_loop *l, struct cufi_task *task);
/* Runs up to @max tasks, for at most @slice_ns. Returns how many. */
size_t cufi_loop_run(cuf_loop *l, size_t max, uint64_t slice_ns);
bool cufi_loop_has_work(cuf_loop *l);
/* A worker's life: runs tasks until *stop. */
void cufi_loop_serve(cuf_loop *l, _Atomic uint32_t *stop);
void cufi_loop_wake_all(cuf_loop *l);
/* At the end of the runtime: frees what loop_create made. */
void cufi_loop_free(cuf_loop *l);
/* continuation.c: a post as an event; false: @task is something else. */
bool cufi_post_take(struct cufi_task *task, cuf_event *out_event);

/* User code is about to run, has run. Nests. */
void cufi_callback_enter(cuf_runtime *rt);
void cufi_callback_leave(void);
bool cufi_in_callback(const cuf_runtime *rt);

/* At the top of the life of every thread of ours that calls the device: does not return once exit()
 * has begun. What exit() tears down must not find us in a call. */
void cufi_halt_at_exit(cuf_runtime *rt);

#endif
