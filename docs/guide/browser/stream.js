// A model that `linrnn export RUN --stream` wrote, one step at a time.

export class Stream {
  static async load(ort, address) {
    return new Stream(ort, await ort.InferenceSession.create(address));
  }

  constructor(ort, session) {
    const state = session.inputMetadata.find((input) => input.name === "state");
    this.ort = ort;
    this.session = session;
    this.size = state.shape[1]; // numbers in the state of one sequence
    this.reset();
  }

  reset() {
    this.state = new this.ort.Tensor("float32", new Float32Array(this.size), [1, this.size]);
  }

  // The output after one more step, whose inputs are an array of numbers, one for each channel.
  async step(numbers) {
    const inputs = new this.ort.Tensor("float32", Float32Array.from(numbers), [1, numbers.length]);
    const { output, next_state } = await this.session.run({ inputs, state: this.state });
    this.state = next_state;
    return output.data;
  }
}
