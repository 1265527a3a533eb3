/* Milliseconds of CPU time to turn a text into ids, for each of some tokenizers.
 *
 *     bench_tokenize FILE MODEL...
 *
 * The best of five runs: other work on the machine only ever adds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

#define RUNS 5
#define FILE_BYTES_MAX (64u << 20)

static double cpu_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static weft_err measure(const char *model, const char *text, size_t len, struct weft_errmsg *why) {
    weft_tokenizer *tok;
    double start = cpu_ms(), best = 0;
    weft_err err = weft_tok_open(model, &tok, why);
    if (err) return err;
    double opened = cpu_ms() - start;
    size_t n = 0;
    for (int run = 0; run < RUNS && !err; run++) {
        uint32_t *ids;
        start = cpu_ms();
        err =
            weft_tok_encode(tok, &(struct weft_tok_input){{text, len}, 0, len + 1}, &ids, &n, why);
        double took = cpu_ms() - start;
        if (run == 0 || took < best) best = took;
        free(ids);
    }
    if (!err)
        (void)printf("%7.1f ms, %9zu bytes, %8zu ids, opened in %6.1f ms  %s\n", best, len, n,
                     opened, model);
    weft_tok_free(tok);
    return err;
}

int main(int argc, char **argv) {
    struct weft_errmsg why = {""};
    char *text = NULL;
    size_t len;
    if (argc < 3) {
        (void)fprintf(stderr, "usage: bench_tokenize FILE MODEL...\n");
        return 2;
    }
    weft_err err = weft_file_read(argv[1], WEFT_FILE_REGULAR, FILE_BYTES_MAX, &text, &len, &why);
    for (int i = 2; i < argc && !err; i++)
        err = measure(argv[i], text, len, &why);
    if (err) (void)fprintf(stderr, "bench_tokenize: %s\n", why.text);
    free(text);
    return err ? 1 : 0;
}
