/* The angles by which positions turn q and k: one frequency per pair of elements, stretched in one
 * of the ways that models are trained with. As in Hugging Face, in double throughout.
 *
 * YaRN: Peng et al. 2023 (arXiv 2309.00071). LongRoPE: Ding et al. 2024 (arXiv 2402.13753).
 * NTK: Su 2023 (kexue.fm/archives/9706). */
#include "model_internal.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "params.h"

/* Llama 3.1's rule: short wavelengths stay, long ones are stretched by the factor, and those
 * between are blended linearly in original_context / wavelength. Llama 4 Scout has none between. */
static double llama3_frequency(const struct weft_model_params *p, double frequency) {
    double wavelength = 2 * M_PI / frequency;
    double turns = p->rope_original_context / wavelength;
    if (turns < p->rope_low_freq_factor) return frequency / p->rope_factor;
    if (turns >= p->rope_high_freq_factor) return frequency;
    double smooth =
        (turns - p->rope_low_freq_factor) / (p->rope_high_freq_factor - p->rope_low_freq_factor);
    return (1 - smooth) * frequency / p->rope_factor + smooth * frequency;
}

/* The pair (with a fraction) whose wavelength fits `turns` times into the original context. */
static double yarn_pair(const struct weft_model_params *p, double turns) {
    return p->rope_dim * log(p->rope_original_context / (turns * 2 * M_PI)) /
           (2 * log(p->rope_theta));
}

/* Pairs that turn fast stay, slow ones are stretched, and those between are blended linearly in
 * their number. */
static double yarn_frequency(const struct weft_model_params *p, uint32_t pair, double frequency) {
    double low = yarn_pair(p, p->yarn_beta_fast), high = yarn_pair(p, p->yarn_beta_slow);
    if (!p->block.yarn_smooth) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, p->rope_dim - 1);
    if (low == high) high += 0.001;
    double stretched = fmin(fmax((pair - low) / (high - low), 0), 1);
    return frequency / p->rope_factor * stretched + frequency * (1 - stretched);
}

/* The base grows by the factor f, as if the context did, and all pairs turn slower by f^(2/d), so that the
 * slowest is stretched by f in all. Whatever the length: GTE's models were trained so. */
static double ntk_frequency(const struct weft_model_params *p, uint32_t pair) {
    double base = p->rope_theta * p->rope_factor;
    return pow(base, -2.0 * pair / p->rope_dim) / pow(p->rope_factor, 2.0 / p->rope_dim);
}

static double scaled_frequency(const weft_model *model, bool is_long, uint32_t pair) {
    const struct weft_model_params *p = &model->params;
    double frequency = pow(p->rope_theta, -2.0 * pair / p->rope_dim);
    switch (p->rope_scaling) {
    case WEFT_ROPE_NONE:
    case WEFT_ROPE_DYNAMIC: /* stretches sequences longer than the context; there are none */
        break;
    case WEFT_ROPE_LINEAR:
        frequency /= p->rope_factor;
        break;
    case WEFT_ROPE_PROPORTIONAL:
        frequency = pair < p->unlike.rope_pairs ? frequency / p->rope_factor : 0;
        break;
    case WEFT_ROPE_LLAMA3:
        frequency = llama3_frequency(p, frequency);
        break;
    case WEFT_ROPE_YARN:
        frequency = yarn_frequency(p, pair, frequency);
        break;
    case WEFT_ROPE_LONGROPE:
        frequency /= (is_long ? p->rope_long_factors : p->rope_short_factors)[pair];
        break;
    case WEFT_ROPE_NTK:
        frequency = ntk_frequency(p, pair);
        break;
    }
    return model->rope_freqs ? frequency / (double)model->rope_freqs[pair] : frequency;
}

void weft_model_rope(const weft_model *model, bool local, bool is_long, struct weft_rope *out) {
    const struct weft_model_params *p = &model->params;
    bool is_plain = local && p->local_rope_theta > 0;
    uint32_t dim = is_plain ? weft_model_local_rope_dim(p) : p->rope_dim;
    WEFT_ASSERT(dim / 2 <= sizeof out->inv_freq / sizeof out->inv_freq[0]);
    memset(out, 0, sizeof *out);
    out->magnitude = is_plain ? 1 : p->rope_magnitude;
    for (uint32_t i = 0; i < dim / 2; i++)
        out->inv_freq[i] = is_plain ? pow(p->local_rope_theta, -2.0 * i / dim)
                                    : scaled_frequency(model, is_long, i);
}

uint32_t weft_model_long_prompt(const weft_model *model) {
    const struct weft_model_params *p = &model->params;
    return p->rope_scaling == WEFT_ROPE_LONGROPE ? p->rope_original_context : UINT32_MAX;
}

double wefti_model_yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double wefti_model_longrope_magnitude(double factor, uint32_t original_context) {
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original_context));
}

void wefti_model_yarn_stretch(struct weft_model_params *p) {
    double stretched = p->rope_original_context * p->rope_factor; /* both unchecked as yet */
    if (stretched > p->n_context && stretched <= WEFT_CONTEXT_MAX)
        p->n_context = (uint32_t)stretched;
}
