#include "foreign.h"

#include <string.h>

static const char on_cpus[] = "computing is on CPUs alone";
static const char always[] = "that is always so";
static const char no_flag[] = "the model's path stands without a flag";

static const struct {
    const char *typed, *here;
} flags[] = {
    {"-m", no_flag},
    {"--model", no_flag},
    {"-c", "--max-model-len"},
    {"--ctx-size", "--max-model-len"},
    {"-t", "--threads"},
    {"-np", "--max-num-seqs"},
    {"--parallel", "--max-num-seqs"},
    {"-b", "--max-num-batched-tokens"},
    {"--batch-size", "--max-num-batched-tokens"},
    {"-a", "--served-model-name"},
    {"--alias", "--served-model-name"},
    {"-ctk", "--kv-dtype"},
    {"-ctv", "--kv-dtype"},
    {"--cache-type-k", "--kv-dtype"},
    {"--cache-type-v", "--kv-dtype"},
    {"--kv-cache-dtype", "--kv-dtype"},
    {"--kv-cache-memory-bytes", "--kv-memory"},
    {"--gpu-memory-utilization", "--memory-limit"},
    {"--swap-space", "--kv-spill"},
    {"--quantization", "--dtype"},
    {"--tensor-parallel-size", "--layout"},
    {"-tp", "--layout"},
    {"--data-parallel-size", "--workers"},
    {"-dp", "--workers"},
    {"--lora-modules", "--lora"},
    {"-md", "--speculative-model"},
    {"--model-draft", "--speculative-model"},
    {"-ngl", on_cpus},
    {"--gpu-layers", on_cpus},
    {"--n-gpu-layers", on_cpus},
    {"--device", on_cpus},
    {"-fa", always},
    {"--flash-attn", always},
    {"--jinja", always},
    {"-cb", always},
    {"--cont-batching", always},
    {"--embeddings", "models that embed are served as they are"},
    {"--enforce-eager", "there is nothing to compile"},
    {"--trust-remote-code", "no code of a model is ever run"},
    {"-hf", "nothing is downloaded: name a folder or file"},
    {"--hf-repo", "nothing is downloaded: name a folder or file"},
};

const char *weft_foreign_flag(struct weft_str typed) {
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (weft_str_is(typed, flags[i].typed, strlen(flags[i].typed))) return flags[i].here;
    }
    return NULL;
}
