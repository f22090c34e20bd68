// The forecast of a wave on docs/guide/browser.md.
import { Stream } from "./stream.js";

const SHOWN = 240; // steps before now
const demo = document.getElementById("wave");
const canvas = demo.querySelector("canvas");
const button = demo.querySelector("button");
const output = demo.querySelector("output");
const past = [];
let stream, pointer, running = false, period = 40, phase = 0;

button.addEventListener("click", async () => {
  if (!stream) {
    button.disabled = true;
    output.textContent = "Loading ONNX Runtime and the model …";
    try {
      await start();
    } catch (error) {
      output.textContent = `Not loaded: ${error.message}`;
      return;
    } finally {
      button.disabled = false;
    }
  }
  running = !running;
  button.textContent = running ? "Stop" : "Start";
  if (running) requestAnimationFrame(frame);
});

canvas.addEventListener("pointermove", (event) => {
  pointer = 1 - (2 * event.offsetY) / canvas.clientHeight;
});
canvas.addEventListener("pointerleave", () => (pointer = undefined));

async function start() {
  const ort = await import(demo.dataset.runtime + "ort.wasm.min.mjs");
  ort.env.wasm.wasmPaths = demo.dataset.runtime;
  ort.env.wasm.numThreads = 1; // a step is too small for several
  stream = await Stream.load(ort, "wave.onnx");
  await compare();
}

// The inputs of wave.json, and the outputs beside the outputs of linrnn.Stream.
async function compare() {
  const known = await (await fetch("wave.json")).json();
  let found = [], difference = 0;
  stream.reset();
  const begin = performance.now();
  for (const input of known.inputs) found.push(await stream.step([input]));
  const us = (1000 * (performance.now() - begin)) / known.inputs.length;
  found.forEach((row, k) =>
    row.forEach((number, i) => (difference = Math.max(difference, Math.abs(number - known.outputs[k][i])))),
  );
  stream.reset();
  output.textContent =
    `${known.inputs.length} steps at ${us.toFixed(0)} µs. ` +
    `Largest difference from linrnn.Stream: ${difference.toExponential(1)}. The last forecast:\n` +
    Array.from(found.at(-1), (number) => number.toFixed(6)).join(" ");
}

async function frame() {
  if (!running) return;
  phase += (2 * Math.PI) / period;
  if (phase > 6 * Math.PI) {
    phase -= 6 * Math.PI;
    period = 20 + 60 * Math.random();
  }
  past.push(pointer ?? 0.8 * Math.sin(phase));
  past.splice(0, past.length - SHOWN);
  draw(await stream.step([past.at(-1)]));
  requestAnimationFrame(frame);
}

function draw(forecast) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const x = (step) => (width * step) / (SHOWN + forecast.length);
  const y = (number) => (height * (1 - number)) / 2;
  const line = (points, color) => {
    context.beginPath();
    points.forEach(([step, number]) => context.lineTo(x(step), y(number)));
    context.strokeStyle = color;
    context.stroke();
  };
  const first = SHOWN - past.length;
  context.clearRect(0, 0, width, height);
  context.lineWidth = 2;
  line(past.map((number, i) => [first + i, number]), getComputedStyle(canvas).color);
  line([past.at(-1), ...forecast].map((number, i) => [SHOWN - 1 + i, number]), "#e07000");
}
