/* Forward convolutions by LIBXSMM 1.17 for resnet50_layers.py: f32, its own blocked layouts, padding in memory.
 *
 *     cc -O2 -fopenmp -shared -fPIC libxsmm_conv.c -o libxsmm_conv.so -lxsmm -lxsmmnoblas -ldl -lm
 */
#include <libxsmm.h>
#include <omp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    libxsmm_dnn_layer *layer;
    libxsmm_dnn_tensor *tensors[3];
    libxsmm_dnn_tensor_datalayout *layouts[3];
    void *memory[3];
    void *scratch;
    int threads;
} conv;

static const libxsmm_dnn_tensor_type kinds[3] = {
    LIBXSMM_DNN_REGULAR_INPUT, LIBXSMM_DNN_REGULAR_FILTER, LIBXSMM_DNN_REGULAR_OUTPUT};

const char *conv_arch(void) {
    libxsmm_init();
    return libxsmm_get_target_arch();
}

void conv_destroy(conv *c) {
    if (!c) return;
    for (int k = 0; k < 3; k++) {
        if (c->tensors[k]) {
            libxsmm_dnn_release_tensor(c->layer, kinds[k]);
            libxsmm_dnn_destroy_tensor(c->tensors[k]);
        }
        if (c->layouts[k]) libxsmm_dnn_destroy_tensor_datalayout(c->layouts[k]);
        libxsmm_free(c->memory[k]);
    }
    if (c->scratch) libxsmm_dnn_release_scratch(c->layer, LIBXSMM_DNN_COMPUTE_KIND_FWD);
    libxsmm_free(c->scratch);
    if (c->layer) libxsmm_dnn_destroy_conv_layer(c->layer);
    free(c);
}

/* sizes: n, channels in, height, width, channels out, window, stride, padding, threads. `x` is plain NCHW with the
 * padding in it, `w` plain KCRS. Returns NULL and an error code of LIBXSMM where something fails. */
conv *conv_create(const int32_t *sizes, const float *x, const float *w, int32_t *error) {
    conv *c = calloc(1, sizeof *c);
    libxsmm_dnn_err_t status = LIBXSMM_DNN_SUCCESS;
    libxsmm_dnn_conv_desc d;
    memset(&d, 0, sizeof d);
    d.N = sizes[0], d.C = sizes[1], d.H = sizes[2], d.W = sizes[3], d.K = sizes[4];
    d.R = d.S = sizes[5];
    d.u = d.v = sizes[6];
    d.pad_h = d.pad_w = d.pad_h_in = d.pad_w_in = sizes[7];
    d.threads = c->threads = sizes[8];
    d.algo = LIBXSMM_DNN_CONV_ALGO_DIRECT;
    d.buffer_format = d.filter_format = LIBXSMM_DNN_TENSOR_FORMAT_LIBXSMM;
    d.fuse_ops = LIBXSMM_DNN_CONV_FUSE_NONE;
    d.options = LIBXSMM_DNN_CONV_OPTION_OVERWRITE;
    d.datatype_in = d.datatype_out = LIBXSMM_DNN_DATATYPE_F32;
    c->layer = libxsmm_dnn_create_conv_layer(d, &status);
    *error = (int32_t)status;
    if (!c->layer) return free(c), NULL;
    for (int k = 0; k < 3; k++) {
        c->layouts[k] = libxsmm_dnn_create_tensor_datalayout(c->layer, kinds[k], &status);
        if (status != LIBXSMM_DNN_SUCCESS) goto failed;
        size_t bytes = libxsmm_dnn_get_tensor_size(c->layouts[k], &status);
        c->memory[k] = libxsmm_aligned_malloc(bytes, 2097152);
        memset(c->memory[k], 0, bytes);
        c->tensors[k] = libxsmm_dnn_link_tensor(c->layouts[k], c->memory[k], &status);
        if (status != LIBXSMM_DNN_SUCCESS) goto failed;
    }
    status = libxsmm_dnn_copyin_tensor(c->tensors[0], x, LIBXSMM_DNN_TENSOR_FORMAT_NCHW);
    if (status != LIBXSMM_DNN_SUCCESS) goto failed;
    status = libxsmm_dnn_copyin_tensor(c->tensors[1], w, LIBXSMM_DNN_TENSOR_FORMAT_KCRS);
    if (status != LIBXSMM_DNN_SUCCESS) goto failed;
    for (int k = 0; k < 3; k++) {
        status = libxsmm_dnn_bind_tensor(c->layer, c->tensors[k], kinds[k]);
        if (status != LIBXSMM_DNN_SUCCESS) goto failed;
    }
    size_t scratch = libxsmm_dnn_get_scratch_size(c->layer, LIBXSMM_DNN_COMPUTE_KIND_FWD, &status);
    c->scratch = libxsmm_aligned_malloc(scratch + 64, 2097152);
    memset(c->scratch, 0, scratch + 64);
    status = libxsmm_dnn_bind_scratch(c->layer, LIBXSMM_DNN_COMPUTE_KIND_FWD, c->scratch);
    if (status == LIBXSMM_DNN_SUCCESS) return c;
failed:
    *error = (int32_t)status;
    conv_destroy(c);
    return NULL;
}

/* Runs so often, and writes the nanoseconds of each run. */
void conv_run(conv *c, int32_t runs, int64_t *nanoseconds) {
    for (int32_t r = 0; r < runs; r++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
#pragma omp parallel num_threads(c->threads)
        libxsmm_dnn_execute_st(c->layer, LIBXSMM_DNN_COMPUTE_KIND_FWD, 0, omp_get_thread_num());
        clock_gettime(CLOCK_MONOTONIC, &end);
        nanoseconds[r] = (end.tv_sec - begin.tv_sec) * 1000000000ll + (end.tv_nsec - begin.tv_nsec);
    }
}

/* The result as plain NCHW. */
int32_t conv_output(conv *c, float *y) {
    return (int32_t)libxsmm_dnn_copyout_tensor(c->tensors[2], y, LIBXSMM_DNN_TENSOR_FORMAT_NCHW);
}
