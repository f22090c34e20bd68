/* One step of a deep linear recurrent network, written by linrnn.export.c.
 *
@ABOUT@
 *
 * How to use it:
 *
 *     #include "this file"
 *
 *     static linrnn_state state;
 *     linrnn_input input[LINRNN_INPUTS];
 *     float output[LINRNN_OUTPUTS];
 *
 *     linrnn_reset(&state);
 *     while (...) { ... linrnn_step(&state, input, output); ... }
 *
 * - In a program of several files, compile this file once; elsewhere write #define LINRNN_DECLARATIONS before the
 *   #include.
 * - Compile with optimization, such as cc -std=c99 -O3 -march=native, and link the mathematics with -lm. -ffast-math
 *   would spoil the mean over long streams.
 * - Each sequence has a state of its own. A step allocates nothing and keeps nothing elsewhere, so threads may take
 *   steps of different states at the same time.
 * - linrnn_step returns 0. It returns 1, without a change of the state and the output, for a token outside of //tokens,both
 *   the vocabulary. //tokens,both
 * - After an input that is not finite the state is invalid until linrnn_reset. //numbers,alone
 * - The input is the //tokens
 *   id of a token. //tokens
 * - The last number of the input is the id of a token. //both
 * - The output is the prediction from all steps since the reset. //mean
 * - cc -std=c99 -O3 -DLINRNN_EXAMPLE makes a program that reads inputs as text and prints an output for each.
 */
#ifndef LINRNN_H
#define LINRNN_H

@SIZES@

typedef int linrnn_input; //tokens
typedef float linrnn_input; //numbers,alone

typedef struct {
    float states[LINRNN_BLOCKS][LINRNN_STATES];
    float total[LINRNN_FEATURES]; /* the sum of the features over all steps, */ //mean
    float lost[LINRNN_FEATURES];  /* and what rounding added to it */ //mean
    unsigned long long steps; //mean
    /* Working memory of a step; it holds nothing between steps. */
    float numbers[LINRNN_CHANNELS]; //units
    float x[LINRNN_FEATURES]; //model
    float n[LINRNN_FEATURES]; //layer
    float h[LINRNN_FEATURES]; //model
    float y[LINRNN_FEATURES]; //half_glu2
    float wide[LINRNN_WIDE]; //model,shared
} linrnn_state;

#ifdef __cplusplus
extern "C" {
#endif
void linrnn_reset(linrnn_state *state);
int linrnn_step(linrnn_state *state, const linrnn_input *input, float *output);
#ifdef __cplusplus
}
#endif
#endif /* LINRNN_H */

#ifndef LINRNN_DECLARATIONS
#include <math.h>
#include <string.h>

@WEIGHTS@

/* y = bias + matrix * x, for a matrix stored by columns. */ //model,shared
static void linrnn_linear(const float *restrict matrix, const float *restrict bias, int rows, int columns, //model,shared
                          const float *restrict x, float *restrict y) //model,shared
{ //model,shared

    for (int row = 0; row < rows; row++) //model,shared
        y[row] = bias[row]; //model,shared
    int column = 0; //model,shared
    for (; column + 4 <= columns; column += 4) { //model,shared
        const float *restrict m = matrix + column * rows; //model,shared
        const float a = x[column], b = x[column + 1], c = x[column + 2], d = x[column + 3]; //model,shared
        for (int row = 0; row < rows; row++) //model,shared
            y[row] += (a * m[row] + b * m[rows + row]) + (c * m[2 * rows + row] + d * m[3 * rows + row]); //model,shared
    } //model,shared
    for (; column < columns; column++) { //model,shared
        const float *restrict m = matrix + column * rows; //model,shared
        for (int row = 0; row < rows; row++) //model,shared
            y[row] += x[column] * m[row]; //model,shared
    } //model,shared
} //model,shared

/* Very small numbers become zero: processors are slow with denormal numbers. */
static float linrnn_flushed(float x)
{
    return fabsf(x) < 1e-30f ? 0.0f : x;
}

static void linrnn_standardize(const float *restrict x, float *restrict n) //layer
{ //layer
    float mean = 0.0f, square = 0.0f; //layer

    for (int k = 0; k < LINRNN_FEATURES; k++) //layer
        mean += x[k]; //layer
    mean /= LINRNN_FEATURES; //layer
    for (int k = 0; k < LINRNN_FEATURES; k++) { //layer
        n[k] = x[k] - mean; //layer
        square += n[k] * n[k]; //layer
    } //layer
    square = 1.0f / sqrtf(square / LINRNN_FEATURES + linrnn_eps); //layer
    for (int k = 0; k < LINRNN_FEATURES; k++) //layer
        n[k] *= square; //layer
} //layer

/* The recurrence of block i: state = lambda * state + B * u + b; y = C * state + d * u + e. */
static void linrnn_recur(linrnn_state *s, int i, const float *restrict u, float *restrict y)
{
    enum { half = LINRNN_STATES / 2 };
    const float *restrict lam = linrnn_lam[i];
    float *restrict state = s->states[i];

    linrnn_linear(linrnn_B[i], linrnn_b[i], LINRNN_STATES, LINRNN_FEATURES, u, s->wide); //shared
    for (int k = 0; k < half; k++) { //shared
        const float re = state[k], im = state[half + k]; //shared
        state[k] = linrnn_flushed(lam[k] * re - lam[half + k] * im + s->wide[k]); //shared
        state[half + k] = linrnn_flushed(lam[k] * im + lam[half + k] * re + s->wide[half + k]); //shared
    } //shared
    linrnn_linear(linrnn_C[i], linrnn_e[i], LINRNN_FEATURES, LINRNN_STATES, state, y); //shared
    for (int k = 0; k < LINRNN_FEATURES; k++) //shared
        y[k] += linrnn_d[i][k] * u[k]; //shared
    enum { each = half / LINRNN_FEATURES }; //each
    for (int k = 0; k < LINRNN_FEATURES; k++) { //each
        float sum = linrnn_d[i][k] * u[k] + linrnn_e[i][k]; //each

        for (int m = k * each; m < (k + 1) * each; m++) { //each
            const float re = state[m], im = state[half + m]; //each
            const float new_re = lam[m] * re - lam[half + m] * im + linrnn_B[i][m] * u[k] + linrnn_b[i][m]; //each
            const float new_im = lam[m] * im + lam[half + m] * re + linrnn_B[i][half + m] * u[k] + linrnn_b[i][half + m]; //each
            state[m] = linrnn_flushed(new_re); //each
            state[half + m] = linrnn_flushed(new_im); //each
            sum += linrnn_C[i][m] * state[m] + linrnn_C[i][half + m] * state[half + m]; //each
        } //each
        y[k] = sum; //each
    } //each
}

/* x + mixing(gelu(recurrence(norm(x)))), with the norm in the weights of the recurrence. */ //batch
/* x + mixing(gelu(recurrence(norm(x)))), with the norm's own weights in those of the recurrence. */ //layer
static void linrnn_block(linrnn_state *s, int i) //model
{ //model

    linrnn_standardize(s->x, s->n); //layer
    linrnn_recur(s, i, s->n, s->h); //layer
    linrnn_recur(s, i, s->x, s->h); //batch
    memcpy(s->y, s->h, sizeof s->y); //half_glu2
    for (int k = 0; k < LINRNN_FEATURES; k++) //model
        s->h[k] = 0.5f * s->h[k] * (1.0f + erff(0.707106781f * s->h[k])); //model
    linrnn_linear(linrnn_W[i], linrnn_w[i], LINRNN_GATES, LINRNN_FEATURES, s->h, s->wide); //model
    for (int k = 0; k < LINRNN_FEATURES; k++) //model
        s->x[k] += s->wide[k] / (1.0f + expf(-s->wide[LINRNN_FEATURES + k])); //glu
        s->x[k] += s->h[k] / (1.0f + expf(-s->wide[k])); //half_glu
        s->x[k] += s->y[k] / (1.0f + expf(-s->wide[k])); //half_glu2
} //model

void linrnn_reset(linrnn_state *state)
{
    memset(state, 0, sizeof *state);
}

int linrnn_step(linrnn_state *state, const linrnn_input *input, float *output)
{

    const float *numbers = input; //numbers
    if (!(input[LINRNN_CHANNELS] >= 0 && input[LINRNN_CHANNELS] < LINRNN_VOCABULARY)) //both
    if (input[0] < 0 || input[0] >= LINRNN_VOCABULARY) //tokens
        return 1; //tokens,both
    for (int k = 0; k < LINRNN_CHANNELS; k++) //units
        state->numbers[k] = (input[k] - linrnn_input_mean[k]) / linrnn_input_std[k]; //units
    numbers = state->numbers; //units
    linrnn_linear(linrnn_encoder, linrnn_encoder_bias, LINRNN_FEATURES, LINRNN_CHANNELS, numbers, state->x); //numbers
    for (int k = 0; k < LINRNN_FEATURES; k++) //tokens,both
        state->x[k] = linrnn_table[input[0] * LINRNN_FEATURES + k]; //tokens
        state->x[k] += linrnn_table[(int)input[LINRNN_CHANNELS] * LINRNN_FEATURES + k]; //both
    for (int i = 0; i < LINRNN_BLOCKS; i++) //model
        linrnn_block(state, i); //model
    linrnn_standardize(state->x, state->n); //last_layer
    memcpy(state->x, state->n, sizeof state->x); //last_layer
    state->steps++; //mean
    for (int k = 0; k < LINRNN_FEATURES; k++) { //mean
        const float more = state->x[k] - state->lost[k], total = state->total[k] + more; //mean
        state->lost[k] = (total - state->total[k]) - more; //mean
        state->total[k] = total; //mean
        state->x[k] = total / (float)state->steps; //mean
    } //mean
    linrnn_linear(linrnn_head, linrnn_head_bias, LINRNN_OUTPUTS, LINRNN_FEATURES, state->x, output); //model
    linrnn_recur(state, 0, input, output); //alone
    return 0;
}

#ifdef LINRNN_EXAMPLE
#include <stdio.h>

int main(void)
{
    static linrnn_state state;
    static linrnn_input input[LINRNN_INPUTS];
    static float output[LINRNN_OUTPUTS];

    linrnn_reset(&state);
    for (;;) {
        for (int i = 0; i < LINRNN_INPUTS; i++)
            if (scanf("%f", &input[i]) != 1) //numbers,alone
            if (scanf("%d", &input[i]) != 1) //tokens
                return 0;
        if (linrnn_step(&state, input, output) != 0) {
            fprintf(stderr, "expected a token from 0 to %d\n", LINRNN_VOCABULARY - 1); //tokens,both
            return 1;
        }
        for (int i = 0; i < LINRNN_OUTPUTS; i++)
            printf("%.9g%c", output[i], i + 1 < LINRNN_OUTPUTS ? ' ' : '\n');
        fflush(stdout);
    }
}
#endif /* LINRNN_EXAMPLE */
#endif /* LINRNN_DECLARATIONS */
