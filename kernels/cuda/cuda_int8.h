/* cuda_int8.h - products of codes with codes, both of 8 bits. */
#ifndef DQ_CUDA_INT8_H
#define DQ_CUDA_INT8_H

#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_twin.h"

/* y[t,n] = x.scale[t] scale[n] sum_k x.code[t,k] code[n,k] + bias[n]; one scale an output, no
 * offsets, K <= CODES_WHOLE_INPUTS. */
MUST_USE Status codes_whole_numbers(Backend *be, const CodesProduct *p, const CudaTwin *x);

#endif
