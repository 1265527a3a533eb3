/* What --help and man pages say, from the table of settings. Both show the same things in the same
 * order; a page knows how a title, a paragraph and an entry look on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/parse.h"
#include "config_internal.h"

#define WIDTH_MIN 40
#define WIDTH_MAX 100
#define WIDTH_WITHOUT_TERMINAL 80
#define COLUMN 28 /* of what an entry says of its flag; on a narrow page it stands below */
#define COLUMN_NARROW 6
#define NARROW 66

struct page {
    FILE *out;
    bool is_man;
    unsigned width;
};

static unsigned width_of(FILE *out) {
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");
    uint64_t width = 0;
    if (!columns || weft_parse_u64(columns, UINT16_MAX, &width) || width == 0)
        width = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0
                    ? size.ws_col
                    : WIDTH_WITHOUT_TERMINAL;
    return width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : (unsigned)width;
}

/* ------------------------------------------------------------------------------------ pages --- */

/* Of a man page: nothing in the text is markup. */
static void put_escaped(const char *text, FILE *out) {
    if (*text == '.' || *text == '\'') (void)fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            (void)fputs("\\e", out);
        else if (*text == '-')
            (void)fputs("\\-", out);
        else
            (void)fputc(*text, out);
    }
}

/* The words of `text`, from `column` on and below it from `indent` on, no wider than the page. */
static void put_wrapped(const struct page *page, const char *text, unsigned column,
                        unsigned indent) {
    bool is_first = true;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (!is_first && column + 1 + len > page->width) {
            (void)fprintf(page->out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!is_first) {
            (void)fputc(' ', page->out);
            column++;
        }
        (void)fwrite(text, 1, len, page->out);
        column += (unsigned)len;
        is_first = false;
        text += len;
        text += strspn(text, " ");
    }
    (void)fputc('\n', page->out);
}

static void put_section(const struct page *page, const char *title) {
    if (!page->is_man) return;
    (void)fprintf(page->out, ".SH %s\n", title);
}

static void put_paragraph(const struct page *page, const char *text) {
    if (page->is_man) {
        (void)fputs(".PP\n", page->out);
        put_escaped(text, page->out);
        (void)fputc('\n', page->out);
    } else {
        (void)fputc('\n', page->out);
        put_wrapped(page, text, 0, 0);
    }
}

static void put_title(const struct page *page, const char *title) {
    (void)fprintf(page->out, page->is_man ? ".SS %s\n" : "\n%s:\n", title);
}

static void put_example(const struct page *page, const char *line) {
    if (page->is_man) {
        (void)fputs(".PP\n.RS 4\n.EX\n", page->out);
        put_escaped(line, page->out);
        (void)fputs("\n.EE\n.RE\n", page->out);
    } else {
        (void)fprintf(page->out, "  %s\n", line);
    }
}

static void put_entry(const struct page *page, const char *left, const char *text) {
    if (page->is_man) {
        (void)fputs(".TP\n.B ", page->out);
        put_escaped(left, page->out);
        (void)fputc('\n', page->out);
        put_escaped(text, page->out);
        (void)fputc('\n', page->out);
        return;
    }
    unsigned indent = page->width < NARROW ? COLUMN_NARROW : COLUMN;
    unsigned column = 2 + (unsigned)strlen(left);
    (void)fprintf(page->out, "  %s", left);
    if (column + 2 > indent)
        (void)fprintf(page->out, "\n%*s", (int)indent, "");
    else
        (void)fprintf(page->out, "%*s", (int)(indent - column), "");
    put_wrapped(page, text, indent, indent);
}

/* ----------------------------------------------------------------------------- one program --- */

static void put_setting(const struct page *page, const struct wefti_config_program *program,
                        const struct wefti_config_setting *s) {
    char left[128], text[512], flag[WEFTI_CONFIG_NAME_BYTES];
    size_t n = 0;
    (void)snprintf(flag, sizeof flag, "--%s", s->name);
    left[0] = '\0';
    for (const struct wefti_config_alias *a = wefti_config_aliases; a->typed; a++) {
        if (a->programs & program->bit && !strcmp(a->full, flag))
            n += (size_t)snprintf(left + n, sizeof left - n, "%s, ", a->typed);
    }
    (void)snprintf(left + n, sizeof left - n, "%s%s%s", flag, s->arg ? " " : "",
                   s->arg ? s->arg : "");
    (void)snprintf(text, sizeof text, "%s%s%s%s", s->help, s->value ? " (default " : "",
                   s->value ? s->value : "", s->value ? ")" : "");
    put_entry(page, left, text);
}

static void put_settings(const struct page *page, const struct wefti_config_program *program) {
    const char *head = NULL;
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        if (s->head) head = s->head;
        if (!(s->programs & program->bit)) continue;
        if (head) put_title(page, head);
        head = NULL;
        put_setting(page, program, s);
    }
    put_title(page, "Other");
    put_entry(page, "--config FILE", "settings, one \"name = value\" per line");
    put_entry(page, "-h, --help", "this text");
    put_entry(page, "--version", "the version");
}

static const char isa_is[] =
    "The variable WEFT_ISA, which is no setting, picks the instruction set of the kernels: scalar, "
    "avx2, avx2vnni, avx512, amx or neon, as far as the CPU has them; without it they are the "
    "fastest that it has.";

static void put_sources(const struct page *page, const struct wefti_config_program *program) {
    const char *name = program->bit == WEFT_PROG_SERVE ? "max-num-seqs" : "log-level";
    const struct wefti_config_setting *s =
        wefti_config_find(program->bit, (struct weft_str){name, strlen(name)});
    char variable[WEFTI_CONFIG_NAME_BYTES], text[256];
    wefti_config_variable(s->name, variable);
    (void)snprintf(
        text, sizeof text,
        "Each setting can also stand in the environment, --%s as %s, or in the file that "
        "--config or WEFT_CONFIG names. A flag wins over the environment, and that over "
        "the file.",
        name, variable);
    put_paragraph(page, text);
    if (weft_config_computes(program->bit)) put_paragraph(page, isa_is);
}

static void put_examples(const struct page *page, const struct wefti_config_program *program) {
    for (size_t i = 0; i < WEFTI_CONFIG_EXAMPLES_MAX && program->examples[i]; i++)
        put_example(page, program->examples[i]);
}

void weft_config_help(enum weft_program bit, FILE *out) {
    const struct wefti_config_program *program = wefti_config_program(bit);
    const struct page page = {out, false, width_of(out)};
    (void)fprintf(out, "usage: %s\n", program->usage);
    put_paragraph(&page, program->about);
    if (program->examples[0]) put_title(&page, "Examples");
    put_examples(&page, program);
    if (program->details) put_paragraph(&page, program->details);
    put_settings(&page, program);
    put_sources(&page, program);
}

static const char exit_status[] =
    "0: all went well. 1: it failed, and standard error says why. 2: the command line, a WEFT_* "
    "variable or the --config file asks for something that there is not.";

static void put_man_head(FILE *out, const char *page_name, const char *about) {
    (void)fputs(".TH ", out);
    put_escaped(page_name, out);
    (void)fprintf(out, " 1 \"\" \"weft %s\" \"weft\"\n.SH NAME\n", WEFT_VERSION);
    put_escaped(page_name, out);
    (void)fputs(" \\- ", out);
    put_escaped(about, out);
    (void)fputc('\n', out);
}

void weft_config_man(enum weft_program bit, FILE *out) {
    const struct wefti_config_program *program = wefti_config_program(bit);
    const struct page page = {out, true, 0};
    char name[WEFTI_CONFIG_NAME_BYTES];
    if (program->name)
        (void)snprintf(name, sizeof name, "weft-%s", program->name);
    else
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(program->usage, " "),
                       program->usage);
    put_man_head(out, name, program->about);
    put_section(&page, "SYNOPSIS");
    put_paragraph(&page, program->usage);
    if (program->details) put_section(&page, "DESCRIPTION");
    if (program->details) put_paragraph(&page, program->details);
    if (program->examples[0]) put_section(&page, "EXAMPLES");
    put_examples(&page, program);
    put_section(&page, "OPTIONS");
    put_settings(&page, program);
    put_section(&page, "ENVIRONMENT");
    put_sources(&page, program);
    put_section(&page, "EXIT STATUS");
    put_paragraph(&page, exit_status);
    put_section(&page, "SEE ALSO");
    (void)fputs(".BR weft (1)\n", out);
}

/* -------------------------------------------------------------------------------- all of it --- */

static const char what_it_is[] = "serves large language models on CPUs";
static const char *const to_try[] = {
    "weft run models/fable-6m -p \"The old house stood\" --temperature 0.6 --seed 11",
    "weft chat models/fable-6m --temperature 0.5",
    "weft serve models/fable-6m",
};
#define N_TO_TRY (sizeof to_try / sizeof to_try[0])

static const char model_is[] =
    "MODEL is a Hugging Face folder, a .gguf file, or a file that weft pack has written. "
    "models/fable-6m, which comes with the sources, is a toy of 6.8 million parameters: it writes "
    "like an old book, and means nothing.";

static void put_commands(const struct page *page) {
    const struct wefti_config_program *program;
    for (size_t i = 0; (program = wefti_config_command(i)); i++) {
        char left[WEFTI_CONFIG_NAME_BYTES];
        (void)snprintf(left, sizeof left, "weft %s", program->name);
        put_entry(page, left, program->about);
    }
    put_entry(page, "weft help COMMAND", "All settings of a command, as weft COMMAND --help.");
    put_entry(page, "weft version", "The version.");
}

void weft_config_help_all(FILE *out) {
    const struct page page = {out, false, width_of(out)};
    (void)fprintf(out, "weft %s. Try:\n\n", what_it_is);
    for (size_t i = 0; i < N_TO_TRY; i++)
        put_example(&page, to_try[i]);
    (void)fputs("\nusage: weft COMMAND MODEL [options]\n", out);
    put_paragraph(&page, model_is);
    put_title(&page, "Commands");
    put_commands(&page);
}

void weft_config_man_all(FILE *out) {
    const struct page page = {out, true, 0};
    put_man_head(out, "weft", what_it_is);
    put_section(&page, "SYNOPSIS");
    put_paragraph(&page, "weft COMMAND MODEL [options]");
    put_section(&page, "DESCRIPTION");
    put_paragraph(&page, model_is);
    put_section(&page, "EXAMPLES");
    for (size_t i = 0; i < N_TO_TRY; i++)
        put_example(&page, to_try[i]);
    put_section(&page, "COMMANDS");
    put_commands(&page);
    put_section(&page, "ENVIRONMENT");
    put_paragraph(&page, isa_is);
    put_section(&page, "EXIT STATUS");
    put_paragraph(&page, exit_status);
    put_section(&page, "SEE ALSO");
    const struct wefti_config_program *program;
    for (size_t i = 0; (program = wefti_config_command(i)); i++) {
        (void)fputs(".BR weft\\-", out);
        put_escaped(program->name, out);
        (void)fputs(" (1)", out);
        (void)fputs(wefti_config_command(i + 1) ? ",\n" : "\n", out);
    }
}
