# The limits only end what hangs: no test takes longer than a minute on an idle machine of two cores.
weft_system_test(system_api test_api.py TIMEOUT 600)
weft_system_test(system_serve test_serve.py TIMEOUT 600)
weft_system_test(system_bench_serve test_bench_serve.py TIMEOUT 600)
weft_system_test(system_invariance test_invariance.py TIMEOUT 600)
weft_system_test(system_order test_order.py TIMEOUT 600)
weft_system_test(system_kill test_kill.py TIMEOUT 900)
weft_system_test(system_replicas test_replicas.py TIMEOUT 600)
weft_system_test(system_pack test_pack.py TIMEOUT 600)
weft_system_test(system_abuse test_abuse.py TIMEOUT 900)
# Clients of others have an entry each: where one is not there, CTest shows it as skipped.
weft_system_test(system_openai test_openai.py TIMEOUT 600)
weft_system_test(system_pynvim test_pynvim.py TIMEOUT 600)
weft_system_test(system_promtool test_promtool.py TIMEOUT 600)
