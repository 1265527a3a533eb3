/* `weft pack`: a model as one file that needs no loading. */
#include <stdio.h>

#include "commands.h"
#include "common/config.h"
#include "common/engine_config.h"
#include "quantise.h"

int weft_cmd_pack(const struct weft_config *given) {
    struct weft_errmsg why = {""};
    struct weft_config config = *given;
    struct weft_eng_options options;
    struct weft_eng_packed packed = {0};
    struct weft_quant quant = {0};
    config.activations = config.kv_dtype = "auto"; /* chosen where the file is used */
    weft_err err = weft_engine_config(&config, &options, &why);
    if (!err) err = weft_eng_pack_check(config.model, config.out, config.force, &why);
    if (!err) err = weft_quant_choose(&config, &options, &quant, &why);
    if (!err) err = weft_eng_pack(config.model, &options, config.out, config.force, &packed, &why);
    weft_quant_fini(&quant);
    if (err) return weft_cmd_fail(err, &why);
    double seconds = (double)packed.us * 1e-6;
    printf("%s: packed as %s, %.1f MiB from %.1f MiB in %.2f s (%.2f GB/s)\n", config.out,
           packed.packed_as, (double)packed.file_bytes / 0x1p20,
           (double)packed.source_bytes / 0x1p20, seconds,
           (double)packed.source_bytes * 1e-9 / seconds);
    return 0;
}
