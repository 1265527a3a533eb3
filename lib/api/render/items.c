#include "render/items.h"

#include <string.h>

#include "base/check.h"
#include "render/choice_text.h"

void wefti_api_items_fini(struct item_reader *reader) {
    if (!reader->is_begun) return;
    wefti_api_view_fini(&reader->choice.view);
    wefti_api_pieces_fini(&reader->pieces);
    memset(reader, 0, sizeof *reader);
}

void wefti_api_items_rewind(struct item_reader *reader) {
    wefti_api_items_fini(reader);
}

static void begin(struct item_reader *reader, const struct choice *choice) {
    reader->choice = *choice;
    memset(&reader->choice.view, 0, sizeof reader->choice.view);
    memset(&reader->choice.scan, 0, sizeof reader->choice.scan);
    memset(&reader->choice.lps, 0, sizeof reader->choice.lps);
    reader->choice.tokens = NULL;
    wefti_api_pieces_init(&reader->pieces);
    wefti_api_text_begin(&reader->choice);
    reader->is_begun = true;
}

/* What has come since: a copy's tokens may have moved. */
static void refresh(struct item_reader *reader, const struct choice *choice) {
    if (!reader->is_begun) begin(reader, choice);
    reader->choice.tokens = choice->tokens;
    reader->choice.n_tokens = choice->n_tokens;
    reader->choice.end = choice->end;
    reader->choice.stop_idx = choice->stop_idx;
}

/* Reads a token, or the end. False: there is neither. */
static bool read_on(struct item_reader *reader) {
    struct choice *choice = &reader->choice;
    struct message_pieces *pieces = &reader->pieces;
    pieces->n = reader->next = 0;
    pieces->text.len = 0;
    if (choice->view.pos < wefti_api_seq_len(choice)) {
        wefti_api_message_push(choice, choice->view.pos++, pieces);
        return true;
    }
    if (choice->end == WEFT_END_NONE || reader->is_over) return false;
    wefti_api_message_flush(choice, pieces);
    reader->is_over = true;
    return true;
}

static bool is_empty(const struct message_piece *piece) {
    return piece->len == 0 && piece->kind != WEFT_MSG_CALL;
}

const struct message_piece *wefti_api_items_peek(struct item_reader *reader,
                                                 const struct choice *choice) {
    refresh(reader, choice);
    for (;;) {
        while (reader->next < reader->pieces.n) {
            const struct message_piece *piece = &reader->pieces.list[reader->next];
            if (!is_empty(piece)) return piece;
            reader->next++;
        }
        if (!read_on(reader)) return NULL;
    }
}

void wefti_api_items_skip(struct item_reader *reader) {
    WEFT_ASSERT(reader->next < reader->pieces.n);
    reader->next++;
}

uint32_t wefti_api_items_pos(const struct item_reader *reader) {
    return reader->choice.view.pos;
}

struct weft_str wefti_api_items_text(const struct item_reader *reader,
                                     const struct message_piece *piece) {
    if (piece->len == 0) return (struct weft_str){"", 0};
    return (struct weft_str){(const char *)reader->pieces.text.data + piece->at, piece->len};
}

bool wefti_api_item_is_cut(const struct item *item, const struct item_reader *reader) {
    const struct choice *choice = &reader->choice;
    return choice->end == WEFT_END_LENGTH || (item->kind == WEFT_MSG_CALL && choice->is_call_cut);
}

bool wefti_api_item_has(const struct item *item, const struct message_piece *piece) {
    if (!item->is_open) return false;
    if (item->kind != WEFT_MSG_CALL) return piece->kind == item->kind;
    return piece->kind == WEFT_MSG_ARGUMENTS && piece->call == item->call;
}

struct item wefti_api_item_of(uint32_t index, const struct message_piece *piece) {
    WEFT_ASSERT(piece->kind != WEFT_MSG_ARGUMENTS);
    return (struct item){.is_open = true, .kind = piece->kind, .call = piece->call, .index = index};
}
