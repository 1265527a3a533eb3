foreach(name test_base64 test_json_budget test_json_check test_json_out test_codec_utf8 test_msgpack test_msgpack_reader test_writer)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c
            LINKS weft_codec PkgConfig::JANSSON PkgConfig::MSGPACK m LABELS unit TIMEOUT 60)
endforeach()
weft_test(test_gunzip SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_gunzip.c LINKS weft_gunzip PkgConfig::ZLIB LABELS unit
          TIMEOUT 60)
weft_fuzz(fuzz_msgpack RUNS 100000 LINKS weft_codec)
weft_fuzz(fuzz_gunzip RUNS 20000 LINKS weft_gunzip)
