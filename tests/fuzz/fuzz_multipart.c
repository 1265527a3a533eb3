/* Forms: cut in two ways, they are read the same. The first byte says how long the pieces are. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "api/multipart.h"
#include "base/buf.h"
#include "base/check.h"

#define TYPE "multipart/form-data; boundary=e"

static bool take(void *to, const char *bytes, size_t n) {
    weft_buf_add(to, bytes, n);
    return true;
}

static weft_err read_form(struct weft_api_multipart *form, struct weft_buf *file, const char *bytes,
                          size_t n, size_t n_piece) {
    struct weft_errmsg why = {""};
    memset(form, 0, sizeof *form);
    form->take = take;
    form->to = file;
    weft_buf_init(file, 1 << 20);
    weft_err err = weft_api_multipart_init(form, (struct weft_str){TYPE, sizeof TYPE - 1}, &why);
    for (size_t i = 0; i < n && !err; i += n_piece)
        err = weft_api_multipart_more(form, bytes + i, n_piece < n - i ? n_piece : n - i, &why);
    if (!err) err = weft_api_multipart_end(form, &why);
    WEFT_ASSERT(!err || why.text[0]);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static struct weft_api_multipart a, b;
    struct weft_buf file_a, file_b;
    if (n == 0) return 0;
    const char *text = (const char *)bytes + 1;
    weft_err err_a = read_form(&a, &file_a, text, n - 1, 1 + bytes[0]);
    weft_err err_b = read_form(&b, &file_b, text, n - 1, n);
    WEFT_ASSERT(err_a == err_b);
    WEFT_ASSERT(err_a || (file_a.len == file_b.len && a.n_fields == b.n_fields));
    WEFT_ASSERT(err_a || file_a.len == 0 || memcmp(file_a.data, file_b.data, file_a.len) == 0);
    weft_buf_fini(&file_a);
    weft_buf_fini(&file_b);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "\x01--e\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--e\r\n"
        "content-disposition: form-data; name=file; filename=\"a;b.jsonl\"\r\nContent-Type: "
        "a/b\r\n\r\n"
        "{\"a\":1}\n\r\n--\r\n--x\r\n--e--\r\n",
        "\x05preamble\r\n--e\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\r\n--e--",
        "\x02--e\r\n\r\n--e--",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        add(seeds[i], strlen(seeds[i]));
}
