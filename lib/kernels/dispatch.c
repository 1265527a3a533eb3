/* One table per ISA, each filled once from what the CPU can do: scalar entries first, then faster
 * ones over them; none is NULL but what kernels.h says of blocks rounded to bf16. */
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kern_internal.h"
#include "quant.h"

#ifdef WEFT_KERN_X86
#include <cpuid.h>

#include "amx/try_amx.h"
#include "base/log.h"

/* XCR0: which register files the operating system saves. The intrinsic of xgetbv needs a compiler
 * flag that would affect this whole file, hence the instruction by hand; CPUID says
 * that there is one. */
static uint64_t xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool is_intel(void) {
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
           d == signature_INTEL_edx;
}

struct wefti_kern_features wefti_kern_features_detect(void) {
    struct wefti_kern_features found = {0};
    uint32_t a, b, c, d, b7, c7, d7, a71 = 0;
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
    if ((c & (fma | osxsave | avx | f16c)) != (fma | osxsave | avx | f16c)) return found;
    uint64_t saved = xcr0();
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return found;
    uint32_t subleaves = a;
    found.avx2 = (b7 >> 5 & 1) != 0;
    const uint32_t f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    found.avx512 = found.avx2 && (saved & 0xe6) == 0xe6 && (b7 & f_dq_bw_vl) == f_dq_bw_vl;
    if (subleaves >= 1) (void)__get_cpuid_count(7, 1, &a71, &b, &c, &d);
    found.avx2vnni = found.avx2 && (a71 >> 4 & 1) != 0;
    found.vnni = found.avx512 && (c7 >> 11 & 1) != 0;
    found.bf16 = found.avx512 && (a71 >> 5 & 1) != 0;
    /* Intel's cores since Golden Cove, which are those with AVX512_FP16, have a vdpbf16ps for AMX's
     * sake: on a Xeon of family 6, model 207 a core starts 1.35e9 of them a second, of 32 products
     * each, against 5.5e9 FMAs of 16; Cooper Lake and Zen 4 and 5 start as many as FMAs. CPUID
     * decides and no measurement, so that the bits of a result depend on the CPU's type alone. */
    found.slow_bf16 = found.bf16 && (d7 >> 23 & 1) != 0 && is_intel();
    const uint32_t tile_int8 = 1u << 24 | 1u << 25;
    found.amx = found.vnni && (saved >> 17 & 3) == 3 && (d7 & tile_int8) == tile_int8;
    found.vbmi = found.avx512 && (c7 >> 1 & 1) != 0;
    found.amx_bf16 = found.amx && found.bf16 && found.vbmi && (d7 >> 22 & 1) != 0;
    return found;
}

static void fill_avx2(struct weft_kern_table *table) {
    table->name = "avx2";
    table->group_rows = WEFTI_KERN_GROUP_ROWS_AVX2;
    wefti_kern_fill_gemm_f32_avx2(table);
    wefti_kern_fill_gemm_bf16_avx2(table);
    wefti_kern_fill_gemm_q8_avx2(table);
    wefti_kern_fill_gemm_i8_avx2(table);
    wefti_kern_fill_gemm_q2_q6_avx2(table);
    wefti_kern_fill_gemm_fp8_nf4_avx2(table);
    wefti_kern_fill_gemm_act_order_avx2(table);
    wefti_kern_fill_lora_avx2(table);
    wefti_kern_fill_attention_avx2(table);
    wefti_kern_fill_recurrent_avx2(table);
    wefti_kern_fill_ops_avx2(table);
    wefti_kern_fill_peak_avx2(table);
}

static void fill_avx2vnni(struct weft_kern_table *table) {
    table->name = "avx2-vnni";
    wefti_kern_fill_gemm_q8_avx2vnni(table);
    wefti_kern_fill_gemm_i8_avx2vnni(table);
    wefti_kern_fill_gemm_q2_q6_avx2vnni(table);
    wefti_kern_fill_attention_avx2vnni(table);
    wefti_kern_fill_peak_avx2vnni(table);
}

static void fill_avx512(struct weft_kern_table *table, struct wefti_kern_features features) {
    static const char *const names[2][2] = {{"avx512", "avx512-bf16"},
                                            {"avx512-vnni", "avx512-vnni-bf16"}};
    const bool dots_bf16 = features.bf16 && !features.slow_bf16;
    table->name = names[features.vnni][dots_bf16];
    table->group_rows = WEFTI_KERN_GROUP_ROWS_AVX512;
    wefti_kern_fill_gemm_f32_avx512(table);
    wefti_kern_fill_gemm_bf16_avx512(table);
    wefti_kern_fill_gemm_q8_avx512(table);
    wefti_kern_fill_gemm_i8_avx512(table);
    wefti_kern_fill_gemm_q2_q6_avx512(table);
    wefti_kern_fill_gemm_fp8_nf4_avx512(table);
    wefti_kern_fill_gemm_act_order_avx512(table);
    wefti_kern_fill_lora_avx512(table);
    wefti_kern_fill_attention_avx512(table);
    wefti_kern_fill_recurrent_avx512(table);
    wefti_kern_fill_ops_avx512(table);
    wefti_kern_fill_peak_avx512(table);
    if (features.vnni) wefti_kern_fill_gemm_q8_avx512vnni(table);
    if (features.vnni) wefti_kern_fill_gemm_q2_q6_avx512vnni(table);
    if (features.vnni) wefti_kern_fill_gemm_i8_avx512vnni(table);
    if (features.vnni) wefti_kern_fill_attention_avx512vnni(table);
    if (features.vnni) wefti_kern_fill_peak_avx512vnni(table);
    if (features.vnni && dots_bf16) wefti_kern_fill_attention_avx512bf16(table);
    if (dots_bf16) wefti_kern_fill_gemm_bf16_avx512bf16(table);
    if (dots_bf16) wefti_kern_fill_peak_avx512bf16(table);
}

/* Integers have the bits of AVX-512, and so `bits` stays where there is no more. */
static void fill_amx(struct weft_kern_table *table, struct wefti_kern_features features) {
    table->name = "amx";
    wefti_kern_fill_act_in_rows_avx512(table, features.amx_bf16);
    wefti_kern_fill_gemm_i8_amx(table);
    if (!features.amx_bf16) return;
    table->name = table->bits = "amx-bf16";
    wefti_kern_fill_gemm_bf16_amx(table);
    wefti_kern_fill_attention_amx(table);
    wefti_kern_fill_peak_amx(table);
}
#elif defined(WEFT_KERN_AARCH64)
#include <asm/hwcap.h>
#include <sys/auxv.h>

/* NEON is part of every aarch64; the kernel tells what came later. */
struct wefti_kern_features wefti_kern_features_detect(void) {
    const unsigned long caps = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
    struct wefti_kern_features found = {.neon = true};
    found.dotprod = (caps & HWCAP_ASIMDDP) != 0;
    found.i8mm = found.dotprod && (more & HWCAP2_I8MM) != 0;
    found.bf16 = (more & HWCAP2_BF16) != 0;
    return found;
}

static void fill_neon(struct weft_kern_table *table, struct wefti_kern_features features) {
    static const char *const names[3][2] = {{"neon", "neon-bf16"},
                                            {"neon-dotprod", "neon-dotprod-bf16"},
                                            {"neon-i8mm", "neon-i8mm-bf16"}};
    table->name = names[features.i8mm ? 2 : features.dotprod][features.bf16];
    table->group_rows = WEFTI_KERN_GROUP_ROWS_NEON;
    wefti_kern_fill_gemm_f32_neon(table);
    wefti_kern_fill_gemm_bf16_neon(table);
    wefti_kern_fill_gemm_int8_neon(table);
    wefti_kern_fill_gemm_widened_neon(table);
    wefti_kern_fill_gemm_fp8_nf4_neon(table);
    wefti_kern_fill_gemm_act_order_neon(table);
    wefti_kern_fill_attention_neon(table);
    wefti_kern_fill_lora_neon(table);
    wefti_kern_fill_recurrent_neon(table);
    wefti_kern_fill_ops_neon(table);
    wefti_kern_fill_peak_neon(table);
    if (features.dotprod) wefti_kern_fill_gemm_int8_neondot(table);
    if (features.dotprod) wefti_kern_fill_peak_neondot(table);
    if (features.dotprod) wefti_kern_fill_attention_neondot(table);
    if (features.dotprod && features.bf16) wefti_kern_fill_attention_neonbf16(table);
    if (features.i8mm) wefti_kern_fill_gemm_int8_neoni8mm(table);
    if (features.i8mm) wefti_kern_fill_peak_neoni8mm(table);
    if (features.bf16) wefti_kern_fill_gemm_bf16_neonbf16(table);
    if (features.bf16) wefti_kern_fill_peak_neonbf16(table);
}
#else
struct wefti_kern_features wefti_kern_features_detect(void) {
    return (struct wefti_kern_features){0};
}
#endif

static bool isa_usable(enum weft_isa isa, struct wefti_kern_features features) {
    return isa == WEFT_ISA_SCALAR || (isa == WEFT_ISA_AVX2 && features.avx2) ||
           (isa == WEFT_ISA_AVX2VNNI && features.avx2vnni) ||
           (isa == WEFT_ISA_AVX512 && features.avx512) || (isa == WEFT_ISA_AMX && features.amx) ||
           (isa == WEFT_ISA_NEON && features.neon);
}

/* Types that lie alike have their products in common. */
static void fill_alike(struct weft_kern_table *table) {
#define FILL_ALIKE(name, ID, AS)                                                                   \
    table->gemm[WEFT_GEMM_##ID##_F32] = table->gemm[WEFT_GEMM_##AS##_F32];                         \
    table->gemm[WEFT_GEMM_##ID] = table->gemm[WEFT_GEMM_##AS];                                     \
    table->gemm[WEFT_GEMM_##ID##_BF16] = table->gemm[WEFT_GEMM_##AS##_BF16];
    QUANT_ALIKE(FILL_ALIKE)
}

/* The scalar ones do not know the other ISAs' groups of rows. */
static void drop_rounded(struct weft_kern_table *table) {
    for (uint32_t kind = 0; kind < WEFT_GEMM_KIND_COUNT; kind++) {
        if (kind_facts[kind].rounds) table->gemm[kind] = NULL;
    }
}

void wefti_kern_table_build(struct weft_kern_table *table, enum weft_isa isa,
                            struct wefti_kern_features features) {
    WEFT_ASSERT(isa_usable(isa, features));
    *table = (struct weft_kern_table){.isa = isa, .name = "scalar", .group_rows = 1};
    wefti_kern_fill_gemm_scalar(table);
    wefti_kern_fill_lora_scalar(table);
    wefti_kern_fill_attention_scalar(table);
    wefti_kern_fill_recurrent_scalar(table);
    wefti_kern_fill_ops_scalar(table);
    wefti_kern_fill_peak_scalar(table);
#ifdef WEFT_KERN_X86
    if (isa >= WEFT_ISA_AVX2) fill_avx2(table);
    if (isa == WEFT_ISA_AVX2VNNI) fill_avx2vnni(table);
    if (isa >= WEFT_ISA_AVX512) fill_avx512(table, features);
#elif defined(WEFT_KERN_AARCH64)
    if (isa == WEFT_ISA_NEON) fill_neon(table, features);
#endif
    table->bits = table->name;
    if (isa != WEFT_ISA_SCALAR) drop_rounded(table);
#ifdef WEFT_KERN_X86
    if (isa == WEFT_ISA_AMX) fill_amx(table, features);
#endif
    fill_alike(table);
}

static struct weft_kern_table tables[WEFT_ISA_COUNT];
static bool usable[WEFT_ISA_COUNT];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT, amx_once = PTHREAD_ONCE_INIT;

static void build_tables(void) {
    struct wefti_kern_features features = wefti_kern_features_detect();
    for (uint32_t isa = 0; isa < WEFT_ISA_COUNT; isa++) {
        usable[isa] = isa != WEFT_ISA_AMX && isa_usable((enum weft_isa)isa, features);
        if (usable[isa]) wefti_kern_table_build(&tables[isa], (enum weft_isa)isa, features);
    }
}

/* Only where somebody wants it, so that WEFT_ISA keeps a CPU from it altogether. */
static void build_amx(void) {
    struct wefti_kern_features features = wefti_kern_features_detect();
    if (!isa_usable(WEFT_ISA_AMX, features)) return;
#ifdef WEFT_KERN_X86
    struct weft_kern_table *table = &tables[WEFT_ISA_AMX];
    wefti_kern_table_build(table, WEFT_ISA_AMX, features);
    if (!wefti_kern_amx_permitted()) {
        weft_info("the system does not let this process use AMX: AVX-512 is used");
        return;
    }
    usable[WEFT_ISA_AMX] = wefti_kern_agree(table, &tables[WEFT_ISA_AVX512]) &&
                           (!features.amx_bf16 || wefti_kern_amx_bf16_holds(table));
    if (!usable[WEFT_ISA_AMX])
        weft_warn("AMX does not compute the sums that it should on this CPU: AVX-512 is used");
#endif
}

const struct weft_kern_table *weft_kern_table_for(enum weft_isa isa) {
    WEFT_ASSERT(isa < WEFT_ISA_COUNT);
    (void)pthread_once(&tables_once, build_tables);
    if (isa == WEFT_ISA_AMX) (void)pthread_once(&amx_once, build_amx);
    return usable[isa] ? &tables[isa] : NULL;
}

static const char *const isa_names[WEFT_ISA_COUNT] = {"scalar", "avx2", "avx2vnni",
                                                      "avx512", "amx",  "neon"};

/* "scalar, avx2 or avx512": what WEFT_ISA may be here. */
static void list_usable(char *out, size_t out_bytes) {
    uint32_t last = 0;
    size_t n = 0;
    for (uint32_t i = 0; i < WEFT_ISA_COUNT; i++)
        if (weft_kern_table_for((enum weft_isa)i)) last = i;
    for (uint32_t i = 0; i <= last; i++) {
        if (!weft_kern_table_for((enum weft_isa)i)) continue;
        const char *before = n == 0 ? "" : i == last ? " or " : ", ";
        int len = snprintf(out + n, out_bytes - n, "%s%s", before, isa_names[i]);
        WEFT_ASSERT(len > 0 && (size_t)len < out_bytes - n); /* they are few and short */
        n += (size_t)len;
    }
}

weft_err weft_kern_select(const struct weft_kern_table **table_out, struct weft_errmsg *why) {
    *table_out = NULL;
    const char *forced = getenv("WEFT_ISA");
    if (forced && forced[0] == '\0') forced = NULL;
    for (uint32_t i = WEFT_ISA_COUNT; i-- > 0;) {
        if (forced && strcmp(forced, isa_names[i]) != 0) continue;
        *table_out = weft_kern_table_for((enum weft_isa)i);
        if (*table_out) return WEFT_OK;
    }
    char usable_names[64];
    list_usable(usable_names, sizeof usable_names);
    return weft_err_set(why, WEFT_E_UNSUPPORTED, "WEFT_ISA is %s on this CPU, not \"%s\"",
                        usable_names, forced);
}
