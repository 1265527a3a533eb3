# Where a server runs: what lies in deploy/, beside real servers. No sanitizer would find anything in it.
if(NOT WEFT_SANITIZE)
  weft_system_test(deploy_prometheus ../deploy/test_prometheus.py TIMEOUT 120)
endif()
