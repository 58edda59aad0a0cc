# Programs of on_device.sh, which runs them on a machine with a GPU: `ninja on_device`. They are
# given a module and need no CUDA to be built; two short tests keep them working without a GPU.
add_library(kvant_watch MODULE gpu/watch.c)
target_link_libraries(kvant_watch PRIVATE kvant_flags ${CMAKE_DL_LIBS})
target_include_directories(kvant_watch PRIVATE ${PROJECT_SOURCE_DIR})
foreach(name bench golden)
  add_executable(${name}_cuda gpu/${name}.c)
  target_link_libraries(${name}_cuda PRIVATE kvant_flags kvant ${CMAKE_DL_LIBS})
endforeach()

# Every gpu/test_*.c, without the emulated modules.
add_custom_target(on_device DEPENDS kvant_program kvant_watch bench_cuda golden_cuda)
file(GLOB device_tests CONFIGURE_DEPENDS gpu/test_*.c)
foreach(source ${device_tests})
  get_filename_component(stem ${source} NAME_WE)
  string(REPLACE "test_" "device_" name ${stem})
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE kvant_flags kvant ${CMAKE_DL_LIBS})
  add_dependencies(on_device ${name})
endforeach()

if(TARGET kvant_cuda_90 AND NOT KVANT_SANITIZE)
  add_test(NAME gpu_golden COMMAND golden_cuda 20 2)
  set_tests_properties(gpu_golden PROPERTIES LABELS gpu TIMEOUT 300
    ENVIRONMENT KVANT_CUDA_MODULE=$<TARGET_FILE:kvant_cuda_90>)
  # behind kvant_watch the emulator is out of sight, as on a GPU
  add_test(NAME gpu_not_emulated COMMAND gpu_scale_kernels $<TARGET_FILE:kvant_watch>)
  set_tests_properties(gpu_not_emulated PROPERTIES LABELS gpu TIMEOUT 300
    ENVIRONMENT KVANT_WATCHED=$<TARGET_FILE:kvant_cuda_90>)
endif()
