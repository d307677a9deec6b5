/* Runs a model that was compiled to C: `tilewright compile MODEL --emit c-header -o model.h`.
 *
 *     main [INPUT.bin ...]
 *
 * reads the elements of each input, as they lie in memory, from a file (zeros where none is given), runs the model
 * once, writes each output to output0.bin, output1.bin ... and says what they are. */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void *buffer(const tw_model_tensor *tensor) {
    void *memory = calloc(1, tensor->bytes ? (size_t)tensor->bytes : 1);
    if (!memory) {
        fprintf(stderr, "no memory for %s\n", tensor->name);
        exit(1);
    }
    return memory;
}

static void read_file(const char *name, void *memory, const tw_model_tensor *tensor) {
    FILE *file = fopen(name, "rb");
    if (!file || fread(memory, 1, (size_t)tensor->bytes, file) != (size_t)tensor->bytes) {
        fprintf(stderr, "%s does not hold the %" PRId64 " bytes of %s\n", name, tensor->bytes, tensor->name);
        exit(1);
    }
    fclose(file);
}

static void write_file(const char *name, const void *memory, const tw_model_tensor *tensor) {
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(memory, 1, (size_t)tensor->bytes, file) != (size_t)tensor->bytes || fclose(file) != 0) {
        fprintf(stderr, "cannot write %s\n", name);
        exit(1);
    }
}

static void describe(const tw_model_tensor *tensor, const char *file) {
    printf("%s: %s[", tensor->name, tensor->dtype);
    for (int32_t i = 0; i < tensor->rank; i++) printf("%s%" PRId64, i ? ", " : "", tensor->shape[i]);
    printf("] in %s\n", file);
}

int main(int count, char **arguments) {
    void *inputs[model_input_count + 1], *outputs[model_output_count + 1];
    for (int i = 0; i < model_input_count; i++) {
        inputs[i] = buffer(&model_inputs()[i]);
        if (i + 1 < count) read_file(arguments[i + 1], inputs[i], &model_inputs()[i]);
    }
    for (int i = 0; i < model_output_count; i++) outputs[i] = buffer(&model_outputs()[i]);

    int32_t status;
    tw_model *model = model_open(NULL, &status);
    if (model) status = model_run(model, (const void *const *)inputs, outputs);
    model_close(model);
    if (status != TW_MODEL_OK) {
        fprintf(stderr, "%s\n", model_explain(status));
        return 1;
    }

    for (int i = 0; i < model_output_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "output%d.bin", i);
        write_file(name, outputs[i], &model_outputs()[i]);
        describe(&model_outputs()[i], name);
        free(outputs[i]);
    }
    for (int i = 0; i < model_input_count; i++) free(inputs[i]);
    return 0;
}
