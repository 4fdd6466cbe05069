/* Asked whether this CPU is one of Intel's, says yes: otherwise MKL keeps to AVX2 on CPUs of
   others, whatever they have. To be loaded before it. */
int mkl_serv_intel_cpu_true(void) { return 1; }
