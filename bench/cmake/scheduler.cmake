weft_bench(bench_sched SOURCES sched.c LINKS weft_scheduler)
