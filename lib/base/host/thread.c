#include "thread.h"

int weft_thread_start(pthread_t *thread_out, void *(*fn)(void *), void *ctx) {
    pthread_attr_t attr;
    int failure = pthread_attr_init(&attr);
    if (failure) return failure;
    failure = pthread_attr_setstacksize(&attr, WEFT_THREAD_STACK);
    if (!failure) failure = pthread_create(thread_out, &attr, fn, ctx);
    (void)pthread_attr_destroy(&attr);
    return failure;
}
