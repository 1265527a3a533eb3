/* Who says which tokens may come: masks as sequences go on, replay, ends, refusals, many at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "inside/engine/sampler/guides.h"
#include "tokenizer/tokenizer.h"

enum { WAIT_MS = 60000, N_VOCAB_SPARE = 70 };

struct fixture {
    wefti_guides *guides;
    weft_tokenizer *tok;
    uint32_t n_vocab, eos, unforced, budget;
    bool may_force;
};

static char path[4096];

static int open_fixture(void **state) {
    static struct fixture fix;
    struct weft_errmsg why;
    (void)snprintf(path, sizeof path, "%s/models/fable-6m", getenv("WEFT_SOURCE_DIR"));
    assert_int_equal(weft_tok_open(path, &fix.tok, &why), WEFT_OK);
    fix.unforced = fix.budget = UINT32_MAX;
    fix.n_vocab = weft_tok_vocab_size(fix.tok) + N_VOCAB_SPARE; /* as models have them */
    while (!weft_tok_is_special(fix.tok, fix.eos))
        fix.eos++;
    assert_int_equal(wefti_guides_new(path, fix.n_vocab, 0, &fix.guides), WEFT_OK);
    *state = &fix;
    return 0;
}

static int close_fixture(void **state) {
    struct fixture *fix = *state;
    wefti_guides_free(fix->guides);
    weft_tok_free(fix->tok);
    return 0;
}

static wefti_guide_run *start_with(struct fixture *fix, const struct weft_grammar *grammar,
                                   const uint32_t *output, uint32_t n_output) {
    const struct wefti_guide_start wish = {.grammar = grammar,
                                           .output = output,
                                           .n_output = n_output,
                                           .stop_tokens = &fix->eos,
                                           .n_stop_tokens = 1,
                                           .may_force = fix->may_force,
                                           .thinking_token_budget = fix->budget,
                                           .unforced = &fix->unforced,
                                           .n_unforced = 1};
    wefti_guide_run *run = wefti_guides_start(fix->guides, &wish);
    assert_non_null(run);
    return run;
}

static wefti_guide_run *start(struct fixture *fix, const char *regex, const uint32_t *output,
                              uint32_t n_output) {
    struct weft_grammar grammar;
    weft_grammar_init(&grammar);
    grammar.kind = WEFT_GRAMMAR_REGEX;
    grammar.text = regex;
    grammar.n_bytes = (uint32_t)strlen(regex);
    return start_with(fix, &grammar, output, n_output);
}

static struct wefti_guide await(struct fixture *fix, wefti_guide_run *run) {
    struct wefti_guide guide;
    assert_true(wefti_guides_await(fix->guides, run, WAIT_MS, &guide));
    return guide;
}

static uint32_t token_of(const struct fixture *fix, const char *text) {
    for (uint32_t id = 0; id < weft_tok_vocab_size(fix->tok); id++) {
        size_t len;
        const char *bytes = weft_tok_token_bytes(fix->tok, id, &len);
        if (!weft_tok_is_special(fix->tok, id) && len == strlen(text) && !memcmp(bytes, text, len))
            return id;
    }
    fail_msg("no token is \"%s\"", text);
    return 0;
}

static uint32_t count(const struct fixture *fix, const struct wefti_guide *guide) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < fix->n_vocab; id++)
        n += wefti_guide_allows(guide, id);
    return n;
}

static void a_mask_follows_each_token(void **state) {
    struct fixture *fix = *state;
    wefti_guide_run *run = start(fix, "ab?", NULL, 0);
    uint32_t a = token_of(fix, "a"), b = token_of(fix, "b");
    struct wefti_guide guide = await(fix, run);
    assert_true(wefti_guide_allows(&guide, a) && !wefti_guide_allows(&guide, b));
    assert_false(guide.may_end || guide.is_empty || wefti_guide_allows(&guide, fix->eos));
    assert_true(wefti_guides_add(fix->guides, run, a));
    guide = await(fix, run);
    assert_int_equal(count(fix, &guide), 2); /* and the end of sequence */
    assert_true(wefti_guide_allows(&guide, b) && wefti_guide_allows(&guide, fix->eos));
    assert_true(guide.may_end);
    assert_true(wefti_guides_add(fix->guides, run, b));
    guide = await(fix, run);
    assert_int_equal(count(fix, &guide), 1);
    wefti_guides_end(fix->guides, run);
}

/* Control characters are in no other token. */
static void tokens_that_come_alone_are_there_at_once(void **state) {
    struct fixture *fix = *state;
    fix->may_force = true;
    fix->unforced = fix->eos;
    wefti_guide_run *run = start(fix, "[ab]\\x01\\x02\\x03[ab]", NULL, 0);
    uint32_t a = token_of(fix, "a"), one = token_of(fix, "\1");
    assert_int_equal(await(fix, run).n_forced, 0);
    assert_true(wefti_guides_add(fix->guides, run, a));
    struct wefti_guide guide = await(fix, run);
    assert_int_equal(guide.n_forced, 3);
    assert_int_equal(guide.forced[0], one);
    assert_int_equal(guide.forced[2], token_of(fix, "\3"));
    assert_true(wefti_guide_allows(&guide, a) && !wefti_guide_allows(&guide, one));
    wefti_guides_accept(fix->guides, run);
    assert_int_equal(await(fix, run).n_forced, 0);
    assert_true(wefti_guides_add(fix->guides, run, a));
    guide = await(fix, run);
    assert_true(guide.n_forced == 0 &&
                wefti_guide_allows(&guide, fix->eos)); /* a stop token is sampled */
    wefti_guides_end(fix->guides, run);

    fix->unforced = token_of(fix, "\2");
    run = start(fix, "\\x01\\x02\\x03[ab]", NULL, 0);
    guide = await(fix, run);
    assert_int_equal(guide.n_forced, 1);
    assert_int_equal(count(fix, &guide), 1);
    wefti_guides_end(fix->guides, run);

    run = start(fix, "\\x01{100}", NULL, 0); /* a bound at a time */
    assert_int_equal(await(fix, run).n_forced, 1 + WEFT_FORCED_MAX);
    wefti_guides_accept(fix->guides, run);
    guide = await(fix, run);
    assert_true(guide.n_forced == 0 && wefti_guide_allows(&guide, one));
    wefti_guides_end(fix->guides, run);
    fix->may_force = false;
}

static void output_so_far_is_taken_first(void **state) {
    struct fixture *fix = *state;
    const uint32_t output[] = {token_of(fix, "a"), token_of(fix, "b")};
    wefti_guide_run *slow = start(fix, "abc[de]", NULL, 0),
                    *fast = start(fix, "abc[de]", output, 2);
    (void)await(fix, slow);
    for (int i = 0; i < 2; i++)
        assert_true(wefti_guides_add(fix->guides, slow, output[i]));
    struct wefti_guide x = await(fix, slow), y = await(fix, fast);
    assert_memory_equal(x.mask, y.mask, fix->n_vocab / 8);
    wefti_guides_end(fix->guides, slow);
    wefti_guides_end(fix->guides, fast);
}

static void where_nothing_may_come_the_mask_is_empty(void **state) {
    struct fixture *fix = *state;
    struct weft_grammar grammar;
    weft_grammar_init(&grammar);
    grammar.kind = WEFT_GRAMMAR_CHOICE;
    grammar.text = "[\"a\"]";
    grammar.n_bytes = (uint32_t)strlen(grammar.text);
    uint32_t a = token_of(fix, "a");
    const struct wefti_guide_start wish = {.grammar = &grammar, .output = &a, .n_output = 1};
    wefti_guide_run *run = wefti_guides_start(fix->guides, &wish);
    assert_non_null(run);
    struct wefti_guide guide = await(fix, run);
    assert_true(guide.may_end && guide.is_empty);
    wefti_guides_end(fix->guides, run);
}

static void what_does_not_fit_or_compile_never_gets_a_mask(void **state) {
    struct fixture *fix = *state;
    uint32_t b = token_of(fix, "b");
    wefti_guide_run *wrong = start(fix, "a+", &b, 1), *special = start(fix, "a+", &fix->eos, 1);
    wefti_guide_run *broken = start(fix, "(", NULL, 0);
    assert_null(await(fix, wrong).mask);
    assert_null(await(fix, special).mask);
    assert_null(await(fix, broken).mask);
    wefti_guides_end(fix->guides, wrong);
    wefti_guides_end(fix->guides, special);
    wefti_guides_end(fix->guides, broken);
}

/* More grammars than are kept, ended before and after they are ready. */
static void many_grammars_come_and_go(void **state) {
    struct fixture *fix = *state;
    for (uint32_t i = 0; i < WEFTI_GUIDES_KEPT_MAX + 100; i++) {
        char regex[32];
        (void)snprintf(regex, sizeof regex, "a{%u}", i + 1);
        wefti_guide_run *run = start(fix, regex, NULL, 0);
        if (i % 3 > 0) {
            struct wefti_guide guide = await(fix, run);
            assert_true(wefti_guide_allows(&guide, token_of(fix, "a")));
        }
        wefti_guides_end(fix->guides, run);
    }
}

/* Each takes more than half of what all may take, and goes when the next one comes. */
static void large_grammars_give_way_to_each_other(void **state) {
    enum { WORDS = 4000, BYTES_MAX = 1 << 20 };
    struct fixture fix = *(const struct fixture *)*state;
    static char regex[WORDS * 12];
    assert_int_equal(wefti_guides_new(path, fix.n_vocab, BYTES_MAX, &fix.guides), WEFT_OK);
    for (uint32_t i = 0; i < 6; i++) {
        size_t len = 0;
        for (uint32_t word = 0; word < WORDS; word++)
            len += (size_t)snprintf(regex + len, sizeof regex - len, "a%u_%u|", i, word);
        regex[len - 1] = '\0';
        wefti_guide_run *run = start(&fix, regex, NULL, 0);
        struct wefti_guide guide = await(&fix, run);
        assert_non_null(guide.mask);
        assert_true(wefti_guide_allows(&guide, token_of(&fix, "a")));
        wefti_guides_end(fix.guides, run);
    }
    wefti_guide_run *run = start(&fix, "a", NULL, 0);
    assert_non_null(await(&fix, run).mask);
    wefti_guides_end(fix.guides, run);
    wefti_guides_free(fix.guides);
}

static void ending_in_the_midst_is_clean(void **state) {
    (void)state;
    struct fixture fix = {.budget = UINT32_MAX};
    assert_int_equal(wefti_guides_new(path, 1000, 0, &fix.guides), WEFT_OK);
    wefti_guides_free(fix.guides); /* nothing had begun */
    assert_int_equal(wefti_guides_new(path, 1000, 0, &fix.guides), WEFT_OK);
    for (int i = 0; i < 8; i++)
        (void)start(&fix, "(.*a.{5}b){3}", NULL, 0);
    wefti_guides_free(fix.guides);
}

static bool prepare(struct fixture *fix, uint64_t id, const char *regex, int fd) {
    struct weft_grammar grammar;
    const struct weft_eng_ticket ticket = {.epoch = 5, .id = id, .wake_fd = fd};
    weft_grammar_init(&grammar);
    grammar.kind = WEFT_GRAMMAR_REGEX;
    grammar.text = regex;
    grammar.n_bytes = (uint32_t)strlen(regex);
    return wefti_guides_prepare(fix->guides, &ticket, &grammar);
}

/* Waits until the eventfd says that there is one. */
static uint64_t next_prepared(struct fixture *fix, int fd) {
    struct weft_eng_ticket ticket;
    eventfd_t n;
    while (!wefti_guides_next_prepared(fix->guides, &ticket)) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, WAIT_MS), 1);
        assert_int_equal(eventfd_read(fd, &n), 0);
    }
    assert_int_equal(ticket.epoch, 5);
    return ticket.id;
}

static void a_grammar_is_compiled_ahead(void **state) {
    struct fixture *fix = *state;
    int fd = eventfd(0, EFD_NONBLOCK);
    assert_true(prepare(fix, 1, "xy+[0-9]", fd));
    assert_int_equal(next_prepared(fix, fd), 1);
    assert_true(prepare(fix, 2, "xy+[0-9]", fd)); /* it is there: */
    struct weft_eng_ticket ticket;
    assert_true(wefti_guides_next_prepared(fix->guides, &ticket));
    assert_int_equal(ticket.id, 2);
    assert_false(wefti_guides_next_prepared(fix->guides, &ticket));
    wefti_guide_run *run = start(fix, "xy+[0-9]", NULL, 0);
    struct wefti_guide guide = await(fix, run);
    assert_true(wefti_guide_allows(&guide, token_of(fix, "x")));
    wefti_guides_end(fix->guides, run);
    assert_true(prepare(fix, 3, "(", fd)); /* is told as well: the run that follows hears why */
    assert_int_equal(next_prepared(fix, fd), 3);
    assert_int_equal(close(fd), 0);
}

static void a_long_output_is_taken_in_pieces(void **state) {
    struct fixture *fix = *state;
    enum { N = 1001 };
    static uint32_t output[N];
    for (int i = 0; i < N; i++)
        output[i] = token_of(fix, i % 2 ? "b" : "a");
    wefti_guide_run *longest = start(fix, "(ab)*", output, N), *other = start(fix, "ab?", NULL, 0);
    struct wefti_guide guide = await(fix, other);
    assert_true(wefti_guide_allows(&guide, output[0]) && !wefti_guide_allows(&guide, output[1]));
    guide = await(fix, longest); /* behind all of it */
    assert_true(wefti_guide_allows(&guide, output[1]) && !wefti_guide_allows(&guide, output[0]));
    assert_true(wefti_guides_add(fix->guides, longest, output[1]));
    guide = await(fix, longest);
    assert_true(wefti_guide_allows(&guide, output[0]) && guide.may_end);
    wefti_guides_end(fix->guides, longest);
    wefti_guides_end(fix->guides, other);
}

static void copy_with_markers(const char *from, const char *to) {
    static char text[1 << 20];
    FILE *file = fopen(from, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    assert_true(n > 0 && n < sizeof text - 1);
    text[n] = '\0';
    assert_int_equal(fclose(file), 0);
    file = fopen(to, "we");
    assert_non_null(file);
    for (const char *at = text; *at;) {
        bool is_begin = strncmp(at, "<|im_start|>", 12) == 0;
        bool is_end = strncmp(at, "<|im_end|>", 10) == 0;
        if (is_begin || is_end)
            assert_true(fputs(is_begin ? "<think>" : "</think>", file) >= 0);
        else
            assert_int_equal(fputc(*at, file), (unsigned char)*at);
        at += is_begin ? 12 : is_end ? 10 : 1;
    }
    assert_int_equal(fclose(file), 0);
}

static wefti_guide_run *start_thinking(struct fixture *fix, enum weft_grammar_thinking thinking,
                                       const uint32_t *tokens, uint32_t n_tokens) {
    struct weft_grammar grammar;
    weft_grammar_init(&grammar);
    grammar.kind = WEFT_GRAMMAR_REGEX;
    grammar.thinking = thinking;
    grammar.text = "[a-z]+";
    grammar.n_bytes = (uint32_t)strlen(grammar.text);
    return start_with(fix, &grammar, tokens, n_tokens);
}

/* The tokens that a run goes on with as long as there is one choice; it is up to somebody else then. */
static void spell(struct fixture *fix, wefti_guide_run *run, char *text, size_t cap) {
    struct wefti_guide guide;
    for (size_t at = strlen(text);;) {
        guide = await(fix, run);
        assert_non_null(guide.mask);
        if (guide.is_free || count(fix, &guide) != 1) return;
        uint32_t token = 0;
        while (!wefti_guide_allows(&guide, token))
            token++;
        size_t len;
        const char *bytes = weft_tok_token_bytes(fix->tok, token, &len);
        assert_true(at + len < cap);
        memcpy(text + at, bytes, len);
        text[at += len] = '\0';
        assert_true(wefti_guides_add(fix->guides, run, token));
    }
}

static wefti_guide_run *start_text(struct fixture *fix, enum weft_grammar_thinking thinking,
                                   enum weft_grammar_marks marks, const uint32_t *tokens,
                                   uint32_t n_tokens) {
    struct weft_grammar grammar;
    weft_grammar_init(&grammar);
    grammar.kind = WEFT_GRAMMAR_TEXT;
    grammar.thinking = thinking;
    grammar.marks = marks;
    return start_with(fix, &grammar, tokens, n_tokens);
}

/* No token is all of a mark here: it is spelled, and one that is under way is completed. Anything may come before and
 * behind it. */
static void thoughts_end_when_there_were_enough(void **state) {
    struct fixture *fix = *state;
    const uint32_t output[] = {token_of(fix, "a"), fix->eos, token_of(fix, "b"),
                               token_of(fix, "[")};
    char text[64] = "";
    fix->budget = 4;
    wefti_guide_run *run = start_text(fix, WEFT_THINKING_OPEN, WEFT_MARKS_MISTRAL, NULL, 0);
    for (int i = 0; i < 4; i++) {
        assert_true(await(fix, run).is_free);
        assert_true(wefti_guides_add(fix->guides, run, output[i]));
    }
    spell(fix, run, text, sizeof text);
    assert_string_equal(text, "/THINK]");
    for (int i = 0; i < 8; i++) {
        assert_true(await(fix, run).is_free);
        assert_true(wefti_guides_add(fix->guides, run, output[i % 4]));
    }
    wefti_guides_end(fix->guides, run);

    for (uint32_t n = 0; n <= 4; n++) { /* another worker's output; and the same in one piece */
        fix->may_force = n % 2 == 0;
        fix->budget = n;
        run = start_text(fix, WEFT_THINKING_OPEN, WEFT_MARKS_THINK, output, n);
        if (fix->may_force) {
            struct wefti_guide guide = await(fix, run);
            assert_true(guide.n_forced > 0 && guide.is_free);
            text[0] = '\0';
            for (uint32_t i = 0; i < guide.n_forced; i++) {
                size_t len;
                const char *bytes = weft_tok_token_bytes(fix->tok, guide.forced[i], &len);
                (void)strncat(text, bytes, len);
            }
        } else {
            text[0] = '\0';
            spell(fix, run, text, sizeof text);
        }
        assert_string_equal(text, "</think>");
        wefti_guides_end(fix->guides, run);
    }
    fix->may_force = false;
    fix->budget = UINT32_MAX;
}

/* Where a grammar follows it goes on as ever; a budget is of thoughts alone, and none are opened in vain. */
static void a_budget_is_of_thoughts_alone(void **state) {
    struct fixture *fix = *state;
    uint32_t a = token_of(fix, "a");
    char text[64] = "";
    fix->budget = 0;
    wefti_guide_run *run = start_thinking(fix, WEFT_THINKING_OPEN, NULL, 0);
    spell(fix, run, text, sizeof text);
    assert_string_equal(text, "</think>");
    struct wefti_guide guide = await(fix, run);
    assert_true(wefti_guide_allows(&guide, a) && !wefti_guide_allows(&guide, token_of(fix, "A")));
    wefti_guides_end(fix->guides, run);

    run = start_thinking(fix, WEFT_THINKING_MAYBE, NULL, 0);
    guide = await(fix, run);
    assert_true(wefti_guide_allows(&guide, a) && count(fix, &guide) > 1);
    wefti_guides_end(fix->guides, run);

    run = start_text(fix, WEFT_THINKING_MAYBE, WEFT_MARKS_SEED, NULL, 0);
    static const char begin[] = "<seed:think>";
    for (int i = 0; begin[i]; i++) {
        const char one[] = {begin[i], '\0'};
        assert_true(await(fix, run).is_free);
        assert_true(wefti_guides_add(fix->guides, run, token_of(fix, one)));
    }
    text[0] = '\0';
    spell(fix, run, text, sizeof text);
    assert_string_equal(text, "</seed:think>");
    wefti_guides_end(fix->guides, run);

    run = start_text(fix, WEFT_THINKING_NONE, WEFT_MARKS_THINK, NULL, 0);
    for (int i = 0; i < 5; i++) {
        assert_true(await(fix, run).is_free);
        assert_true(wefti_guides_add(fix->guides, run, i ? a : fix->eos));
    }
    wefti_guides_end(fix->guides, run);
    fix->budget = UINT32_MAX;
}

static uint32_t special(const struct fixture *fix, const char *text) {
    for (uint32_t id = 0; id < weft_tok_vocab_size(fix->tok); id++) {
        size_t len;
        const char *bytes = weft_tok_token_bytes(fix->tok, id, &len);
        if (weft_tok_is_special(fix->tok, id) && len == strlen(text) && !memcmp(bytes, text, len))
            return id;
    }
    fail_msg("no special token is \"%s\"", text);
    return 0;
}

/* Where a grammar names one it comes, in the output before as well, and may be forced; an end of sequence is
 * sampled. */
static void special_tokens_come_where_a_grammar_names_them(void **state) {
    struct fixture *fix = *state;
    struct weft_grammar grammar;
    weft_grammar_init(&grammar);
    grammar.kind = WEFT_GRAMMAR_TAGS;
    grammar.text =
        "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[{\"type\":\"token\",\"token\":"
        "\"<|im_start|>\"}],\"tags\":[{\"begin\":{\"type\":\"token\",\"token\":\"<|im_start|>\"},"
        "\"content\":{\"type\":\"regex\",\"pattern\":\"a\"},\"end\":[{\"type\":\"token\","
        "\"token\":\"<|im_end|>\"}]}]}}";
    grammar.n_bytes = (uint32_t)strlen(grammar.text);
    uint32_t begin = special(fix, "<|im_start|>"), end = special(fix, "<|im_end|>");
    uint32_t a = token_of(fix, "a"), eos = fix->eos;
    fix->eos = fix->unforced = special(fix, "<|end_of_text|>");
    fix->may_force = true;
    wefti_guide_run *run = start_with(fix, &grammar, NULL, 0);
    struct wefti_guide guide = await(fix, run);
    assert_true(wefti_guide_allows(&guide, begin) && wefti_guide_allows(&guide, a));
    assert_true(!wefti_guide_allows(&guide, end) && wefti_guide_allows(&guide, fix->eos));
    assert_true(wefti_guides_add(fix->guides, run, a));
    assert_true(wefti_guides_add(fix->guides, run, begin));
    guide = await(fix, run);
    assert_int_equal(guide.n_forced, 2);
    assert_true(guide.forced[0] == a && guide.forced[1] == end);
    assert_true(wefti_guide_allows(&guide, begin) && wefti_guide_allows(&guide, fix->eos));
    wefti_guides_end(fix->guides, run);

    const uint32_t before[] = {a, begin, a, end, begin};
    fix->may_force = false;
    run = start_with(fix, &grammar, before, 5);
    guide = await(fix, run);
    assert_int_equal(count(fix, &guide), 1);
    assert_true(wefti_guide_allows(&guide, a));
    assert_true(wefti_guides_add(fix->guides, run, begin)); /* not here */
    assert_null(await(fix, run).mask);
    wefti_guides_end(fix->guides, run);

    fix->may_force = true;
    fix->unforced = end; /* it ends the sequence */
    run = start_with(fix, &grammar, before, 2);
    guide = await(fix, run);
    assert_int_equal(guide.n_forced, 1);
    assert_int_equal(count(fix, &guide), 1);
    assert_true(wefti_guide_allows(&guide, end));
    wefti_guides_end(fix->guides, run);
    fix->may_force = false;
    fix->unforced = UINT32_MAX;
    fix->eos = eos;
}

/* Where the markers are special tokens they may come where they mean something, and nowhere else. */
static void special_tokens_begin_and_end_thinking(void **state) {
    (void)state;
    struct fixture fix = {.budget = UINT32_MAX};
    struct weft_errmsg why;
    char folder[] = "/tmp/weft-test-guides-XXXXXX", to[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(to, sizeof to, "%s/tokenizer.json", folder);
    char from[4200];
    (void)snprintf(from, sizeof from, "%s/tokenizer.json", path);
    copy_with_markers(from, to);
    if (weft_tok_open(folder, &fix.tok, &why)) fail_msg("%s", why.text);
    fix.n_vocab = weft_tok_vocab_size(fix.tok);
    fix.eos = special(&fix, "<|end_of_text|>");
    assert_int_equal(wefti_guides_new(folder, fix.n_vocab, 0, &fix.guides), WEFT_OK);
    uint32_t begin = special(&fix, "<think>"), end = special(&fix, "</think>");
    uint32_t a = token_of(&fix, "a");

    wefti_guide_run *run = start_thinking(&fix, WEFT_THINKING_MAYBE, NULL, 0);
    struct wefti_guide guide = await(&fix, run);
    assert_true(wefti_guide_allows(&guide, begin) && wefti_guide_allows(&guide, a));
    assert_false(wefti_guide_allows(&guide, end) || wefti_guide_allows(&guide, fix.eos));
    assert_true(wefti_guides_add(fix.guides, run, begin));
    guide = await(&fix, run);
    assert_true(wefti_guide_allows(&guide, end));
    assert_true(wefti_guide_allows(&guide, token_of(&fix, "A"))); /* anything */
    assert_false(wefti_guide_allows(&guide, begin) || wefti_guide_allows(&guide, fix.eos));
    assert_true(wefti_guides_add(fix.guides, run, token_of(&fix, "A")));
    assert_true(wefti_guides_add(fix.guides, run, end));
    assert_true(wefti_guides_add(fix.guides, run, a));
    guide = await(&fix, run);
    assert_false(wefti_guide_allows(&guide, begin) || wefti_guide_allows(&guide, end));
    assert_true(wefti_guide_allows(&guide, fix.eos) && wefti_guide_allows(&guide, a));
    assert_false(wefti_guide_allows(&guide, token_of(&fix, "A")));
    wefti_guides_end(fix.guides, run);

    run = start_thinking(&fix, WEFT_THINKING_MAYBE, NULL, 0); /* it answers at once */
    assert_true(wefti_guides_add(fix.guides, run, a));
    guide = await(&fix, run);
    assert_false(wefti_guide_allows(&guide, begin) || wefti_guide_allows(&guide, end));
    wefti_guides_end(fix.guides, run);
    const uint32_t before[] = {begin, token_of(&fix, "A"), end, a}; /* another worker's */
    for (uint32_t n = 1; n <= 4; n++) {
        bool thinks = n < 3;
        run = start_thinking(&fix, WEFT_THINKING_MAYBE, before, n);
        guide = await(&fix, run);
        assert_int_equal(wefti_guide_allows(&guide, end), thinks);
        assert_int_equal(wefti_guide_allows(&guide, before[1]), thinks);
        assert_int_equal(wefti_guide_allows(&guide, fix.eos), n == 4);
        assert_true(wefti_guide_allows(&guide, a) && !wefti_guide_allows(&guide, begin));
        wefti_guides_end(fix.guides, run);
    }
    run = start_thinking(&fix, WEFT_THINKING_NONE, NULL, 0);
    guide = await(&fix, run);
    assert_false(wefti_guide_allows(&guide, begin) || wefti_guide_allows(&guide, end));
    wefti_guides_end(fix.guides, run);
    fix.budget = 1;
    fix.may_force = true;
    const uint32_t partly[] = {
        token_of(&fix, "<")}; /* of a mark, but the token is what the model knows */
    run = start_thinking(&fix, WEFT_THINKING_OPEN, partly, 1);
    guide = await(&fix, run);
    assert_true(guide.n_forced == 1 && guide.forced[0] == end);
    assert_true(wefti_guide_allows(&guide, a) && !wefti_guide_allows(&guide, end));
    wefti_guides_end(fix.guides, run);
    wefti_guides_free(fix.guides);
    weft_tok_free(fix.tok);
    assert_int_equal(unlink(to), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_follows_each_token),
        cmocka_unit_test(tokens_that_come_alone_are_there_at_once),
        cmocka_unit_test(output_so_far_is_taken_first),
        cmocka_unit_test(where_nothing_may_come_the_mask_is_empty),
        cmocka_unit_test(what_does_not_fit_or_compile_never_gets_a_mask),
        cmocka_unit_test(many_grammars_come_and_go),
        cmocka_unit_test(large_grammars_give_way_to_each_other),
        cmocka_unit_test(a_long_output_is_taken_in_pieces),
        cmocka_unit_test(a_grammar_is_compiled_ahead),
        cmocka_unit_test(thoughts_end_when_there_were_enough),
        cmocka_unit_test(a_budget_is_of_thoughts_alone),
        cmocka_unit_test(special_tokens_come_where_a_grammar_names_them),
        cmocka_unit_test(special_tokens_begin_and_end_thinking),
        cmocka_unit_test(ending_in_the_midst_is_clean),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
