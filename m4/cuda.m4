# The CUDA Toolkit. The library opens libcudart with dlopen, so a build needs only the toolkit's
# headers; nvcc and bin2c as well where the kernels of examples and tests are to run on a GPU.

# CUFI_CUDA(CUDART_VERSION at least): --with-cuda. Sets have_cuda (yes, or no), cuda_summary,
# CUDA_DIR, CUDA_CPPFLAGS, CUDART_DIR (where libcudart.so lies, or nothing), cuda_version.
AC_DEFUN([CUFI_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=DIR|no],
      [the CUDA Toolkit; no: the host device alone [default: searched]])],
    [], [with_cuda=search])
  have_cuda=no
  CUDA_DIR=
  CUDA_CPPFLAGS=
  AS_CASE([$with_cuda],
    [no], [cuda_dirs=],
    [search|yes], [
      AC_PATH_PROG([CUFI_NVCC_FOUND], [nvcc])
      cuda_dirs="$CUDA_HOME $CUDA_PATH"
      AS_IF([test -n "$CUFI_NVCC_FOUND"],
        [cuda_dirs="$cuda_dirs `dirname "$CUFI_NVCC_FOUND"`/.."])
      cuda_dirs="$cuda_dirs /usr/local/cuda /opt/cuda /usr"],
    [cuda_dirs=$with_cuda])
  AS_IF([test "$with_cuda" = no],
    [cuda_summary="no (as told by --with-cuda=no)"],
    [cuda_summary="no (no toolkit found: --with-cuda=DIR names one)"])
  for cuda_dir in $cuda_dirs; do
    AS_IF([test -f "$cuda_dir/include/cuda_runtime_api.h"], [
      CUDA_DIR=`cd "$cuda_dir" && pwd`
      AS_IF([test "$CUDA_DIR" != /usr], [CUDA_CPPFLAGS="-isystem $CUDA_DIR/include"])
      break])
  done
  AS_IF([test -n "$CUDA_DIR"], [
    AC_MSG_CHECKING([for the CUDA Toolkit in $CUDA_DIR])
    cufi_saved_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
    AC_COMPUTE_INT([cuda_version], [CUDART_VERSION], [[#include <cuda_runtime_api.h>]],
      [cuda_version=0])
    CPPFLAGS=$cufi_saved_CPPFLAGS
    cuda_dotted=`expr $cuda_version / 1000`.`expr $cuda_version % 1000 / 10`
    AC_MSG_RESULT([$cuda_dotted])
    AS_IF([test $cuda_version -ge $1],
      [have_cuda=yes
       cuda_summary="$cuda_dotted in $CUDA_DIR (--with-cuda=DIR|no)"],
      [cuda_summary="no ($CUDA_DIR is too old or broken: --with-cuda=DIR names another)"])],
    [test "$with_cuda" != no && test "$with_cuda" != search],
    [AC_MSG_ERROR([no include/cuda_runtime_api.h under --with-cuda=$with_cuda])])
  CUDART_DIR=
  AS_IF([test $have_cuda = no], [CUDA_DIR= CUDA_CPPFLAGS=], [
    for cuda_dir in lib64 lib targets/$host_cpu-linux/lib lib/$host_cpu-linux-gnu; do
      AS_IF([test -f "$CUDA_DIR/$cuda_dir/libcudart.so"],
        [CUDART_DIR=$CUDA_DIR/$cuda_dir
         break])
    done
    AC_DEFINE_UNQUOTED([CUFI_CUDART_DIR], ["$CUDART_DIR"],
      [Where the toolkit has libcudart.so, tried last.])])
  AC_SUBST([CUDART_DIR])
  AC_SUBST([CUDA_DIR])
  AC_SUBST([CUDA_CPPFLAGS])
])

# CUFI_NVCC: --with-nvcc-gencode. Sets have_nvcc, nvcc_summary, NVCC, BIN2C, NVCC_GENCODE.
AC_DEFUN([CUFI_NVCC], [
  AC_ARG_WITH([nvcc-gencode],
    [AS_HELP_STRING([--with-nvcc-gencode="90 100"],
      [architectures the kernels are compiled for, the last as PTX too
       @<:@default: 75 80 90, and 100 120 where the toolkit knows them@:>@])],
    [], [with_nvcc_gencode=])
  AC_ARG_VAR([NVCC], [CUDA's compiler])
  have_nvcc=no
  nvcc_summary="no (needs the toolkit)"
  NVCC_GENCODE=
  AS_IF([test $have_cuda = yes], [
    AC_PATH_PROG([NVCC], [nvcc], [], [$CUDA_DIR/bin$PATH_SEPARATOR$PATH])
    AC_PATH_PROG([BIN2C], [bin2c], [], [$CUDA_DIR/bin$PATH_SEPARATOR$PATH])
    AS_CASE([$with_nvcc_gencode],
      [''|yes|no], [with_nvcc_gencode="75 80 90"
        test $cuda_version -ge 12080 && with_nvcc_gencode="75 80 90 100 120"])
    for cufi_arch in $with_nvcc_gencode; do
      NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$cufi_arch,code=sm_$cufi_arch"
    done
    NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$cufi_arch,code=compute_$cufi_arch"
    AC_MSG_CHECKING([whether nvcc compiles for $with_nvcc_gencode])
    AS_IF([test -z "$NVCC" || test -z "$BIN2C"],
      [nvcc_summary="no (nvcc or bin2c not found: kernels have only their host twins)"],
      [echo '__global__ void k(int *p) { *p = 1; }' >conftest.cu
       AS_IF([$NVCC -fatbin $NVCC_GENCODE -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
         [have_nvcc=yes
          nvcc_summary="for $with_nvcc_gencode (--with-nvcc-gencode=LIST)"],
         [nvcc_summary="no (it fails, see config.log: kernels have only their host twins)"])
       rm -f conftest.cu conftest.fatbin])
    AC_MSG_RESULT([$have_nvcc])])
  AC_SUBST([NVCC_GENCODE])
])
