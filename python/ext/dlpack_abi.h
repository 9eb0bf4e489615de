/* The binary layout of DLPack 1.x, written from its public specification, the C API of version 1.0: how a tensor
 * travels between libraries inside a PyCapsule.
 *
 * A capsule named "dltensor" holds a qbpy_dl_managed, one named "dltensor_versioned" a qbpy_dl_versioned; whoever
 * takes it renames it to "used_..." and calls the deleter when done, from any thread and without the interpreter's
 * lock. */
#ifndef QUABLA_EXT_DLPACK_ABI_H
#define QUABLA_EXT_DLPACK_ABI_H

#include <stdint.h>

enum { QBPY_DL_MAJOR = 1, QBPY_DL_MINOR = 0 };

typedef enum qbpy_dl_device_type {
    QBPY_DL_CPU = 1,
    QBPY_DL_CUDA = 2,
    QBPY_DL_CUDA_HOST = 3, /* pinned host memory */
    QBPY_DL_OPENCL = 4,
    QBPY_DL_VULKAN = 7,
    QBPY_DL_METAL = 8,
    QBPY_DL_ROCM = 10,
    QBPY_DL_ROCM_HOST = 11,
    QBPY_DL_CUDA_MANAGED = 13
} qbpy_dl_device_type;

typedef enum qbpy_dl_code {
    QBPY_DL_INT = 0,
    QBPY_DL_UINT = 1,
    QBPY_DL_FLOAT = 2,
    QBPY_DL_BFLOAT = 4,
    QBPY_DL_COMPLEX = 5,
    QBPY_DL_BOOL = 6
} qbpy_dl_code;

enum { QBPY_DL_READ_ONLY = 1 << 0, QBPY_DL_IS_COPIED = 1 << 1 };

typedef struct qbpy_dl_device {
    int32_t type;
    int32_t id;
} qbpy_dl_device;

typedef struct qbpy_dl_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} qbpy_dl_dtype;

typedef struct qbpy_dl_tensor {
    void *data;
    qbpy_dl_device device;
    int32_t rank;
    qbpy_dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} qbpy_dl_tensor;

typedef struct qbpy_dl_managed {
    qbpy_dl_tensor tensor;
    void *owner;
    void (*deleter)(struct qbpy_dl_managed *self);
} qbpy_dl_managed;

typedef struct qbpy_dl_versioned {
    uint32_t major, minor;
    void *owner;
    void (*deleter)(struct qbpy_dl_versioned *self);
    uint64_t flags;
    qbpy_dl_tensor tensor;
} qbpy_dl_versioned;

#endif
