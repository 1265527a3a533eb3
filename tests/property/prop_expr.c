/* Random expressions over two letters against what they mean: each is also a set of the 63 texts of up to five
 * letters, as bits. Intersections and complements are simplified in many ways, and none may change the language. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "expr/expr.h"

#define LEN_MAX 5u
#define N_TEXTS                                                                                    \
    63u /* of 0 to 5 letters: text `bits` of `len` letters is number (1 << len) - 1 + bits */
#define N_MADE 60u
#define N_POOLS 300u

struct made {
    wefti_expr expr;
    uint64_t texts;
};

static uint32_t number_of(uint32_t len, uint32_t bits) {
    return (1u << len) - 1 + bits;
}

static uint64_t cat(uint64_t a, uint64_t b) {
    uint64_t all = 0;
    for (uint32_t n = 0; n <= LEN_MAX; n++) {
        for (uint32_t bits = 0; bits < 1u << n; bits++) {
            if (!(a >> number_of(n, bits) & 1)) continue;
            for (uint32_t m = 0; n + m <= LEN_MAX; m++) {
                for (uint32_t more = 0; more < 1u << m; more++) {
                    if (b >> number_of(m, more) & 1)
                        all |= (uint64_t)1 << number_of(n + m, bits << m | more);
                }
            }
        }
    }
    return all;
}

static uint64_t repeat(uint64_t a, uint32_t min, uint32_t max) {
    uint64_t all = 0, power = 1;
    for (uint32_t i = 0; i <= LEN_MAX + min && i <= max; i++) {
        if (i >= min) all |= power;
        power = cat(power, a);
    }
    return all;
}

#define ALL_TEXTS (((uint64_t)1 << N_TEXTS) - 1)

static bool takes(wefti_expr_pool *pool, wefti_expr a, uint32_t len, uint32_t bits) {
    for (uint32_t i = len; i-- > 0;)
        a = wefti_expr_step(pool, a, bits >> i & 1 ? 'b' : 'a');
    return wefti_expr_takes_empty(pool, a);
}

/* Whether any text is found among the states that follow; MAYBE where there are too many of them. */
enum answer { NO, YES, MAYBE };

static enum answer find_text(wefti_expr_pool *pool, wefti_expr a) {
    wefti_expr seen[500] = {a};
    uint32_t n = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (wefti_expr_takes_empty(pool, seen[i])) return YES;
        for (unsigned char c = 'a'; c <= 'b'; c++) {
            wefti_expr next = wefti_expr_step(pool, seen[i], c);
            uint32_t k = 0;
            while (k < n && seen[k] != next)
                k++;
            if (k < n) continue;
            if (n == sizeof seen / sizeof *seen) return MAYBE;
            seen[n++] = next;
        }
    }
    return NO;
}

static void check(wefti_expr_pool *pool, const struct made *one) {
    uint64_t texts = 0;
    for (uint32_t len = 0; len <= LEN_MAX; len++) {
        for (uint32_t bits = 0; bits < 1u << len; bits++) {
            if (takes(pool, one->expr, len, bits)) texts |= (uint64_t)1 << number_of(len, bits);
        }
    }
    WEFT_ASSERT(!wefti_expr_pool_failed(pool));
    WEFT_ASSERT(texts == one->texts);
    enum answer has_text = find_text(pool, one->expr);
    if (has_text != MAYBE) WEFT_ASSERT(wefti_expr_is_live(pool, one->expr) == (has_text == YES));
    wefti_expr other = wefti_expr_step(pool, one->expr, 'c');
    WEFT_ASSERT(!wefti_expr_is_live(pool, other));
}

/* The same texts of up to n letters, and the same beginnings. */
static void check_far(wefti_expr_pool *pool, wefti_expr a, wefti_expr far, uint32_t n) {
    WEFT_ASSERT(wefti_expr_takes_empty(pool, a) == wefti_expr_takes_empty(pool, far));
    WEFT_ASSERT(wefti_expr_is_live(pool, a) == wefti_expr_is_live(pool, far));
    for (unsigned char c = 'a'; c <= 'b' && n > 0; c++)
        check_far(pool, wefti_expr_step(pool, a, c), wefti_expr_step(pool, far, c), n - 1);
}

static struct made leaf(uint64_t *rand, wefti_expr_pool *pool, struct made all) {
    const struct wefti_byte_set both = {{0, (uint64_t)3 << ('a' - 64)}};
    switch (weft_rand_below(rand, 5)) {
    case 0:
        return (struct made){wefti_expr_literal(pool, "a", 1), 1u << number_of(1, 0)};
    case 1:
        return (struct made){wefti_expr_literal(pool, "b", 1), 1u << number_of(1, 1)};
    case 2:
        return (struct made){wefti_expr_set(pool, &both), 3u << number_of(1, 0)};
    case 3:
        return (struct made){WEFTI_EXPR_EMPTY, 1};
    default:
        return all;
    }
}

static struct made combine(uint64_t *rand, wefti_expr_pool *pool, struct made a, struct made b,
                           struct made all) {
    uint32_t min = weft_rand_below(rand, 3), max = min + weft_rand_below(rand, 4);
    struct made one = a;
    switch (weft_rand_below(rand, 8)) {
    case 0:
    case 1:
        one.expr = wefti_expr_cat(pool, a.expr, b.expr);
        one.texts = cat(a.texts, b.texts);
        break;
    case 2:
        one.expr = wefti_expr_alt2(pool, a.expr, b.expr);
        one.texts |= b.texts;
        break;
    case 3:
    case 4:
        one.expr = wefti_expr_and2(pool, a.expr, b.expr);
        one.texts &= b.texts;
        break;
    case 5: { /* all letters but those */
        wefti_expr hole = wefti_expr_not(pool, a.expr);
        one.expr = wefti_expr_and2(pool, all.expr, hole);
        one.texts = all.texts & ~a.texts;
        break;
    }
    case 6: {
        wefti_expr list[] = {wefti_expr_not(pool, a.expr), all.expr, wefti_expr_not(pool, b.expr)};
        one.expr = wefti_expr_and(pool, list, 3);
        one.texts = all.texts & ~a.texts & ~b.texts;
        break;
    }
    default:
        one.expr = wefti_expr_repeat(pool, a.expr, min, max > 4 ? WEFTI_EXPR_MANY : max);
        one.texts = repeat(a.texts, min, max > 4 ? LEN_MAX + min : max);
        break;
    }
    return one;
}

static void run(uint64_t *rand) {
    struct made made[N_MADE];
    const struct wefti_byte_set both = {{0, (uint64_t)3 << ('a' - 64)}};
    wefti_expr_pool *pool = wefti_expr_pool_new(1u << 20);
    WEFT_ASSERT(pool);
    wefti_expr any = wefti_expr_set(pool, &both);
    struct made all = {wefti_expr_repeat(pool, any, 0, WEFTI_EXPR_MANY), ALL_TEXTS};
    if (weft_rand_below(rand, 2)) wefti_expr_within(pool, all.expr, all.expr);
    for (uint32_t i = 0; i < N_MADE; i++) {
        const struct made *a = i ? &made[weft_rand_below(rand, i)] : &all;
        const struct made *b = i ? &made[weft_rand_below(rand, i)] : &all;
        made[i] = i < 5 ? leaf(rand, pool, all) : combine(rand, pool, *a, *b, all);
        check(pool, &made[i]);
        uint32_t n = weft_rand_below(rand, 4);
        check_far(pool, made[i].expr, wefti_expr_far(pool, made[i].expr, n), n);
        if (i > 2 && weft_rand_below(rand, 4) == 0) wefti_expr_within(pool, made[i].expr, all.expr);
    }
    wefti_expr_pool_free(pool);
}

int main(void) {
    weft_check_actor("prop_expr");
    uint64_t rand = weft_rand_test_seed();
    for (uint32_t i = 0; i < N_POOLS; i++)
        run(&rand);
    printf("%u expressions, each against 63 texts\n", N_POOLS * N_MADE);
    return 0;
}
