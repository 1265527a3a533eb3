# The page in a browser: `make test-page` runs it alone, and `make test` where Chromium is installed. A sanitizer would find
# nothing there that the other scripts do not show.
if(NOT WEFT_SANITIZE)
  weft_system_test(page ../page/test_page.py TIMEOUT 300)
  set_tests_properties(page PROPERTIES LABELS page)
endif()
