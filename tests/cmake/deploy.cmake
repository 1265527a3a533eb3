# Where a server runs: what a service manager hears, and what lies in deploy/, beside real servers. No sanitizer would find
# anything in the latter.
weft_test(test_notify SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_notify.c ${CMAKE_SOURCE_DIR}/cmd/weft/serve/notify.c
          LINKS weft_base INSIDE cmd_weft LABELS unit TIMEOUT 30)
if(NOT WEFT_SANITIZE)
  weft_system_test(deploy_prometheus ../deploy/test_prometheus.py TIMEOUT 120)
  weft_system_test(deploy_systemd ../deploy/test_systemd.py TIMEOUT 120)
  weft_system_test(deploy_nginx ../deploy/test_nginx.py TIMEOUT 300)
  weft_system_test(deploy_kubernetes ../deploy/test_kubernetes.py TIMEOUT 600)
  weft_system_test(deploy_image ../deploy/test_image.py TIMEOUT 120)
endif()
