/* SPDX-License-Identifier: MIT */
/*
 * Scopes: who belongs to them, what they still owe, and how they end.
 */
#ifndef CUFI_SCOPE_H
#define CUFI_SCOPE_H

#include "core.h"

void cufi_scope_init_root(cuf_scope *s, cuf_runtime *rt);
/* The runtime goes: runs the root's defers. */
void cufi_scope_end_root(cuf_scope *s);
/* Something (a member, a watch, a child) is outstanding; it is not any more. */
void cufi_scope_enter(cuf_scope *s);
void cufi_scope_leave(cuf_scope *s);
/* List of members; a dying future takes itself off. */
void cufi_scope_add_member(cuf_scope *s, cuf_future *f);
void cufi_scope_remove_member(cuf_future *f);
/* A member failed with @root (borrowed). */
void cufi_scope_note(cuf_scope *s, struct cufi_root *root);
/* A catch recovered from it, it was ignored, or an any went on without it. */
void cufi_scope_handled(cuf_scope *s, struct cufi_root *root);
/* The same in the scope of @f, which may be ending. */
void cufi_scope_forgive(cuf_future *f, struct cufi_root *root);
static inline bool cufi_scope_has(const cuf_scope *s, uint32_t flag)
{
	/* acquire: pairs with the release in scope.c where flags are set */
	return atomic_load_explicit(&((cuf_scope *)s)->flags, memory_order_acquire) & flag;
}

/* admission.c: one operation more. @always: what is never refused as busy. */
cuf_status cufi_admit(cuf_scope *s, bool always);
/* SHUTDOWN if the calling thread's submits are not taken any more. */
cuf_status cufi_admit_gate(const cuf_runtime *rt);
cuf_status cufi_reserve(cuf_runtime *rt, size_t n);
void cufi_unreserve(cuf_runtime *rt, size_t n);
/* @n less outstanding in the runtime, which may be destroyed when this returns. */
void cufi_retire(cuf_runtime *rt, uint64_t n);
/* Settles every cuf_room, whether there is room or not. */
void cufi_rooms_flush(cuf_runtime *rt);
unsigned cufi_fork_count(void);
bool cufi_forked(const cuf_runtime *rt);

/* Small objects of the runtime: @bytes from the slabs, larger ones from the heap. */
void *cufi_small_get(cuf_runtime *rt, size_t bytes);
void cufi_small_put(cuf_runtime *rt, void *p, size_t bytes);
int cufi_small_init(cuf_runtime *rt);

#endif
