# CUFI_CFLAGS(VARIABLE, FLAGS): appends to VARIABLE those of FLAGS that the C compiler takes.
AC_DEFUN([CUFI_CFLAGS], [
  AC_LANG_ASSERT([C])
  cufi_saved_CFLAGS=$CFLAGS
  for cufi_flag in $2; do
    AC_MSG_CHECKING([whether $CC takes $cufi_flag])
    CFLAGS="$cufi_saved_CFLAGS -Werror $cufi_flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
      [AC_MSG_RESULT([yes])
       $1="$$1 $cufi_flag"],
      [AC_MSG_RESULT([no])])
  done
  CFLAGS=$cufi_saved_CFLAGS
])
