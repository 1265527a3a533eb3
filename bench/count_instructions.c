/* A plugin of qemu-user that counts instructions: qemu-aarch64 -plugin count_instructions.so PROGRAM writes
 * "instructions N" to standard error when the program ends. bench/instructions.py builds it.
 *
 * Debian has no header for plugins: what is declared here is of version 1 of their interface. Calls of one
 * thread are counted exactly; several would race. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb; /* a run of instructions that was translated together */
enum { PLUGIN_VERSION = 1, INLINE_ADD_U64 = 0 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
                                                  void (*seen)(plugin_id, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int operation,
                                                     void *counter, uint64_t by);
extern void qemu_plugin_register_atexit_cb(plugin_id id, void (*ended)(plugin_id, void *),
                                           void *context);

#define EXPORTED __attribute__((visibility("default")))
EXPORTED extern int qemu_plugin_version;
EXPORTED int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

int qemu_plugin_version = PLUGIN_VERSION;
static uint64_t count;

static void on_translation(plugin_id id, struct qemu_plugin_tb *tb) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &count,
                                             qemu_plugin_tb_n_insns(tb));
}

static void on_end(plugin_id id, void *context) {
    (void)id;
    (void)context;
    (void)fprintf(stderr, "instructions %" PRIu64 "\n", count);
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_end, NULL);
    return 0;
}
