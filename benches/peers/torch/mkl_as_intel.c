/* Overrides MKL's check of the CPU vendor, so that MKL takes its AVX-512 path on CPUs that are not
   Intel's. Must be loaded before MKL. */
int mkl_serv_intel_cpu_true(void) { return 1; }
