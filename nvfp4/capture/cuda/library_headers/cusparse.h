#pragma once
// The types of cuSPARSE that torch's headers name, for a toolkit without the library.
#include <cuda_runtime_api.h>
typedef struct cusparseContext *cusparseHandle_t;
typedef struct cusparseMatDescr *cusparseMatDescr_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
typedef enum { CUSPARSE_OPERATION_NON_TRANSPOSE = 0 } cusparseOperation_t;
typedef enum { CUSPARSE_DIRECTION_ROW = 0 } cusparseDirection_t;
extern "C" const char *cusparseGetErrorString(cusparseStatus_t status);
