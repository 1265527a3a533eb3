/* base/check — assertions. WEFT_ASSERT stays on in release builds: it is for our own mistakes, and
 * a dead worker is recoverable where a wrong one is not. Bytes from outside never trip one.
 * WEFT_DCHECK walks whole structures and is compiled in debug and sanitizer builds only. */
#ifndef WEFT_BASE_CHECK_H
#define WEFT_BASE_CHECK_H

/* Prints expression, place and actor (see weft_check_actor), then aborts. */
_Noreturn void weft_check_failed(const char *expr, const char *file, int line);

/* Names this process in the message; `name` must outlive the process. */
void weft_check_actor(const char *name);

#define WEFT_ASSERT(expr) ((expr) ? (void)0 : weft_check_failed(#expr, __FILE__, __LINE__))

#if !defined(NDEBUG) || defined(WEFT_SANITIZED)
#define WEFT_DCHECK(expr) WEFT_ASSERT(expr)
#else
#define WEFT_DCHECK(expr) ((void)sizeof(expr))
#endif

#endif
